"""The logger of the library, protected from handlers that raise, and from those that do not return."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue

_JOIN_SECONDS = 0.2

# Where threads leave what they log, by the number of the thread.
_relays: dict[int, LogRelay] = {}


def protect(name: str = "trainwarden") -> None:
    """Suppress what handlers of logger `name` raise, such as on a closed stderr. May be called again."""
    logger = logging.getLogger(name)

    def call_handlers(record: logging.LogRecord) -> None:
        if relay := _relays.get(threading.get_ident()):
            relay.put(record)
            return
        # There is no other place to report it.
        with contextlib.suppress(Exception):
            logging.Logger.callHandlers(logger, record)

    logger.callHandlers = call_handlers  # type: ignore[method-assign]  # for this logger object alone


class LogRelay:
    """Passes what one thread logs to the handlers, from a thread of its own.

    A handler has a lock. A thread that a signal handler waits for must not wait for that lock: the frame that the
    signal interrupted may hold it.
    """

    def __init__(self) -> None:
        self._records: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trainwarden-log", daemon=True)

    def open(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: no more threads can be started.
        """
        self._thread.start()

    def put(self, record: logging.LogRecord) -> None:
        """Leave a record for the handlers."""
        self._records.put(record)

    @contextlib.contextmanager
    def relaying(self) -> Iterator[None]:
        """Leave here what the current thread logs in this block."""
        thread = threading.get_ident()
        _relays[thread] = self
        try:
            yield
        finally:
            del _relays[thread]

    def close(self) -> None:
        """Pass on the remaining records in this thread, and stop the other thread, which may wait for a handler."""
        with contextlib.suppress(Empty):
            while True:
                _emit(self._records.get_nowait())
        self._records.put(None)
        # The interpreter stops running threads by force at its end, which needs memory that may be gone.
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while record := self._records.get():
            _emit(record)


def _emit(record: logging.LogRecord | None) -> None:
    if record is not None:
        logging.getLogger(record.name).callHandlers(record)
