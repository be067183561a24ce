"""Progress bars: of tqdm, Rich and Keras. Most bars count something else than the steps of a training."""

import re
from dataclasses import dataclass

_TQDM = re.compile(
    rb"\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,12}"
    rb"(?P<n>\d[\d.,]{0,15}[kKMG]?)/(?P<total>\d[\d.,]{0,15}[kKMG]?)\s{0,4}\[(?P<rest>[^\]\r\n]{0,2000})"
)
_TOTALLESS = re.compile(rb"(?<![\d.,/])(?P<n>\d{1,12})it \[(?P<rest>\d[^\]\r\n]{0,2000})")
_RICH = re.compile(
    rb"(?<![\d/])(?P<n>\d{1,12})/(?P<total>\d{1,12})\s{1,4}(?P<rest>\d{1,4}:\d\d:\d\d \xe2\x80\xa2 [^\r\n]{0,400})"
)
_KERAS = re.compile(
    rb"(?<![\d/])(?P<n>\d{1,12})/(?P<total>\d{1,12})\s{1,4}"
    rb"(?:\[[=>.\-]|\xe2\x94)[^\r\n]{0,400}? (?P<rest>\d{1,9}(?:ms|s|us)/step)"
)
_RATE = re.compile(rb"(?<![\w.])(?P<rate>\d{1,9}(?:\.\d{1,9})?)\s?(?P<unit>[A-Za-z]{1,12}/[A-Za-z]{1,12})")
_STEPS = frozenset((b"it", b"iter", b"iters", b"step", b"steps", b"batch", b"batches", b"update", b"updates"))
_SECONDS = {b"s": 1, b"ms": 1000, b"us": 1_000_000}

# What a launcher or a logger puts before a line.
_PREFIX = re.compile(
    rb"\[[^\]]{0,80}\]|\([^)]{0,120}\)|^\s{0,8}[\w.-]{0,60}\d[\w.-]{0,60}:\s|\b(?:INFO|DEBUG|WARNING)\b"
)
_OTHER_WORK = re.compile(
    rb"load|fetch|\bmap|filter|generat|token|sav(?:e|ing)|writ|convert|process|pack|group|eval|valid|\btest|predict"
    rb"|sanity|infer|shard|extract|read|resolv|comput|creat|cast|warm|captur|compil|encod|decod|shuffl|index|cach|copy"
    rb"|quantiz|calib|merg|sampl|rollout|collect|scor|embed|data|split|files|import|init|weights|checkpoint|truncat"
    rb"|prompt|download|upload|format|adding|apply|concat|build",
    re.IGNORECASE,
)
_TRAINING = re.compile(rb"train|epoch|step|iter|progress|\d\|\d+\|loss", re.IGNORECASE)
_EPOCH = re.compile(rb"epoch:?\s{0,4}\[?(\d{1,9})(?:/\d{1,9})?", re.IGNORECASE)


@dataclass(frozen=True)
class Bar:
    """A bar that may count training steps.

    Attributes:
        total: None where the bar shows none.
        rounded: `26.1k/100k`.
        step_time_seconds: from the bar's own, smoothed rate.
        epoch: its number, if the bar counts the steps of one.
        described: whether its description names a training; None without a description.
    """

    n: int
    total: int | None
    rounded: bool
    step_time_seconds: float | None
    epoch: int | None
    described: bool | None


def find_bar(record: bytes) -> tuple[Bar | None, bool]:
    """Return the last bar of the record, and whether the record is about other work than training steps."""
    match = None
    for pattern in (_TQDM, _RICH, _KERAS, _TOTALLESS):
        for match in pattern.finditer(record):  # noqa: B007  # the last one is wanted
            pass
        if match:
            break
    if match is None:
        return None, False
    before = max(record.rfind(b"]", 0, match.start()), 0) if record.count(b"%|", 0, match.start()) else 0
    words = _PREFIX.sub(b" ", record[before : match.start()][-300:])
    words = words if re.search(rb"[A-Za-z]", words) else b""
    step_time, other = _rate(match["rest"])
    if other or _OTHER_WORK.search(words):
        return None, True
    total = match.groupdict().get("total")
    epoch = _EPOCH.search(record, before, match.start())
    return Bar(
        n=_count(match["n"]),
        total=_count(total) if total else None,
        rounded=match["n"][-1:].isalpha(),
        step_time_seconds=step_time,
        epoch=int(epoch[1]) if epoch else None,
        described=True if _TRAINING.search(words) else None if not words else False,
    ), False


def _rate(rest: bytes) -> tuple[float | None, bool]:
    """Return seconds for a step, and whether the bar counts something else: bytes, files, examples."""
    match = _RATE.search(rest)
    if match is None:
        return None, re.search(rb"\?(?!it|step|batch)[A-Za-z]+/s", rest) is not None
    rate, (thing, per) = float(match["rate"]), match["unit"].split(b"/")
    if thing in _SECONDS and per in _STEPS:
        return rate / _SECONDS[thing], False
    if thing in _STEPS and per == b"s":
        return (1 / rate if rate else None), False
    return None, per == b"s"


def _count(text: bytes) -> int:
    multiple = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9}.get(text[-1:])
    digits = text.rstrip(b"kKMG").replace(b",", b"")
    try:
        return round(float(digits) * (multiple or 1))
    except ValueError:  # 1.2.3
        return 0
