"""What led to an exception: its causes, and what was being handled when it was raised."""

from __future__ import annotations

from trainwarden.failures.messages import shortened

# Shell commands need this and have no time to load `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# A chain that is longer, or a group that holds more, is a loop of the program's own.
_MOST_LINKS = 100


def attribute(exc: BaseException, name: str) -> Any:
    """An attribute of an exception of whatever making; None where it has none or cannot give it."""
    try:
        return getattr(exc, name, None)
    except Exception:  # noqa: BLE001  # the property of a stranger
        return None


def text_of(exc: BaseException, limit: int) -> str:
    """The exception's message; of one longer than `limit` characters its beginning and its end."""
    try:
        # A subclass of str may do as it likes when it is cut or compared; this makes it a plain one.
        text = str.__str__(str(exc))
    except BaseException:  # noqa: BLE001  # the __str__ of a stranger, which may even exit
        return ""
    return shortened(text, limit)


def causes(exc: BaseException) -> list[BaseException]:
    """The exception and its explicit causes (`raise … from`, the members of a group), the deepest last."""
    return _walk(exc, None, _explicit)


def contexts(exc: BaseException, ambient: BaseException | None = None) -> list[BaseException]:
    """The exception and all that led to it, also what merely was being handled; the nearest first.

    Args:
        exc: where to begin.
        ambient: what was being handled before the call that raised it, and so has no part in it.
    """
    return _walk(exc, ambient, lambda link: [*_explicit(link), *_handled(link)])


def _walk(
    exc: BaseException, until: BaseException | None, further: Callable[[BaseException], list[BaseException]]
) -> list[BaseException]:
    found: list[BaseException] = []
    seen = {id(until)}
    waiting = [exc]
    while waiting and len(found) < _MOST_LINKS:
        link = waiting.pop(0)
        if id(link) not in seen:
            seen.add(id(link))
            found.append(link)
            waiting += further(link)
    return found


def _explicit(link: BaseException) -> list[BaseException]:
    return [cause for cause in _given(link) if isinstance(cause, BaseException)]


def _given(link: BaseException) -> Iterator[Any]:
    yield attribute(link, "__cause__")
    names = {base.__name__ for base in type(link).__mro__}
    # Ray hands the exception of a task on in an attribute.
    if "RayTaskError" in names:
        yield attribute(link, "cause")
    # Known by name: the type itself is there from Python 3.11 on, and from a package before.
    if "BaseExceptionGroup" in names:
        members = attribute(link, "exceptions")
        yield from members[:_MOST_LINKS] if type(members) in (list, tuple) else ()


def _handled(link: BaseException) -> list[BaseException]:
    context = attribute(link, "__context__")
    hidden = attribute(link, "__suppress_context__")
    return [context] if isinstance(context, BaseException) and not hidden else []
