"""Read one record of a log."""

import re
from dataclasses import replace

from trainwarden.signals.progress.bars import Bar, find_bar
from trainwarden.signals.progress.keys import STEP, TOTAL, Meaning, meaning, unit_meaning
from trainwarden.signals.progress.mllog import MARK, read_mllog
from trainwarden.signals.progress.model import BARE, COUNTER, GLOBAL, STATED, Reading
from trainwarden.signals.progress.numbers import Token, tokens

_COLOUR = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]")
# Before anything is stated: the record is of an evaluation, a dry run, a plan.
_EVALUATION = re.compile(
    rb"(?<![\w./-])(?:eval|evaluat(?:ion|ing|e|ed)|valid|validat(?:ion|ing|e)|predict\w{0,8}|inference|sanity"
    rb"|test(?:ing)?(?=[\s:]{1,4}(?:loss|set|step|iter|epoch|batch|\d|\|))|warm-?up)(?![\w./-])",
    re.IGNORECASE,
)
# torchvision, DETR, Swin, ImageNet: the batches of an epoch, in brackets.
_BATCH_OF_EPOCH = re.compile(
    rb"(?:Epoch|Train)[^\[\r\n]{0,16}\[\s{0,8}(?P<epoch>\d{1,9})(?:/\d{1,9})?\]\s{0,4}"
    rb"\[\s{0,12}(?P<n>\d{1,12})\s{0,4}/\s{0,12}(?P<total>\d{1,12})\]"
)
# torchtune: epoch|step|Loss, in the description of a bar of one epoch.
_TORCHTUNE = re.compile(rb"(?<![\d|])(?P<epoch>\d{1,9})\|(?P<step>\d{1,12})\|Loss:")
_RECORD_TIME = re.compile(rb"\beta\b|\biter|\bITER|\bIter")
_BARE_STEP = frozenset(("step", "steps", "iteration", "iterations", "update", "updates", "globalstep"))
# Nothing else in the line but a time and a level.
_STEP_ALONE = re.compile(
    rb"[^A-Za-z]{0,48}(?:(?:INFO|DEBUG)[^A-Za-z]{0,8})?(?:global[ _-]?step|step|iteration|iter)\s{1,4}#?\d{1,12}"
    rb"(?:\s{1,4}(?:done|finished|completed?))?[^\w]{0,8}",
    re.IGNORECASE,
)
# A rounded number vouches for an exact one that is so close.
_CLOSE = 0.15


def read_record(record: bytes) -> Reading | None:
    """Return the training's values in a record; None if it has none."""
    if b"\x1b" in record:
        record = _COLOUR.sub(b"", record)
    if MARK in record:
        return read_mllog(record)
    bar, other_work = find_bar(record)
    if other_work:
        return None
    stated: dict[str, tuple[Meaning, Token]] = {}
    first = len(record)
    for token in tokens(record):
        token = _with_total(token, stated)  # noqa: PLW2901  # the same number again
        for found in (meaning(token.key), unit_meaning(token.unit) if token.unit else None):
            if found is not None and _fits(found, token, stated.get(found.field)):
                stated[found.field] = (found, token)
                first = min(first, token.start)
                break
        else:
            _bare_time(record, token, stated)
    if stated and _EVALUATION.search(record, 0, first):
        return None
    return _reading(record, bar, stated)


def _with_total(token: Token, stated: dict[str, tuple[Meaning, Token]]) -> Token:
    """Return the token; with the total of an equal step that the record states with one."""
    if token.total is None and STEP in stated and stated[STEP][1].value == token.value:
        return token._replace(total=stated[STEP][1].total)
    return token


def _fits(found: Meaning, token: Token, known: tuple[Meaning, Token] | None) -> bool:
    """Return whether the token is a value of the field, and better than one earlier in the record."""
    field = found.field
    if field in (STEP, TOTAL):
        if not token.whole or token.unit or (found.score >= 5 and token.total is None):
            return False
    elif field == "epoch":
        if token.unit or not 0 <= token.value < 1e6:
            return False
    elif token.unit == "%" or (field != "loss" and token.value < 0):
        return False
    if known is None:
        return True
    if field == STEP and known[1].rounded != token.rounded and _close(token.value, known[1].value):
        return known[1].rounded
    return found.score < known[0].score


