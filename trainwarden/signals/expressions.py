r"""Expressions that are searched in bounded time: their alternatives, with bounded repeats, and how far each can see.

A shipped pattern may have `\d+` and `.*`; what is run has a limit for each repeat. Every alternative is searched by
itself, near the texts that it requires, so that a hit of one text costs the time of one alternative.
"""

import re
from typing import Any

from trainwarden.signals.required import UNLIMITED, inner_items, parsed

# Most repeats of one item where the pattern has + or *: digits, spaces, letters of words, other sets.
DIGITS, SPACES, LETTERS, ANYTHING = 20, 40, 80, 200
# An expression that can see further is wrong: a search costs at least as much for each text that is found.
REACH_LIMIT = 2048

_ZERO_WIDTH = ("ASSERT", "ASSERT_NOT", "AT")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_TOKEN = re.compile(
    r"(?P<item>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<repeat>[*+]|\{(?P<least>\d+),\})|\{\d*,\d+\}|(?P<other>.)",
    re.DOTALL,
)
_LIMITED = re.compile(r"\{\d*,\d*\}")
_GAP = re.compile(r"\.\{0,\d+\}\(\?:")
_MOST = {".": 300, r"\d": DIGITS, "[0-9]": DIGITS, r"\s": SPACES, " ": SPACES, r"\w": LETTERS}


def bounded(pattern: str) -> str:
    """Return the pattern with a limit for every repeat that has none. It must not be verbose."""
    parts, item = [], ""
    for token in _TOKEN.finditer(pattern):
        # Behind another repeat it is a part of that: possessive.
        if token["repeat"] and item not in ("", "(", "|", "?", "*", "+") and not _LIMITED.fullmatch(item):
            least = token["least"] or ("1" if token["repeat"] == "+" else "0")
            parts.append(f"{{{least},{max(int(least), _MOST.get(item, ANYTHING))}}}")
        else:
            parts.append(token[0])
        item = token[0]
    return "".join(parts)


def alternatives(pattern: str) -> tuple[str, ...]:
    """Return patterns of which one matches wherever `pattern` does: what stands between its outermost bars."""
    opening, inner, closing = _opened(pattern)
    return tuple(f"{opening}{part}{closing}" for part in _split(inner))


def after_gap(pattern: str) -> tuple[str, str, tuple[str, ...]]:
    """Return what stands before the first group that follows a gap, what stands behind it, and its alternatives.

    `a.{0,80}(?:b|c)` can be searched near b for one, and near c for the other. No alternatives: there is no such group.
    """
    depth = 0
    for token in _TOKEN.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        gap = _GAP.match(pattern, token.start()) if token[0] == "." and not depth else None
        if gap is not None:
            end = _closing(pattern, gap.end() - 3)
            if not re.match(r"[*+?{]", pattern[end + 1 :]):
                return pattern[: gap.end() - 3], pattern[end + 1 :], tuple(_split(pattern[gap.end() : end]))
    return "", "", ()


def sees_digits(pattern: str) -> bool:
    r"""Return whether it matters which digits a text has, not only where: `[1-9]` and `28` do, `\d+` does not."""
    return _sees_digits(parsed(pattern))


def _opened(pattern: str) -> tuple[str, str, str]:
    """Return a pattern without the group around all of it, and without flags: they belong to each alternative."""
    opening, inner, closing = "", pattern, ""
    while (group := re.match(r"\(\?(?:[a-zA-Z]+\)|:|P<\w+>)", inner)) is not None:
        if group[0].endswith(")"):
            opening, inner = opening + group[0], inner[group.end() :]
        elif _closing(inner, 0) == len(inner) - 1:
            opening, inner, closing = opening + group[0], inner[group.end() : -1], ")" + closing
        else:
            break
    return opening, inner, closing


def _sees_digits(items: Any) -> bool:
    for operation, argument in items:
        if str(operation) in ("LITERAL", "NOT_LITERAL") and chr(argument).isdigit():
            return True
        if str(operation) == "IN" and any(map(_is_some_digits, argument)):
            return True
        if any(map(_sees_digits, inner_items(operation, argument))):
            return True
    return False


def _is_some_digits(member: Any) -> bool:
    """Return whether a member of a set stands for some digits, and not for all."""
    operation, argument = str(member[0]), member[1]
    if operation == "LITERAL":
        return chr(argument).isdigit()
    return (
        operation == "RANGE"
        and any(argument[0] <= digit <= argument[1] for digit in range(48, 58))
        and not (argument[0] <= 48 and argument[1] >= 57)
    )


def reach_of(pattern: str) -> int | None:
    """Return the most bytes that a match and what it looks ahead at can span; None where there is no bound.

    Raises re.error if the pattern is invalid.
    """
    return _of_sequence(parsed(pattern), {})


def _closing(pattern: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth = 0
    for token in _TOKEN.finditer(pattern, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if not depth:
            return token.start()
    return -1


def _split(pattern: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "|" and not depth:
            parts.append(pattern[start : token.start()])
            start = token.end()
    return [*parts, pattern[start:]]


def _of_sequence(items: Any, groups: dict[int, int | None]) -> int | None:
    """Return the reach of items one after the other; `groups` takes the reach of each group."""
    matched = seen = 0
    for operation, argument in items:
        reach = _of_item(str(operation), argument, groups)
        if reach is None:
            return None
        seen = max(seen, matched + reach)
        if str(operation) not in _ZERO_WIDTH:
            matched += reach
    return seen


def _of_item(operation: str, argument: Any, groups: dict[int, int | None]) -> int | None:
    if operation == "LITERAL":
        return len(chr(argument).encode())
    if operation in ("NOT_LITERAL", "ANY", "ANY_ALL", "IN", "AT"):
        return 1  # `$` and `\b` look at the next byte
    if operation == "BRANCH":
        reaches = [_of_sequence(branch, groups) for branch in argument[1]]
        return None if None in reaches else max(reach for reach in reaches if reach is not None)
    if operation in _REPEATS:
        _, most, item = argument
        reach = _of_sequence(item, groups)
        return None if reach is None or most >= UNLIMITED else int(most) * reach
    if operation in ("ASSERT", "ASSERT_NOT"):
        direction, item = argument
        return _of_sequence(item, groups) if direction > 0 else 0
    if operation == "SUBPATTERN":
        reach = groups[argument[0]] = _of_sequence(argument[3], groups)
        return reach
    if operation == "GROUPREF":
        return groups.get(argument)
    return _of_sequence(argument, groups) if operation == "ATOMIC_GROUP" else None
