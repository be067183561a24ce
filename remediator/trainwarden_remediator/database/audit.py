"""The chain of hashes over the decision log: what was written cannot be changed or left out without being seen.

Each row of the log has the hash of its content and of the row before. Whoever can write the database could compute all
of them anew; that shows against a hash that was noted elsewhere, as in each message to people.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainwarden_remediator.database.schema import about, events

# The row that the chain begins after, as NUMBER:HASH: rows of an older remediator have no hash.
_ANCHOR = "audit: anchor"
_START = "0" * 64
_NEWEST = sa.select(events.c.number, events.c.hash).order_by(events.c.number.desc()).limit(1)


@dataclass(frozen=True)
class Head:
    """The newest row of the chain: its number in the log, and its hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        """Return it as `audit verify --expect` takes it."""
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return what `str` made; raises ValueError."""
        number, _, digest = text.partition(":")
        if not (number.isascii() and number.isdigit()) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError("expected NUMBER:HASH")
        return cls(int(number), digest)


@dataclass(frozen=True)
class Verdict:
    """What a verification found.

    Attributes:
        rows: that the chain holds.
        unchained: older rows, without a hash.
        head: the newest row; None of an empty chain.
        broken: the number of the first row that does not fit, and why; None if all fit.
    """

    rows: int
    unchained: int
    head: Head | None
    broken: tuple[int, str] | None = None


def append(connection: sa.Connection, **values: Any) -> None:
    """Append a row to the decision log, in a transaction that nobody else writes in."""
    before = connection.execute(_NEWEST).one_or_none()
    if before is None or before.hash is None:
        start = Head(0 if before is None else before.number, _START)
        connection.execute(about.delete().where(about.c.key == _ANCHOR))
        connection.execute(about.insert().values(key=_ANCHOR, value=str(start)))
        previous = start.hash
    else:
        previous = before.hash
    connection.execute(events.insert(), {**values, "hash": _hash(previous, values)})


def head(connection: sa.Connection) -> Head | None:
    """Return the newest row of the chain; None where there is none."""
    row = connection.execute(_NEWEST).one_or_none()
    return None if row is None or row.hash is None else Head(row.number, row.hash)


def verify(connection: sa.Connection, expected: Head | None = None) -> Verdict:
    """Verify the chain from its anchor to its end, and that it holds the row `expected`."""
    text = connection.execute(sa.select(about.c.value).where(about.c.key == _ANCHOR)).scalar_one_or_none()
    count = sa.select(sa.func.count()).select_from(events)
    if text is None:
        total = connection.execute(count).scalar_one()
        broken = (1, "the chain has no anchor") if _has_hashes(connection) or expected else None
        return Verdict(0, total, None, broken)
    anchor = Head.parse(text)
    unchained = connection.execute(count.where(events.c.number <= anchor.number)).scalar_one()
    previous, rows, newest, found = anchor.hash, 0, None, expected is None
    query = sa.select(events).where(events.c.number > anchor.number).order_by(events.c.number)
    for row in connection.execute(query):
        number = anchor.number + rows + 1
        if row.number != number:
            return Verdict(rows, unchained, newest, (number, f"it is missing; the next one is {row.number}"))
        if row.hash != _hash(previous, {name: getattr(row, name) for name in _CONTENT}):
            return Verdict(rows, unchained, newest, (number, "it, or the row before, was changed"))
        previous, rows, newest = row.hash, rows + 1, Head(row.number, row.hash)
        if expected is not None and expected.number == row.number:
            if expected.hash != row.hash:
                return Verdict(rows, unchained, newest, (row.number, "it has another hash than was noted elsewhere"))
            found = True
    last = anchor.number + rows
    if (written := _written(connection)) > last:
        return Verdict(rows, unchained, newest, (last + 1, f"{written - last} rows at the end are missing"))
    if not found and expected is not None:
        return Verdict(rows, unchained, newest, (expected.number, "it was noted elsewhere, and is missing"))
    return Verdict(rows, unchained, newest)


_CONTENT = ("incident_id", "time", "state", "detail")


def _hash(previous: str, values: dict[str, Any]) -> str:
    content = json.dumps([previous, *(values[name] for name in _CONTENT)])
    return hashlib.sha256(content.encode()).hexdigest()


def _has_hashes(connection: sa.Connection) -> bool:
    return connection.execute(sa.select(events.c.number).where(events.c.hash.is_not(None)).limit(1)).first() is not None


def _written(connection: sa.Connection) -> int:
    """Return the number of the newest row that was ever written, where the database remembers that."""
    if connection.dialect.name != "sqlite" or not sa.inspect(connection).has_table("sqlite_sequence"):
        return 0
    query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    return connection.execute(query).scalar_one_or_none() or 0
