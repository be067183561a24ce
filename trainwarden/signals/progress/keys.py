"""What the words before a number mean: the names that trainers give to step, loss and the rest."""

from dataclasses import dataclass
from functools import lru_cache

STEP, TOTAL = "step", "total_steps"


@dataclass(frozen=True)
class Meaning:
    """A field, and how good a name for it these words are.

    Attributes:
        score: among several names in one record the lowest wins.
        divisor: of the number, for the unit of the field.
        inverse: the number is a rate, the field a duration.
    """

    field: str
    score: int = 0
    divisor: float = 1.0
    inverse: bool = False


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


def _names(listed: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(name.split()) for name in listed.split(","))


# Losses, times and rates of something else than the training step.
_ELSEWHERE = _words(
    "val valid validation validate eval evaluation test dev predict best min max minimum maximum prev previous "
    "std var delta scale mask weight coeff coef threshold target limit clip clipped"
)
_OTHER_LOSS = _words(
    "z aux auxiliary balance balancing load router moe mtp kl vf value critic entropy ent reg regularization "
    "regularisation indexer epoch initial disc discriminator ppl"
)
_TRAIN_LOSS = _words(
    "train training lm total reduced avg average mean batch step running global ce nll token per xent cross "
    "entropy language model smoothed"
)
_STEP_WORDS = {"step": 1, "update": 1, "iteration": 2, "iter": 2, "it": 2, "itr": 2, "globalstep": 0, "batch": 4}
_STEP_PLURALS = frozenset(("steps", "updates", "iterations", "iters"))
_DONE = _words("global current cur completed finished done trained opt optimizer optim")
_NOT_STEPS = _words(
    "micro mini max total number warmup warm save saving log logging per every accumulation accum decay local "
    "inner skipped nan start end time timing avg ms loss lr size rate norm tokens samples sub job srun slurm "
    "tflops flops reward length mem memory sec second seconds port line pid id loading resume"
) | _ELSEWHERE.difference({"target", "limit"})
_COUNTS = frozenset(("step", "steps", "iteration", "iterations", "iter", "iters", "updates"))
_ALL = frozenset(("max", "total", "num", "number", "target", "limit"))
_TIME_UNITS = {"ms": 1e3, "milliseconds": 1e3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "in": 1.0}
_STEP_TIMES = _names(
    "step time, iter time, iteration time, batch time, step timing, dt, time per iteration, time per step, "
    "time per iter, time per batch, step avg, step duration, timing s step, time step, seconds per step, "
    "sec per step, seconds per iteration, s it, s iter, s step, sec step, timing step, iteration timing"
)
_STEP_RATES = _names(
    "it s, iter s, steps s, iters s, step s, it sec, iter sec, steps sec, steps per second, steps per sec, "
    "iterations per second, batches per sec, batches per second"
)
_TOKENS = frozenset(("tok", "toks", "token", "tokens", "words"))
_SAMPLES = _words("sample samples seq seqs sequences example examples sentences img imgs image images")
_SECOND = frozenset(("s", "sec", "second"))
_TOKEN_RATES = frozenset(("tps", "wps", "tokpersec", "tokenspersec", "tokenspersecond"))
_PER_DEVICE = frozenset(("gpu", "device", "chip", "npu", "card", "rank", "core"))
_GRAD_NORMS = frozenset(("gnorm", "gradnorm", "gradientnorm", "grad"))


@lru_cache(maxsize=4096)
def meaning(words: tuple[str, ...]) -> Meaning | None:
    """The field that these words, the last before a number, name; None if none."""
    if not words:
        return None
    return _time(words) or _rate(words) or _loss(words) or _learning_rate(words) or _grad_norm(words) or _counts(words)


def unit_meaning(unit: str) -> Meaning | None:
    """The field that a rate's unit names by itself, as in `12,345 tok/s`."""
    thing, _, per = unit.rpartition("/")
    if per not in _SECOND:
        return Meaning("step_time_seconds", 5) if thing == "s" and per else None
    if thing in ("it", "iter", "step", "steps", "batch", "batches"):
        return Meaning("step_time_seconds", 5, inverse=True)
    return _per_second(thing, 3)


