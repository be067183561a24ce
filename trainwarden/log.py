"""The logger of the library. What handlers of others do about its messages stays out of the training."""

import logging


def protect(name: str = "trainwarden") -> None:
    """Have the logger `name` outlive handlers that raise: a closed stderr, a filter with a bug. Again is fine."""
    logger = logging.getLogger(name)

    def call_handlers(record: logging.LogRecord) -> None:
        try:
            logging.Logger.callHandlers(logger, record)
        except Exception:  # noqa: BLE001, S110  # there is nowhere left to say it
            pass

    logger.callHandlers = call_handlers  # type: ignore[method-assign]  # for this logger alone, whoever gets it by name
