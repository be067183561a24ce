"""The collectors that run: chosen by flags and by what the node has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.gpu.spec import roster_of
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.registry import SPECS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import CollectorSpec
    from trainwarden_exporter.sampling.task import CollectorRunner


def select(
    flags: Mapping[str, Any], is_enabled: Callable[[CollectorSpec], bool], specs: Sequence[CollectorSpec] = SPECS
) -> list[CollectorSpec]:
    """Return the collectors that the flags switch on, and of those that they do not name the ones that `is_enabled`.

    Raises:
        UsageError: none is left, or a flag needs a collector that is off.
    """
    selected = []
    for spec in specs:
        switch: bool | None = flags[f"collector.{spec.name}"]
        if switch or (switch is None and not flags["collector.disable_defaults"] and is_enabled(spec)):
            selected.append(spec)
    if not selected:
        file = flags.get("config.file")
        where = f"{file}: key collector: " if file else ""
        raise UsageError(f"{where}no collector is left, expected at least one --collector.NAME")
    names = {spec.name for spec in selected}
    if "runs" not in names:
        needs_runs = {
            "--collector.s3": "s3" in names,
            "--expect.run": flags.get("expect.run"),
            "--compat.finetuning": flags.get("compat.finetuning"),
        }
        for flag, is_given in needs_runs.items():
            if is_given:
                raise UsageError(f"{flag}: expected --collector.runs as well, which shows it")
    return selected


def select_on(node: Node, flags: Mapping[str, Any], specs: Sequence[CollectorSpec] = SPECS) -> list[CollectorSpec]:
    """Return the collectors that would run on this node. Raises as `select`."""
    shared = SharedState()
    return select(flags, lambda spec: spec.enabled(Context(spec.name, node, flags, shared)), specs)


def describe_off(names: Collection[str], flags: Mapping[str, Any], specs: Sequence[CollectorSpec] = SPECS) -> str:
    """Return the collectors that are on by default but not among `names`, each with what it needs."""
    if flags["collector.disable_defaults"]:
        return ""
    off = [spec for spec in specs if spec.needs and spec.name not in names and flags[f"collector.{spec.name}"] is None]
    return ", ".join(f"{spec.name} (needs {spec.needs})" for spec in off)


class CollectorSet:
    """The collectors that `flags` ask for, created but not started.

    Attributes:
        shared: what they share.
        runners: the collectors, in the order of the registry, and the views of them by other names.
        off: those that are on by default and found nothing here, each with what it needs.

    Raises:
        UsageError: the flags ask for what cannot be had.
    """

    def __init__(self, node: Node, flags: Mapping[str, Any], specs: Sequence[CollectorSpec] = SPECS) -> None:
        self.shared = SharedState()
        self.runners: list[CollectorRunner] = []
        selected = select(flags, lambda spec: spec.enabled(Context(spec.name, node, flags, self.shared)), specs)
        names = {spec.name for spec in selected}
        self.off = describe_off(names, flags, specs)
        try:
            for spec in selected:
                context = Context(spec.name, node, flags, self.shared, logs_followed={"runs", "logs"} <= names)
                self.runners.append(spec.create(context))
            if flags["compat.finetuning"]:
                from trainwarden_exporter.finetuning import view  # noqa: PLC0415  # where it is on

                self.runners.append(view.create(list(self.runners), node))
            if flags.get("compat.dcgm"):
                from trainwarden_exporter import dcgm  # noqa: PLC0415  # where it is on

                roster = roster_of(Context("nvidia", node, flags, self.shared), "nvidia")
                self.runners.append(dcgm.create(list(self.runners), node, roster))
        except BaseException:
            for runner in self.runners:
                runner.stop()
            raise
