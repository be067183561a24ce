"""What a collector declares of itself, and what it is created from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.shared_state import SharedState
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
        follows_scrapes: it is sampled shortly before scrapes; the interval is the shortest pause.
    """

    name: str
    help: str
    interval: str
    timeout: str
    create: Callable[[Context], CollectorRunner]
    enabled: Callable[[Context], bool] = always
    needs: str = ""
    add_flags: Callable[[argparse.ArgumentParser], None] = no_flags
    follows_scrapes: bool = False

    @property
    def flag(self) -> str:
        """The flag that switches it on; those that only it has begin with it."""
        return f"--collector.{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Context:
    """What one collector is created from.

    Attributes:
        name: of the collector.
        node: the node that is watched.
        flags: of the exporter, by name.
        shared: what the collectors of runs, logs and schedulers share.
        logs_followed: whether both `runs` and `logs` run, so that the shared state will hold what logs show.
    """

    name: str
    node: Node
    flags: Mapping[str, Any]
    shared: SharedState
    logs_followed: bool = False

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
