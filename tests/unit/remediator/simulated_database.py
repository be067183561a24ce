"""The database of simulation.py: it outlives the process alone, and what nobody has changed is read once."""

from __future__ import annotations

import functools
import math
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database.database import FILE, open_database
from trainwarden_remediator.incidents.incident import Alert, Incident
from trainwarden_remediator.store.store import Store

# Under which a connection notes the tables that its transaction has changed.
_CHANGED = "changed"


class SimulatedDatabase:
    """The database in a folder, opened as the remediator does; a commit need not reach the disk.

    Attributes:
        engine: of the database.
        commits: the number of commits by `engine` that may have changed a table, by its name.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / FILE).exists():
            (folder / FILE).write_bytes(_empty_database())
        self.commits: Counter[str] = Counter()
        engine = open_database(folder)
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        sa.event.listen(engine, "commit", lambda connection: self.commits.update(connection.info.pop(_CHANGED, ())))
        sa.event.listen(engine, "rollback", lambda connection: connection.info.pop(_CHANGED, None))
        engine.dispose()
        # SQL that was compiled once serves all databases of the tests.
        engine.dialect, compiled = _compiler(engine)
        self.engine = engine.execution_options(compiled_cache=compiled)
        self._file = sqlite3.connect(folder / FILE)
        self._version, self._known = self._data_version(), 0

    def notice_others(self) -> bool:
        """Return whether somebody has committed by another connection since the last call.

        That is not seen where `engine` has committed, too.
        """
        version, commits = self._data_version(), self.commits.total()
        others = version != self._version and commits == self._known
        self._version, self._known = version, commits
        return others

    def _data_version(self) -> object:
        return self._file.execute("PRAGMA data_version").fetchone()  # changes with each commit

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self.engine.dispose()


_COMPILER: list[tuple[sa.Dialect, dict[Any, Any]]] = []


def _compiler(engine: sa.Engine) -> tuple[sa.Dialect, dict[Any, Any]]:
    if not _COMPILER:
        for name in ("do_execute", "do_executemany"):
            sa.event.listen(engine.dialect, name, _note_change)
        _COMPILER.append((engine.dialect, {}))
    return _COMPILER[0]


def _note_change(_cursor: object, _statement: str, _parameters: object, context: Any) -> None:
    """Note which table a statement changes; it is carried out after that."""
    if context.isinsert or context.isupdate or context.isdelete:
        context.root_connection.info.setdefault(_CHANGED, set()).add(context.invoked_statement.table.name)


@functools.cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        open_database(Path(folder)).dispose()
        return (Path(folder) / FILE).read_bytes()


# The reads of a store, and the tables that each rests on.
READS: dict[str, tuple[str, ...]] = {
    "pending": ("alerts",),
    "open_incidents": ("incidents",),
    "escalations": ("incidents",),
    "incident": ("incidents",),
    "of_run": ("incidents",),
    "of_job": ("incidents",),
    "past_restarts": ("incidents",),
    "adoptions.restarts": ("incidents", "about"),
    "adoptions.adopted": ("about",),
    "decided": ("incidents", "events"),
    "suspects_of": ("facts",),
    "answers.approved": ("approvals",),
    "answers.vetoed": ("approvals",),
    "answers.approved_against_facts": ("incidents", "approvals"),
    "answers.veto": ("incidents", "approvals"),
    "calls.of_job": ("calls",),
    "exclusions.of_scheduler": ("exclusions",),
    "switches.storm": ("switches",),
    "switches.storms": ("switches",),
    "switches.resumed": ("switches",),
}


class Memory:
    """Answers the reads of a store from memory, as long as nobody has changed the tables that they rest on.

    Most seconds of a simulation change nothing: to read everything again takes most of its time.
    """

    def __init__(self, store: Store, database: SimulatedDatabase) -> None:
        self._database = database
        self._looks = True
        self._known: dict[object, tuple[object, Any]] = {}
        for name, tables in READS.items():
            *of_part, method = name.split(".")
            part = functools.reduce(getattr, of_part, store)
            setattr(part, method, self._remembered(name, tables, getattr(part, method)))
        self._observe_anew = store.observe
        store.observe = self._observe  # type: ignore[method-assign]
        self._proposals_since = store.proposals_since
        store.proposals_since = self._proposals  # type: ignore[method-assign]
        self._read_frozen = store.switches.frozen
        self._frozen_while_the_same = self._remembered("frozen", ("switches",), store.switches.frozen)
        self._freezes_end = self._remembered("freezes end", ("switches",), self._read_ends)
        store.switches.frozen = self._frozen  # type: ignore[method-assign]

    def look(self) -> None:
        """Forget everything where somebody has committed by another connection since the last look."""
        if self._database.notice_others():
            self._known.clear()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Look before and after, but not within, where nobody else commits."""
        self.look()
        self._looks = False
        try:
            yield
        finally:
            self._looks = True
            self.look()

    def _remembered(self, name: str, tables: Sequence[str], read: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*args: object) -> Any:
            version = self._version(*tables)
            known = self._known.get((name, args))
            if known is None or known[0] != version:
                known = self._known[name, args] = version, read(*args)
            found = known[1]
            return found.copy() if isinstance(found, (list, dict, set)) else found

        return remembered

    def _version(self, *tables: str) -> object:
        if self._looks:
            self.look()
        commits = self._database.commits
        return commits[tables[0]] if len(tables) == 1 else [commits[each] for each in tables]

    def _observe(self, firing: Sequence[Alert]) -> None:
        """Store nothing anew that was stored when nobody has changed alerts since."""
        known = self._version("alerts"), firing
        if self._known.get("observed") != known:
            self._observe_anew(firing)
            self._known["observed"] = self._version("alerts"), list(firing)

    def _frozen(self, run_id: str) -> str | None:
        """Read anew where time alone may end a freeze."""
        found: str | None = (self._read_frozen if self._freezes_end() else self._frozen_while_the_same)(run_id)
        return found

    def _read_ends(self) -> bool:
        with self._database.engine.begin() as connection:
            ending = sa.text("SELECT 1 FROM switches WHERE name = 'freeze' AND until IS NOT NULL")
            return connection.execute(ending).first() is not None

    def _proposals(self, moment: float) -> list[Incident]:
        """Read anew where one that was found before is too old now, or the clock has gone back."""
        version, (since, found) = self._known.get("proposals", (None, (math.inf, [])))
        dates = [each.created if each.committed is None else each.committed for each in found]
        if version != self._version("incidents") or moment < since or any(date <= moment for date in dates):
            found = self._proposals_since(moment)
        self._known["proposals"] = self._version("incidents"), (moment, found)
        return list(found)
