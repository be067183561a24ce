"""The logger of the library, protected from handlers that raise."""

import contextlib
import logging


def protect(name: str = "trainwarden") -> None:
    """Suppress what handlers of logger `name` raise, such as on a closed stderr. May be called again."""
    logger = logging.getLogger(name)

    def call_handlers(record: logging.LogRecord) -> None:
        # There is no other place to report it.
        with contextlib.suppress(Exception):
            logging.Logger.callHandlers(logger, record)

    logger.callHandlers = call_handlers  # type: ignore[method-assign]  # for this logger object alone
