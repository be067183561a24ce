"""The collectors that run: chosen by flags and by what the node has, changed one by one on reload."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden.errors import UsageError
from trainwarden_exporter.core.exchange import RunExchange
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.registry import SPECS
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import CollectorSpec
    from trainwarden_exporter.sampling.task import CollectorRunner

log = logging.getLogger(__name__)

# How long a sample that is being taken may delay the collector that replaces its own.
STOP_SECONDS = 10.0


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
    exchange = RunExchange()
    return select(flags, lambda spec: spec.enabled(Context(spec.name, node, flags, exchange)), specs)


def describe_off(names: Collection[str], flags: Mapping[str, Any], specs: Sequence[CollectorSpec] = SPECS) -> str:
    """Return the collectors that are on by default but not among `names`, each with what it needs."""
    if flags["collector.disable_defaults"]:
        return ""
    off = [spec for spec in specs if spec.needs and spec.name not in names and flags[f"collector.{spec.name}"] is None]
    return ", ".join(f"{spec.name} (needs {spec.needs})" for spec in off)


class _Created(NamedTuple):
    """A running collector, and what it was created from."""

    runner: CollectorRunner
    context: Context


class CollectorSet:
    """The collectors that `flags` ask for, created but not started.

    Raises:
        UsageError: the flags ask for what cannot be had.
    """

    def __init__(self, node: Node, flags: Mapping[str, Any], specs: Sequence[CollectorSpec] = SPECS) -> None:
        self._specs = specs
        self.exchange = RunExchange()
        self._created: dict[str, _Created] = {}
        self._enabled: dict[str, Context] = {}  # from which `enabled` was last evaluated
        self._viewed: list[CollectorRunner] = []  # what the view of finetuning_… reads; one list, updated in place
        self._view: CollectorRunner | None = None
        self._node, self._flags = node, flags
        selected = self._select(node, flags)
        self._adopt(self._create(selected, node, flags, _names(selected)), node, flags)

    @property
    def runners(self) -> list[CollectorRunner]:
        """The running collectors."""
        found = [created.runner for created in self._created.values()]
        return [*found, self._view] if self._view else found

    @property
    def off(self) -> str:
        """The collectors that are on by default and found nothing here, each with what it needs."""
        return describe_off(self._created, self._flags, self._specs)

    def reconfigure(self, node: Node, flags: Mapping[str, Any]) -> str:
        """Change the collectors that other flags concern; return what was done in one line, empty for nothing.

        Raises:
            UsageError: the flags ask for what cannot be had. After this and any other exception all is as before.
        """
        view = self._view
        selected = self._select(node, flags)
        names = _names(selected)
        kept = {
            spec.name: self._created[spec.name]
            for spec in selected
            if spec.name in self._created
            and self._created[spec.name].context.holds_for(self._context(spec.name, node, flags, names))
        }
        new = [spec for spec in selected if spec.name not in self._created]
        changed = [spec for spec in selected if spec.name in self._created and spec.name not in kept]
        gone = [name for name in self._created if name not in names]
        # Create first what replaces nothing: if that fails, nothing has been touched.
        created = self._create(new, node, flags, names)
        replaced = {name: self._created[name] for name in (*gone, *(spec.name for spec in changed))}
        _stop(each.runner for each in replaced.values())
        for name in replaced:
            self.exchange.expected.put(name, {})
        try:
            created |= self._create(changed, node, flags, names)
            self._adopt({**kept, **created}, node, flags)
        except Exception:
            _stop(each.runner for each in created.values())
            self._restore(replaced)
            raise
        for each in created.values():
            each.runner.start()
        if self._view is not None and self._view is not view:
            self._view.start()
        self._node, self._flags = node, flags
        done = [f"started {', '.join(spec.name for spec in new)}"] if new else []
        done += [f"changed {', '.join(spec.name for spec in changed)}"] if changed else []
        done += [f"stopped {', '.join(gone)}"] if gone else []
        return "; ".join(done)

    def _select(self, node: Node, flags: Mapping[str, Any]) -> list[CollectorSpec]:
        return select(flags, lambda spec: self._is_enabled(spec, node, flags), self._specs)

    def _context(self, name: str, node: Node, flags: Mapping[str, Any], names: Collection[str]) -> Context:
        return Context(name, node, flags, self.exchange, logs_followed={"runs", "logs"} <= set(names))

    def _is_enabled(self, spec: CollectorSpec, node: Node, flags: Mapping[str, Any]) -> bool:
        """Return whether it is on by default; a running one stays on, for the device that it found may be lost."""
        context = Context(spec.name, node, flags, self.exchange)
        before = self._enabled.get(spec.name)
        if spec.name in self._created and before and before.holds_for(context):
            return True
        self._enabled[spec.name] = context
        return spec.enabled(context)

    def _create(
        self, specs: Iterable[CollectorSpec], node: Node, flags: Mapping[str, Any], names: Collection[str]
    ) -> dict[str, _Created]:
        created: dict[str, _Created] = {}
        try:
            for spec in specs:
                context = self._context(spec.name, node, flags, names)
                created[spec.name] = _Created(spec.create(context), context)
        except Exception:
            _stop(each.runner for each in created.values())
            raise
        return created

    def _adopt(self, created: Mapping[str, _Created], node: Node, flags: Mapping[str, Any]) -> None:
        """Make these the running collectors, in the order of the registry, and create or stop the view of them."""
        ordered = {spec.name: created[spec.name] for spec in self._specs if spec.name in created}
        before = list(self._viewed)
        self._viewed[:] = [each.runner for each in ordered.values()]
        try:
            view = self._new_view(node) if flags["compat.finetuning"] else None
        except Exception:
            self._viewed[:] = before
            raise
        if view is not None and self._view is not None and node.host == self._node.host:
            view = self._view  # keeps its counts
        elif self._view is not None:
            _stop([self._view])
        self._created, self._view = ordered, view

    def _new_view(self, node: Node) -> CollectorRunner:
        from trainwarden_exporter.finetuning import view  # noqa: PLC0415  # where it is on

        return view.create(self._viewed, node)

    def _restore(self, replaced: Mapping[str, _Created]) -> None:
        """Create again, from the same flags, the collectors that were stopped for those that cannot be created."""
        created = {name: each for name, each in self._created.items() if name not in replaced}
        for spec in self._specs:
            if spec.name in replaced:
                try:
                    again = self._create([spec], self._node, self._flags, self._created)
                except Exception as error:
                    shown = None if isinstance(error, UsageError) else error
                    log.error("collector %s is gone: %s", spec.name, error, exc_info=shown)  # noqa: TRY400  # in one line
                    continue
                created |= again
                again[spec.name].runner.start()
        with contextlib.suppress(Exception):  # as it was before
            self._adopt(created, self._node, self._flags)


def _names(specs: Iterable[CollectorSpec]) -> frozenset[str]:
    return frozenset(spec.name for spec in specs)


def _stop(runners: Iterable[CollectorRunner]) -> None:
    """Stop them, and wait until they hold nothing any more; leave one that hangs behind after `STOP_SECONDS`."""
    for runner in runners:
        runner.release()
        runner.stop()
        if isinstance(runner, Sampler) and not runner.join(STOP_SECONDS):
            log.warning("collector %s hangs and is left behind", runner.name)
