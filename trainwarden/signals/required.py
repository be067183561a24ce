"""The texts that every match of a regular expression must contain.

A scanner uses them to skip records without running the expression. The result is a set of which at least one occurs in
any match; None where there is no such set.
"""

import math
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as codes  # type: ignore[attr-defined]  # the parser has no public name
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as codes
    import sre_parse as parser

# Limits: texts that a run of characters expands to, texts in all, and the length below which a text is everywhere.
ALTERNATIVES = 64
MOST = 512
SHORTEST = 3
LONG = 14

# Texts of every other log line select nothing.
COMMON = frozenset((
    "actor", "batch", "cache", "checkpoint", "code", "config", "cuda", "data", "dataset", "debug", "epoch", "error",
    "exit", "fail", "failed", "file", "found", "global_step", "gradient", "grad_norm", "iter", "iteration", "loss",
    "memory", "message", "metadata", "missing", "model", "module", "nccl", "node", "norm", "output", "parameter",
    "path", "port", "process", "rank", "saving", "shard", "start", "status", "step", "task", "tensor", "time",
    "timeout", "timer", "token", "train", "training", "warning", "weight", "worker", "mlx5", "unexpected",
))  # fmt: skip

Texts = frozenset[str]


@dataclass(frozen=True)
class Required:
    """Texts of which each match contains one; `caseless`: in any mixture of upper and lower case (texts are lower)."""

    texts: tuple[str, ...]
    caseless: bool = False


def required_texts(pattern: str) -> Required | None:
    """Return the texts required by `pattern`; None if unknown. Raises re.error if it is invalid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = parser.parse(pattern)
    caseless = bool(parsed.state.flags & re.IGNORECASE)
    if not caseless and _has_scoped_caselessness(parsed):
        return None
    if parsed.state.flags & re.VERBOSE and parsed.state.flags & re.LOCALE:
        return None
    texts = _best(*_walk(parsed))
    if texts is None:
        return None
    if caseless:
        if not all(text.isascii() for text in texts):
            return None
        texts = frozenset(text.lower() for text in texts)
    return Required(tuple(sorted(texts)), caseless)


def _has_scoped_caselessness(items: Any) -> bool:
    for operation, argument in items:
        if operation is codes.SUBPATTERN and argument[1] & re.IGNORECASE:
            return True
        if any(_has_scoped_caselessness(inner) for inner in _inner(operation, argument)):
            return True
    return False


def _inner(operation: Any, argument: Any) -> list[Any]:
    if operation is codes.SUBPATTERN:
        return [argument[3]]
    if operation is codes.BRANCH:
        return list(argument[1])
    if operation in _REPEATS:
        return [argument[2]]
    if operation in (codes.ASSERT, codes.ASSERT_NOT):
        return [argument[1]]
    return [argument] if str(operation) == "ATOMIC_GROUP" else []


_REPEATS = tuple(
    getattr(codes, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(codes, name)
)


def _walk(items: Any) -> tuple[Texts | None, list[Texts]]:
    """Return the only texts that the whole can be (None if too many or unknown), and sets of which each is required."""
    whole: Texts | None = frozenset({""})
    run: Texts = frozenset({""})
    found: list[Texts] = []
    for operation, argument in items:
        exact, inside = _step(operation, argument)
        found.extend(inside)
        joined = _join(run, exact)
        if joined is None or (exact is not None and len(exact) > 1):
            found.append(run)
        run = joined or exact or frozenset({""})
        whole = None if whole is None else _join(whole, exact)
    found.append(run)
    return whole, found


def _step(operation: Any, argument: Any) -> tuple[Texts | None, list[Texts]]:
    if operation is codes.LITERAL:
        return frozenset({chr(argument)}), []
    if operation is codes.AT:
        return frozenset({""}), []
    if operation in (codes.ASSERT, codes.ASSERT_NOT):
        return frozenset({""}), []
    if operation is codes.IN:
        return _members(argument), []
    if operation is codes.SUBPATTERN:
        return _walk(argument[3])
    if str(operation) == "ATOMIC_GROUP":
        return _walk(argument)
    if operation is codes.BRANCH:
        return _branches(argument[1])
    if operation in _REPEATS:
        return _repeated(*argument)
    return None, []


def _members(items: Any) -> Texts | None:
    if len(items) > 4 or any(operation is not codes.LITERAL for operation, _ in items):
        return None
    texts = frozenset(chr(argument) for _, argument in items)
    # [Ff]ailed: the rest suffices, with half of the texts.
    return texts if len({text.lower() for text in texts}) == len(texts) else None


def _branches(branches: Any) -> tuple[Texts | None, list[Texts]]:
    walked = [_walk(branch) for branch in branches]
    exact: Texts | None = frozenset()
    for whole, _ in walked:
        exact = None if exact is None or whole is None else exact | whole
    best = [_best(*each) for each in walked]
    one_of: Texts = frozenset()
    for each in best:
        if each is None:
            return exact if exact is not None and len(exact) <= ALTERNATIVES else None, []
        one_of |= each
    return exact if exact is not None and len(exact) <= ALTERNATIVES else None, [one_of]


def _repeated(least: int, most: Any, item: Any) -> tuple[Texts | None, list[Texts]]:
    whole, found = _walk(item)
    if least == 0:
        return (whole | {""} if whole is not None and most == 1 else None), []
    return (whole if most == 1 else None), [*found, *([whole] if whole is not None else [])]


def _join(left: Texts, right: Texts | None) -> Texts | None:
    if right is None or len(left) * len(right) > ALTERNATIVES:
        return None
    return frozenset(a + b for a in left for b in right)


def _best(whole: Texts | None, found: list[Texts]) -> Texts | None:
    sets = [*found, *([whole] if whole is not None else [])]
    usable = [each for each in sets if each and len(each) <= MOST and min(map(len, each)) >= SHORTEST]
    # A rare text is a long one; few texts are found faster than many.
    return max(usable, key=lambda each: min(map(_rarity, each)) - math.log2(len(each)) / 2, default=None)


def _rarity(text: str) -> int:
    word = text.strip(" :=.,'\"/([_").lower()
    return (
        2 if any(common.endswith(word) and len(common) - len(word) < 2 for common in COMMON) else min(len(text), LONG)
    )
