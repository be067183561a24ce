"""Transactions on the database, and whether it can be written at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from trainwarden_remediator.database.database import file_of, reading, set_about
from trainwarden_remediator.observe.world import Clock

# A row that is written to see that the database can be, and how often where nothing else is written.
_ALIVE, _ALIVE_SECONDS = "alive", 10.0
# What is written after a failure is as large as a large webhook: a few bytes may fit where that does not.
_BALLAST_BYTES = 256 * 1024


class Transactions:
    """Begins transactions, for any thread; `crashpoint` is called with a name around every commit of a writing one.

    Attributes:
        is_writable: whether the last attempt to store something succeeded; `check_writable` tries again.
    """

    def __init__(self, engine: sa.Engine, clock: Clock, crashpoint: Callable[[str], None]) -> None:
        self._engine = engine
        self._reading = reading(engine)
        self._clock = clock
        self._crashpoint = crashpoint
        self._turn = threading.Lock()
        # Raises DatabaseUnusable where the file is another one now, or damaged.
        self._check_file = file_of(engine).check
        self._written = clock.monotonic()
        self.is_writable = True

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Begin one that only reads: it waits for no writer, and none waits for it."""
        return self._reading.begin()

    @contextmanager
    def writing(self, name: str) -> Iterator[sa.Connection]:
        """Begin one that stores something, and commit it at the end."""
        self._check_file()
        self._crashpoint(f"{name}: before")
        # SQLite would try again every now and then, and in no order; threads of this process wait in turn.
        with self._turn, self._written_down() as connection:
            yield connection
            self._crashpoint(f"{name}: before commit")
        self._crashpoint(f"{name}: after commit")

    @contextmanager
    def _written_down(self) -> Iterator[sa.Connection]:
        """Commit the statements of the caller, which holds `_turn`, and note whether that succeeds."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:  # an answer of a database that works
            raise
        except SQLAlchemyError:
            self.is_writable = False
            raise
        self._written = self._clock.monotonic()

    def check_writable(self) -> None:
        """Raise an error where nothing can be stored; a loop that only reads would find out too late.

        A row is really written, as a transaction without a change succeeds on a full disk: at once after a failure,
        else where nothing has been written for some seconds.
        """
        self._check_file()
        with self._turn:
            if not self.is_writable:
                with self._written_down() as connection:
                    set_about(connection, _ALIVE, "0" * _BALLAST_BYTES)
            elif self._clock.monotonic() - self._written < _ALIVE_SECONDS:
                return
            with self._written_down() as connection:
                set_about(connection, _ALIVE, str(self._clock.now()))
            self.is_writable = True
