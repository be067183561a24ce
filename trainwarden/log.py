"""The logger of the library. What handlers of others do about its messages stays out of the training."""

import contextlib
import logging


def protect(name: str = "trainwarden") -> None:
    """Have the logger `name` outlive handlers that raise: a closed stderr, a filter with a bug. Again is fine."""
    logger = logging.getLogger(name)

    def call_handlers(record: logging.LogRecord) -> None:
        # There is nowhere left to say it.
        with contextlib.suppress(Exception):
            logging.Logger.callHandlers(logger, record)

    logger.callHandlers = call_handlers  # type: ignore[method-assign]  # for this logger alone, whoever gets it by name