def _bare_time(record: bytes, token: Token, stated: dict[str, tuple[Meaning, Token]]) -> None:
    """Add a duration whose name means that of a step only beside a step."""
    if token.unit not in ("", "ms", "s"):
        return
    unnamed = not token.key and token.unit == "ms"
    timed = token.key == ("time",) and (token.unit or _RECORD_TIME.search(record))
    if (unnamed or timed or token.key == ("seconds",)) and (
        STEP in stated or "epoch" in stated or _BATCH_OF_EPOCH.search(record)
    ):
        stated.setdefault("step_time_seconds", (Meaning("step_time_seconds", 4), token))


def _values(record: bytes, stated: dict[str, tuple[Meaning, Token]]) -> dict[str, float]:
    values = {}
    for field, (found, token) in stated.items():
        if field in (STEP, TOTAL):
            continue
        value = token.value / found.divisor
        if field == "step_time_seconds":
            value = value / 1000 if token.unit in ("ms", "milliseconds") else value
            value = (1 / value if value else float("nan")) if found.inverse else value
        values[field] = value
    if b"train_runtime" in record:  # averages over the whole run
        return {"epoch": values["epoch"]} if "epoch" in values else {}
    return values


def _reading(record: bytes, bar: Bar | None, stated: dict[str, tuple[Meaning, Token]]) -> Reading | None:
    values = _values(record, stated)
    alone = STEP in stated and bool(_STEP_ALONE.fullmatch(record))
    reading = _step(stated, measured=bool(values.keys() - {"epoch"}), alone=alone)
    if bar is not None:
        reading = _with_bar(reading, bar, stated, values.get("epoch"))
        if bar.step_time_seconds is not None and "step_time_seconds" not in values:
            values["step_time_seconds"] = bar.step_time_seconds
            reading = replace(reading, weak=frozenset(("step_time_seconds",)))
    batch = _BATCH_OF_EPOCH.search(record)
    if batch and reading.rank > GLOBAL:
        values["epoch"] = float(batch["epoch"])
        reading = replace(reading, step=int(batch["n"]), total_steps=int(batch["total"]), rank=COUNTER, local=True)
    torchtune = _TORCHTUNE.search(record)
    if torchtune:
        values["epoch"] = float(torchtune["epoch"])
        reading = replace(reading, step=int(torchtune["step"]), total_steps=None, rank=GLOBAL, local=False)
    if reading.step is None and not _is_sufficient(stated):
        return None
    return replace(reading, values=values)


def _step(stated: dict[str, tuple[Meaning, Token]], *, measured: bool, alone: bool) -> Reading:
    if STEP not in stated:
        return Reading()
    found, token = stated[STEP]
    total = token.total
    if total is None and TOTAL in stated:
        total = int(stated[TOTAL][1].value)
    if measured:
        rank = GLOBAL if found.score == 0 else COUNTER if found.score == 4 else STATED
    elif total is not None or alone or (token.assigned and _BARE_STEP & set(token.key[-1:])):
        rank = COUNTER if found.score == 4 else BARE
    else:
        return Reading()
    return Reading(step=int(token.value), total_steps=total, rank=rank)


def _with_bar(reading: Reading, bar: Bar, stated: dict[str, tuple[Meaning, Token]], epoch: float | None) -> Reading:
    """Return the reading with the step that counts: the one that the record states, or its bar's."""
    if reading.step is not None and reading.rank <= STATED:
        if not stated[STEP][1].rounded or bar.rounded:
            return reading
        # The bar is exact, and of one epoch.
        exact = bar.n + int(epoch or 0) * (bar.total or 0)
        if not _close(exact, reading.step):
            return reading
        return replace(reading, step=exact, total_steps=None if epoch else bar.total)
    return replace(
        reading,
        step=bar.n,
        total_steps=bar.total,
        rank=BARE if bar.described is False and not stated.keys() - {"epoch"} else COUNTER,
        local=bar.epoch is not None,
        anonymous=bar.described is None,
    )


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(one, other)


def _is_sufficient(stated: dict[str, tuple[Meaning, Token]]) -> bool:
    """Return whether the values count without a step: a loss and paths of metrics do, for no setting is named so."""
    return "loss" in stated or any(token.namespaced for _, token in stated.values())