def _time(words: tuple[str, ...]) -> Meaning | None:
    divisor, name = 1.0, words
    while name and name[-1] in _TIME_UNITS and len(name) > 1 and not _is_time(name):
        divisor, name = max(divisor, _TIME_UNITS[name[-1]]), name[:-1]
    if not _is_time(name):
        rate = _ends(words, _STEP_RATES)
        return Meaning("step_time_seconds", 2, inverse=True) if rate and not _ELSEWHERE & set(words) else None
    if _ELSEWHERE.union({"data", "forward", "backward", "remaining", "eta"}) & set(words):
        return None
    # "step time" beats the average "step_avg"
    return Meaning("step_time_seconds", 1 if name[-1] == "avg" else 0, divisor)


def _is_time(words: tuple[str, ...]) -> bool:
    return _ends(words, _STEP_TIMES)


def _ends(words: tuple[str, ...], names: frozenset[tuple[str, ...]]) -> bool:
    return any(words[-length:] in names for length in (1, 2, 3) if length <= len(words))


def _rate(words: tuple[str, ...]) -> Meaning | None:
    known = set(words)
    if known & _ELSEWHERE or known & _PER_DEVICE:
        return None
    last = words[-1]
    if last in _TOKEN_RATES:
        return Meaning("tokens_per_second", 1)
    if last.endswith("samplespersec"):
        return Meaning("samples_per_second", 1 if last.startswith("curr") else 2)
    if len(words) > 1 and last in _SECOND:
        return _per_second(words[-3] if words[-2] == "per" and len(words) > 2 else words[-2], 0)
    return None


def _per_second(thing: str, score: int) -> Meaning | None:
    if thing in _TOKENS:
        return Meaning("tokens_per_second", score)
    return Meaning("samples_per_second", score) if thing in _SAMPLES else None


def _loss(words: tuple[str, ...]) -> Meaning | None:
    known = set(words)
    name = words
    while len(name) > 1 and name[-1] in ("step", "train", "total", "avg", "mean", "reduced") and "loss" in name[:-1]:
        name = name[:-1]
    last = name[-1]
    if not last.endswith("loss") or known & _ELSEWHERE or last.startswith(("val", "eval", "test")):
        return None
    others = known - {last}
    if others & _OTHER_LOSS - ({"entropy"} if "cross" in others else set()):
        return None
    if not others and last == "loss":
        return Meaning("loss", 0)
    return Meaning("loss", 1 if others <= _TRAIN_LOSS and (others or last[:5] == "train") else 2)


def _learning_rate(words: tuple[str, ...]) -> Meaning | None:
    known = set(words)
    if known & {"warmup", "min", "max", "decay", "critic", "end", "peak", "initial", "scale", "mult"}:
        return None
    if words[-1] in ("lr", "learningrate") or words[-2:] == ("learning", "rate"):
        return Meaning("learning_rate", 1 if "base" in known else 0)
    if words[-1][:-1] in ("group", "pg") and words[-1][-1] == "0" and ("lr" in known):
        return Meaning("learning_rate", 2)  # lr-AdamW/group0
    return None


def _grad_norm(words: tuple[str, ...]) -> Meaning | None:
    known = set(words)
    if known & {"critic", "max", "clip", "param", "params", "weight", "coef", "threshold", "min", "after"}:
        return None
    last = words[-1]
    if last in _GRAD_NORMS or (last == "norm" and {"grad", "gradient", "gradients"} & known):
        return Meaning("grad_norm", 1 if last == "grad" else 0)
    if words == ("norm",) or words[-3:] == ("norm", "grad", "global"):
        return Meaning("grad_norm", 2)
    return None


def _counts(words: tuple[str, ...]) -> Meaning | None:
    known, last = set(words), words[-1]
    if last == "epoch" and not known & _ELSEWHERE and not known & {"per", "total", "num", "step", "loss"}:
        return Meaning("epoch")
    if len(words) > 1 and last in ("train", "max") and words[-2] in _STEP_WORDS:
        return Meaning(STEP, 2)  # Iter(train) [ 50/8000]
    if words[-4:] in (("global", "step", "max", "steps"), ("step", "global", "max", "steps")):
        return Meaning(STEP, 0)
    if len(words) > 1 and last in _COUNTS and words[-2] in _ALL and words[-2:] != ("num", "updates"):
        return Meaning(TOTAL)
    if known & _NOT_STEPS:
        return None
    if words[-2:] == ("num", "updates") or (last in ("step", "steps", "update") and known & _DONE - {"cur", "current"}):
        return Meaning(STEP, 0)
    if last in _STEP_WORDS:
        return Meaning(STEP, _STEP_WORDS[last])
    if last in _STEP_PLURALS:
        return Meaning(STEP, 1 if known & _DONE else 5)
    return None
