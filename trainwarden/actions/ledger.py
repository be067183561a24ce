"""What was started for which event, durably: claimed before the start, and never twice."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# waiting: claimed, and certainly not started; starting: about to be started, or started.
WAITING, STARTING, RUNNING = "waiting", "starting", "running"
# Ends. in_doubt: the service died while it was started or ran; refused: a value was not of its
# type, or the configuration no longer has this command.
SUCCEEDED, FAILED, TIMED_OUT, INTERRUPTED = "succeeded", "failed", "timed_out", "interrupted"
SUBMITTED, IN_DOUBT, REFUSED, NOTE = "submitted", "in_doubt", "refused", "noted"
# The first word of a command line that is run by sbatch; every other begins with an absolute path.
SBATCH = "sbatch"
# Of one action; what comes beyond is refused, and said.
MAX_WAITING = 1000
# Notes of one signal in one attempt: a storm of the same error is no news.
MAX_NOTES = 8
_KEPT_SECONDS = 90 * 86400.0

_TABLES = """
CREATE TABLE IF NOT EXISTS claims (
    id TEXT PRIMARY KEY, time REAL NOT NULL, action TEXT NOT NULL, run_id TEXT NOT NULL, cause TEXT NOT NULL,
    argv TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL, output TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS claims_by_state ON claims (state, action);
CREATE TABLE IF NOT EXISTS audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
    detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS positions (path TEXT PRIMARY KEY, time REAL NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value REAL NOT NULL);
"""


@dataclass(frozen=True)
class Claim:
    """One command for one event.

    Attributes:
        id: the same for the same event and action, whenever it is computed.
        time: when it was claimed, Unix seconds.
        action: its name; empty for a note.
        run_id: of the run.
        cause: kind, name, text and fields of the event.
        argv: the command line.
        state: one of the states above.
        detail: why it ended so; of a note, the attempt.
        output: the file with what it printed; empty if there is none.
    """

    id: str
    time: float
    action: str
    run_id: str
    cause: Mapping[str, Any] = field(default_factory=dict)
    argv: Sequence[str] = ()
    state: str = WAITING
    detail: str = ""
    output: str = ""

    @property
    def submits(self) -> bool:
        """Whether the command submits a job."""
        return list(self.argv[:1]) == [SBATCH]

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**vars(self), "cause": dict(self.cause), "argv": list(self.argv)}


def claim_id(*parts: str) -> str:
    """Return the id of what these texts describe."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:20]


class Ledger:
    """The database of one service, locked for it.

    Args:
        folder: of the state; created, for this user alone.
        reading: only to be read, beside a running service.

    Attributes:
        since: when the first service of this folder began; what is older starts nothing. Unix seconds.
        is_new: no round of the service was finished yet.

    Raises:
        UsageError: another service uses the folder, or it cannot be used.
    """

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self.folder = folder
        self._lock = -1
        try:
            if not reading:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif not (folder / "actions.db").is_file():
                raise UsageError(f"--state-dir {folder}: there is no actions.db, expected the folder of a service")
            address = f"{(folder / 'actions.db').absolute().as_uri()}?mode={'ro' if reading else 'rwc'}"
            self._database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
            if not reading:
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=FULL")
                self._database.executescript(_TABLES)
                self._database.execute("INSERT OR IGNORE INTO facts VALUES ('since', ?)", (time.time(),))
            self.since = self._fact("since") or 0.0
            self.is_new = self._fact("began") is None
        except BlockingIOError:
            raise UsageError(f"--state-dir {folder}: another service uses it, expected one of its own") from None
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"--state-dir {folder}: {error}, expected a folder for the database") from None

    def close(self) -> None:
        """Close the database and unlock the folder."""
        self._database.close()
        if self._lock >= 0:
            os.close(self._lock)

    def _fact(self, name: str) -> float | None:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else float(row[0])

    def finish_round(self) -> None:
        """Record that what was there at the first start has been passed."""
        if self.is_new:
            self._database.execute("INSERT OR IGNORE INTO facts VALUES ('began', ?)", (time.time(),))
            self.is_new = False

    def position(self, path: str) -> dict[str, Any] | None:
        """Return how far a file was read; None if it is new."""
        row = self._database.execute("SELECT state FROM positions WHERE path = ?", (path,)).fetchone()
        state = None if row is None else json.loads(row[0])
        return state if isinstance(state, dict) else None

    def take(self, claims: Sequence[Claim], path: str, position: Mapping[str, Any]) -> list[Claim]:
        """Claim what was found in a file and store how far it was read, both or neither; return what is new."""
        new = []
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for claim in claims:
                entry = claim
                if claim.state == NOTE and self._noted(claim) >= MAX_NOTES:
                    continue
                if claim.state == WAITING and self._waiting(claim.action) >= MAX_WAITING:
                    detail = f"{MAX_WAITING} of this action wait already"
                    entry = Claim(**{**vars(claim), "state": REFUSED, "detail": detail})
                if self._insert(entry):
                    new.append(entry)
            row = (path, time.time(), json.dumps(position))
            self._database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", row)
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        return new

    def _waiting(self, action: str) -> int:
        query = "SELECT count(*) FROM claims WHERE state = ? AND action = ?"
        return int(self._database.execute(query, (WAITING, action)).fetchone()[0])

    def _insert(self, claim: Claim) -> bool:
        row = (
            claim.id, claim.time, claim.action, claim.run_id, json.dumps(claim.cause), json.dumps(list(claim.argv)),
            claim.state, claim.detail, claim.output,
        )  # fmt: skip
        done = self._database.execute("INSERT OR IGNORE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        if done.rowcount:
            self._note(claim.id, claim.state, claim.detail)
        return bool(done.rowcount)

    def _note(self, claim: str, state: str, detail: str) -> None:
        values = (time.time(), claim, state, detail)
        self._database.execute("INSERT INTO audit (time, id, state, detail) VALUES (?, ?, ?, ?)", values)

    def change(self, claim: Claim, state: str, detail: str = "", output: str = "") -> None:
        """Store the new state of a claim; it is on the disk when this returns."""
        self._database.execute("BEGIN IMMEDIATE")
        update = "UPDATE claims SET state = ?, detail = ?, output = CASE ? WHEN '' THEN output ELSE ? END WHERE id = ?"
        self._database.execute(update, (state, detail, output, output, claim.id))
        self._note(claim.id, state, detail)
        self._database.execute("COMMIT")

    def recover(self) -> list[Claim]:
        """Return the claims of which it is unknown whether they ran; from now on they are in doubt."""
        doubtful = list(self.claims(states=(STARTING, RUNNING)))
        for claim in doubtful:
            self.change(claim, IN_DOUBT, "the service ended while it was started or ran; it is not run again")
        return doubtful

    def _noted(self, claim: Claim) -> int:
        """Return how many notes there are of the same signal in the same attempt."""
        query = "SELECT count(*) FROM claims WHERE state = ? AND run_id = ? AND action = ? AND detail = ?"
        row = self._database.execute(query, (NOTE, claim.run_id, claim.action, claim.detail)).fetchone()
        return int(row[0])

    def claims(self, *, states: Sequence[str] = (), run_id: str | None = None, limit: int = -1) -> Iterator[Claim]:
        """Yield claims, the oldest first."""
        where, values = ["1"], list[Any]()
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        if run_id is not None:
            where.append("run_id = ?")
            values.append(run_id)
        # The parts of the query are the literals above.
        query = f"SELECT * FROM claims WHERE {' AND '.join(where)} ORDER BY time, rowid LIMIT ?"  # noqa: S608
        for row in self._database.execute(query, (*values, limit)).fetchall():
            yield Claim(row[0], row[1], row[2], row[3], json.loads(row[4]), json.loads(row[5]), *row[6:])

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many commands there are by action and state. None is ever removed."""
        query = "SELECT action, state, count(*) FROM claims WHERE state != ? GROUP BY action, state"
        return {(action, state): count for action, state, count in self._database.execute(query, (NOTE,))}

    def history(self, claim: Claim) -> list[dict[str, Any]]:
        """Return the states of a claim, each with its time, Unix seconds."""
        query = "SELECT time, state, detail FROM audit WHERE id = ? ORDER BY number"
        return [
            {"time": when, "state": state, "detail": detail}
            for when, state, detail in self._database.execute(query, (claim.id,))
        ]

    def prune_positions(self) -> None:
        """Forget how far files were read that are gone for long. Claims stay: they keep an event from a second run."""
        old = time.time() - _KEPT_SECONDS
        rows = self._database.execute("SELECT path FROM positions WHERE time < ?", (old,)).fetchall()
        for (path,) in rows:
            if not os.path.exists(path):  # noqa: PTH110  # a text out of the database
                self._database.execute("DELETE FROM positions WHERE path = ?", (path,))
