"""The texts that every match of a regular expression must contain.

A scanner uses them to skip records without running the expression. The result is a set of which at least one occurs in
any match; None where there is no such set.
"""

import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as codes  # type: ignore[attr-defined]  # the parser has no public name
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as codes
    import sre_parse as parser

# Of a repeat in a syntax tree: it has no limit.
UNLIMITED = int(codes.MAXREPEAT)

# Limits: texts that a run of characters expands to, texts in all, and lengths: below which a text is everywhere, from
# which it is rare, and from which more letters make it no rarer.
ALTERNATIVES = 64
MOST = 512
SHORTEST = 3
RARE = 6
LONG = 14

# Texts of every other log line select nothing.
COMMON = frozenset((
    "actor", "batch", "cache", "checkpoint", "code", "config", "cuda", "data", "dataset", "debug", "epoch", "error",
    "exit", "fail", "failed", "file", "found", "global_step", "gradient", "grad_norm", "iter", "iteration", "loss",
    "memory", "message", "metadata", "missing", "model", "module", "nccl", "node", "norm", "output", "parameter",
    "path", "port", "process", "rank", "saving", "shard", "start", "status", "step", "task", "tensor", "time",
    "timeout", "timer", "token", "train", "training", "warning", "weight", "worker", "mlx5", "unexpected",
    "number of nan iterations",  # of every step that Megatron-LM prints
))  # fmt: skip

Texts = frozenset[str]


@dataclass(frozen=True)
class Required:
    """Texts of which each match contains one; `caseless`: in any mixture of upper and lower case (texts are lower)."""

    texts: tuple[str, ...]
    caseless: bool = False


def required_texts(pattern: str) -> Required | None:
    """Return the texts required by `pattern`; None if unknown. Raises re.error if it is invalid."""
    tree = parsed(pattern)
    caseless = bool(tree.state.flags & re.IGNORECASE)
    if not caseless and _has_scoped_caselessness(tree):
        return None
    if tree.state.flags & re.VERBOSE and tree.state.flags & re.LOCALE:
        return None
    texts = _best(*_walk(tree))
    if texts is None:
        return None
    if caseless:
        if not all(text.isascii() for text in texts):
            return None
        texts = frozenset(text.lower() for text in texts)
    return Required(tuple(sorted(texts)), caseless)


def covering(pattern: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return those of `texts` of which each match of the pattern holds one; none where that does not follow from it."""
    tree = parsed(pattern)
    if tree.state.flags & re.IGNORECASE or _has_scoped_caselessness(tree):
        return ()
    whole, found = _walk(tree)
    sets = [{_longest(text, texts) for text in each} for each in (*found, *([whole] if whole is not None else []))]
    held = [each for each in sets if each and "" not in each]
    return tuple(sorted(max(held, key=lambda each: min(map(_rarity, each)), default=())))


def _longest(text: str, texts: Sequence[str]) -> str:
    """Return the longest of `texts` in a text, empty if there is none."""
    return max((one for one in texts if one in text), key=len, default="")


@lru_cache(maxsize=8)
def parsed(pattern: str) -> Any:
    """Return the syntax tree of a pattern; raise re.error if it is invalid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parser.parse(pattern)


def _has_scoped_caselessness(items: Any) -> bool:
    for operation, argument in items:
        if operation is codes.SUBPATTERN and argument[1] & re.IGNORECASE:
            return True
        if any(_has_scoped_caselessness(inner) for inner in inner_items(operation, argument)):
            return True
    return False


def inner_items(operation: Any, argument: Any) -> list[Any]:
    """Return the sequences of items within an item of a syntax tree."""
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


def is_rare(texts: Sequence[str]) -> bool:
    """Return whether none of the texts is expected in ordinary log lines."""
    return min(map(_rarity, texts), default=0) >= RARE


@lru_cache(maxsize=4096)
def _rarity(text: str) -> int:
    word = text.strip(" :=.,'\"/([_").lower()
    return (
        2 if any(common.endswith(word) and len(common) - len(word) < 2 for common in COMMON) else min(len(text), LONG)
    )
