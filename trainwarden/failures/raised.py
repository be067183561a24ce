"""Rebuilds an exception from the last line of a traceback, to classify it like one that was caught."""

import builtins
import re

# `[Errno 2] No such file or directory: '/data/x'`, and what it was moved to behind an arrow.
_ERRNO = re.compile(r"\[Errno (\d{1,5})\] ([^\n]*?)(?:: b?(['\"])([^\n]*?)\3(?: -> [^\n]*)?)?\s*", re.ASCII)


def rebuilt(exception_type: str, message: str) -> BaseException:
    """Return an exception of this type with this message.

    Args:
        exception_type: as Python prints it: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: what follows the colon; the type once more, or nothing, where there was none.
    """
    arguments = () if message in ("", exception_type) else (message,)
    kind = getattr(builtins, exception_type, None)
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if issubclass(kind, OSError) and (said := _ERRNO.fullmatch(message)):
            return OSError(int(said[1]), said[2], said[4])
        try:
            made: BaseException = kind(*arguments)
        except TypeError:
            # Some, such as UnicodeDecodeError, take more arguments than a message.
            pass
        else:
            return made
    # Known by name only: its library may not be installed.
    module, _, name = exception_type.rpartition(".")
    home = module or ("builtins" if kind else "__main__")
    stand_in: type[Exception] = type(name, (Exception,), {"__module__": home})
    return stand_in(*arguments)
