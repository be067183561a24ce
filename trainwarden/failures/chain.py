"""The chain of an exception: its causes, and the exceptions that were being handled when it was raised."""

from __future__ import annotations

# Imported by shell commands, whose start-up time does not allow `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# A longer chain, or a larger group, is cyclic.
_MOST_LINKS = 100


def attribute(exc: BaseException, name: str) -> Any:
    """Return an attribute of an exception of any type; None where it is missing or raises."""
    try:
        return getattr(exc, name, None)
    except Exception:  # noqa: BLE001  # a property of foreign code
        return None


def text_of(exc: BaseException, limit: int) -> str:
    """Return the exception's message; if longer than `limit` characters, its beginning and its end."""
    try:
        # A subclass of str may override slicing and comparison; make it a plain one.
        text = str.__str__(str(exc))
    except BaseException:  # noqa: BLE001  # foreign code, which may even exit
        return ""
    return shortened(text, limit)


def shortened(text: str, limit: int) -> str:
    """Return the text; if longer than `limit` characters, its beginning and its end."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n{text[-limit // 2 :]}"


def causes(exc: BaseException) -> list[BaseException]:
    """Return the exception and its explicit causes (`raise … from`, the members of a group), the deepest last."""
    return _walk(exc, None, _explicit)


def contexts(exc: BaseException, ambient: BaseException | None = None) -> list[BaseException]:
    """Return the exception and its causes and contexts, the nearest first.

    Args:
        exc: where to begin.
        ambient: an exception that was being handled before the call that raised `exc`, which it did not cause.
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
    # Ray passes the exception of a task in an attribute.
    if "RayTaskError" in names:
        yield attribute(link, "cause")
    # Matched by name: the type is built in from Python 3.11 on, and from a package before.
    if "BaseExceptionGroup" in names:
        members = attribute(link, "exceptions")
        yield from members[:_MOST_LINKS] if type(members) in (list, tuple) else ()


def _handled(link: BaseException) -> list[BaseException]:
    context = attribute(link, "__context__")
    hidden = attribute(link, "__suppress_context__")
    return [context] if isinstance(context, BaseException) and not hidden else []
