"""What a collector declares of itself, and what it is created from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from trainwarden_exporter.core.exchange import RunExchange
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.sampling.task import CollectorRunner


def always(_: Context) -> bool:
    """Return True: the collector is on unless a flag switches it off."""
    return True


def never(_: Context) -> bool:
    """Return False: the collector is off unless a flag switches it on."""
    return False


def no_flags(_: argparse.ArgumentParser) -> None:
    """Add no flags."""


@dataclass(frozen=True)
class CollectorSpec:
    """One collector; `registry` lists them all.

    Attributes:
        name: value of the label `collector`; in its flags `_` is written `-`.
        help: what it exports, as its flag's help goes on after "export".
        interval: default pause between two samples, as a flag's text.
        timeout: default deadline of a sample, as a flag's text.
        create: return the runner that samples it; raise `UsageError` if the flags ask for what cannot be had.
        enabled: whether it runs where no flag switches it on or off; quick, and never raises.
        needs: what `enabled` looks for, for readers; empty: nothing, or a flag.
        add_flags: add the flags that only this collector has, each named `--collector.NAME.…`.
    """

    name: str
    help: str
    interval: str
    timeout: str
    create: Callable[[Context], CollectorRunner]
    enabled: Callable[[Context], bool] = always
    needs: str = ""
    add_flags: Callable[[argparse.ArgumentParser], None] = no_flags

    @property
    def flag(self) -> str:
        """The flag that switches it on; those that only it has begin with it."""
        return f"--collector.{self.name.replace('_', '-')}"


class TrackedFlags(Mapping[str, Any]):
    """A view of `flags` that records in `read` which of them were read, with their values."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._flags = flags
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        value = self.read[name] = self._flags[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def holds_for(self, flags: Mapping[str, Any]) -> bool:
        """Return whether the flags that were read have the same values in `flags`."""
        return all(flags[name] == value for name, value in self.read.items())


class Context:
    """What one collector is created from; records what of it was read, so that a reload knows what to create anew.

    Args:
        name: of the collector.
        node: the node that is watched.
        flags: of the exporter, by name.
        exchange: what the collectors of runs, logs and schedulers share.
        logs_followed: whether both `runs` and `logs` run, so that the exchange will hold what logs show.
    """

    def __init__(
        self, name: str, node: Node, flags: Mapping[str, Any], exchange: RunExchange, *, logs_followed: bool = False
    ) -> None:
        self.name = name
        self.node = node
        self.flags = TrackedFlags(flags)
        self.exchange = exchange
        self._logs_followed = logs_followed
        self._depends_on_logs = False

    @property
    def interval(self) -> float:
        """Pause between two samples, seconds."""
        value: float = self.flags[f"collector.{self.name}.interval"]
        return value

    @property
    def timeout(self) -> float:
        """Deadline of a sample, seconds."""
        value: float = self.flags[f"collector.{self.name}.timeout"]
        return value

    @property
    def logs_followed(self) -> bool:
        """Whether the collectors `runs` and `logs` both run."""
        self._depends_on_logs = True
        return self._logs_followed

    def holds_for(self, other: Context) -> bool:
        """Return whether everything that was read from this context is the same in the other."""
        same_logs = not self._depends_on_logs or self._logs_followed == other._logs_followed  # same class
        return self.node == other.node and same_logs and self.flags.holds_for(other.flags)
