"""The members that run, each with what it was made from, so that other flags change only what they concern."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.expected import EXPECTED
from trainwarden_exporter.logs.board import Board
from trainwarden_exporter.members import off_here, wanted
from trainwarden_exporter.noted import Noted
from trainwarden_exporter.registry import KINDS, Kind
from trainwarden_exporter.sampling.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainwarden_exporter.node import Node
    from trainwarden_exporter.sampling.part import Member

log = logging.getLogger(__name__)

# As long as one sample that is being taken may hold up what comes in its place.
END_SECONDS = 10.0


@dataclass(frozen=True)
class Made:
    """A member, and what its wiring was given."""

    member: Member
    node: Node
    board: Board | None
    flags: Noted

    def holds_for(self, node: Node, flags: Mapping[str, Any], board: Board | None) -> bool:
        """Tell whether it would be made just the same from these."""
        return node == self.node and board is self.board and self.flags.holds_for(flags)


class Crew:
    """The members that `flags` ask for; raises `UsageError` if what they say cannot be done."""

    def __init__(self, node: Node, flags: Mapping[str, Any]) -> None:
        self._board = Board()  # the logs are those of the runs
        self._made: dict[str, Made] = {}
        self._present: dict[str, tuple[Node, Noted]] = {}
        self._shown: list[Member] = []  # what the view of finetuning_… shows, kept as one list
        self._view: Member | None = None
        self._node, self._flags = node, flags
        kinds = wanted(node, flags, self._is_present)
        board = self._board_for(kinds)
        self._take(self._make_all(kinds, node, flags, board), node, flags)

    @property
    def members(self) -> list[Member]:
        """Those that run."""
        found = [made.member for made in self._made.values()]
        return [*found, self._view] if self._view else found

    @property
    def off(self) -> str:
        """Those that would run by themselves but found nothing here, each with what it needs."""
        return off_here(self._made, self._flags)

    def follow(self, node: Node, flags: Mapping[str, Any]) -> str:
        """Do what other flags ask for, and return what that was: one line, empty where nothing is to be done.

        Members whose flags are the same are not touched. Raises `UsageError` if what the flags say cannot be done; then
        all is as it was, as it is whatever else is raised.
        """
        view = self._view
        kinds = wanted(node, flags, self._is_present)
        board = self._board_for(kinds)
        kept = {
            kind.name: self._made[kind.name]
            for kind in kinds
            if kind.name in self._made and self._made[kind.name].holds_for(node, flags, board)
        }
        new = [kind for kind in kinds if kind.name not in self._made]
        changed = [kind for kind in kinds if kind.name in self._made and kind.name not in kept]
        gone = [name for name in self._made if name not in {kind.name for kind in kinds}]
        # First those that come in nobody's place: if one cannot be had, nothing has been touched.
        made = self._make_all(new, node, flags, board)
        before = {name: self._made[name] for name in (*gone, *(kind.name for kind in changed))}
        _end(each.member for each in before.values())
        for name in before:
            EXPECTED.put(name, {})  # what it expected, nobody does until it says so again
        try:
            made |= self._make_all(changed, node, flags, board)
            self._take({**kept, **made}, node, flags)
        except Exception:
            _end(each.member for each in made.values())
            self._restore(before)
            raise
        for each in made.values():
            each.member.start()
        if self._view is not None and self._view is not view:
            self._view.start()
        self._node, self._flags = node, flags
        said = (("started", new), ("changed", changed))
        lines = [f"{word} {', '.join(kind.name for kind in some)}" for word, some in said if some]
        return "; ".join([*lines, f"stopped {', '.join(gone)}"] if gone else lines)

    def _board_for(self, kinds: Iterable[Kind]) -> Board | None:
        return self._board if {"runs", "logs"} <= {kind.name for kind in kinds} else None

    def _is_present(self, kind: Kind, node: Node, flags: Mapping[str, Any]) -> bool:
        """Tell whether there is something for it; what it has found once may have been lost, and stays in sight."""
        before = self._present.get(kind.name)
        if kind.name in self._made and before and before[0] == node and before[1].holds_for(flags):
            return True
        noted = Noted(flags)
        answer = kind.wiring.present(node, noted)
        self._present[kind.name] = node, noted
        return answer

    def _make_all(
        self, kinds: Iterable[Kind], node: Node, flags: Mapping[str, Any], board: Board | None
    ) -> dict[str, Made]:
        made: dict[str, Made] = {}
        try:
            for kind in kinds:
                noted = Noted(flags)
                made[kind.name] = Made(kind.wiring.member(node, noted, board), node, board, noted)
        except Exception:
            _end(each.member for each in made.values())
            raise
        return made

    def _take(self, made: Mapping[str, Made], node: Node, flags: Mapping[str, Any]) -> None:
        """Have these, in the order in which they stand on the page, and what shows them by other names."""
        ordered = {kind.name: made[kind.name] for kind in KINDS if kind.name in made}
        before = list(self._shown)
        self._shown[:] = [each.member for each in ordered.values()]
        try:
            view = self._new_view(node) if flags["compat.finetuning"] else None
        except Exception:
            self._shown[:] = before
            raise
        if view is not None and self._view is not None and node.host == self._node.host:
            view = self._view  # it goes on with what it has seen
        elif self._view is not None:
            _end([self._view])
        self._made, self._view = ordered, view

    def _new_view(self, node: Node) -> Member:
        from trainwarden_exporter.finetuning.wiring import finetuning_member  # noqa: PLC0415  # for those who ask for it

        return finetuning_member(self._shown, node)

    def _restore(self, before: Mapping[str, Made]) -> None:
        """Make again, from what they were made from, those that were ended for what could not be had."""
        made = {name: each for name, each in self._made.items() if name not in before}
        for kind in KINDS:
            if kind.name in before:
                try:
                    again = self._make_all([kind], self._node, self._flags, before[kind.name].board)
                except Exception as error:
                    shown = None if isinstance(error, UsageError) else error
                    log.error("collector %s is gone: %s", kind.name, error, exc_info=shown)  # noqa: TRY400  # in one line
                    continue
                made |= again
                again[kind.name].member.start()
        with contextlib.suppress(Exception):  # as it was before
            self._take(made, self._node, self._flags)


def _end(members: Iterable[Member]) -> None:
    """End them, and wait until they hold nothing any more, as long as one that does not hang needs."""
    for member in members:
        member.release()
        member.stop()
        if isinstance(member, Sampler) and not member.join(END_SECONDS):
            log.warning("collector %s hangs and is left behind", member.name)
