"""Reads values from a pickle by its opcodes, without unpickling it: nothing in it is ever called."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from trainwarden.checkpoint.contents import DamagedFile
from trainwarden.deadline import Deadline

Value = str | int | bool

_MEMOIZE, _STOP, _FRAME, _PROTO = 0x94, 0x2E, 0x95, 0x80
_TEXTS = frozenset((0x58, 0x8C, 0x55, 0x8D))
_NUMBERS = frozenset((0x4B, 0x4D))
_SIGNED = frozenset((0x4A, 0x8A))
_GETS = frozenset((0x68, 0x6A))
_PUTS = frozenset((0x71, 0x72))
_CONSTANTS = {0x88: True, 0x89: False}
_OPCODES_BETWEEN_CHECKS = 2**16
# The length of an opcode's argument: fixed where positive, else one of these.
_ONE_LINE, _TWO_LINES = -100, -101


def key_values(data: bytes, keys: Collection[str], deadline: Deadline) -> Iterator[tuple[str, Value]]:
    """Yield each of `keys` in the pickle with the value that follows it, as in a dict: a text, a number or a bool.

    Raises:
        DamagedFile: the data is truncated or no pickle.
        DeadlineExceeded: the deadline has passed.
    """
    memo: dict[int, Value] = {}
    memoized = 0
    last: Value | None = None
    # Millions of opcodes are common: one loop without function calls.
    for count, (code, begin, end) in enumerate(_opcodes(data)):
        if count % _OPCODES_BETWEEN_CHECKS == 0:
            deadline.check()
        if code == _MEMOIZE:
            if last is not None:
                memo[memoized] = last
            memoized += 1
            continue
        if code in _PUTS:
            if last is not None:
                memo[int.from_bytes(data[begin:end], "little")] = last
            continue
        if code in (_FRAME, _PROTO):
            continue
        value: Value | None
        if code in _GETS:
            value = memo.get(int.from_bytes(data[begin:end], "little"))
        elif code in _TEXTS:
            value = data[begin:end].decode("utf-8", "replace")
        elif code in _NUMBERS or code in _SIGNED:
            value = int.from_bytes(data[begin:end], "little", signed=code in _SIGNED)
        else:
            value = _CONSTANTS.get(code)
        if value is not None and last in keys and isinstance(last, str):
            yield last, value
        last = value


def read_values(data: bytes | None, keys: Collection[str], deadline: Deadline, path: str) -> dict[str, Value]:
    """Return the last value of each of `keys` in the pickle of the file `path`; empty without a pickle.

    Raises:
        DamagedFile: the data is truncated or no pickle; the message names the file.
        DeadlineExceeded: the deadline has passed.
    """
    try:
        return dict(key_values(data or b".", keys, deadline))
    except DamagedFile as error:
        raise DamagedFile(f"{path} holds {error}") from error


def _opcodes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each opcode with the begin and end of its argument."""
    lengths = _lengths()
    position, size = 0, len(data)
    while position < size:
        code = data[position]
        position += 1
        length = lengths[code]
        if length is None:
            raise DamagedFile("something that should be a pickle and is none")
        begin, end = position, position + length
        if length < 0:
            if code == _STOP:
                return
            begin, end = _counted(data, position, length)
        if end > size or end < begin:
            break
        yield code, begin, end
        position = end
    raise DamagedFile("a pickle that is cut off")


def _counted(data: bytes, position: int, kind: int) -> tuple[int, int]:
    """Return the begin and end of an argument that is a line or starts with its own length."""
    if kind in (_ONE_LINE, _TWO_LINES):
        end = data.find(b"\n", position) + 1
        if end and kind == _TWO_LINES:
            end = data.find(b"\n", end) + 1
        return position, end
    begin = position - kind
    return begin, begin + int.from_bytes(data[position:begin], "little")


@cache
def _lengths() -> list[int | None]:
    """Return the length of each opcode's argument: negative for a length prefix or lines, None if invalid."""
    import pickletools  # noqa: PLC0415  # slow to import, and seldom needed

    counted = {
        pickletools.TAKEN_FROM_ARGUMENT1: -1,
        pickletools.TAKEN_FROM_ARGUMENT4: -4,
        pickletools.TAKEN_FROM_ARGUMENT4U: -4,
        pickletools.TAKEN_FROM_ARGUMENT8U: -8,
    }
    lengths: list[int | None] = [None] * 256
    for opcode in pickletools.opcodes:
        length = opcode.arg.n if opcode.arg else 0
        if length == pickletools.UP_TO_NEWLINE:
            length = _TWO_LINES if opcode.name in {"GLOBAL", "INST"} else _ONE_LINE
        lengths[ord(opcode.code)] = counted.get(length, length)
    lengths[_STOP] = -1
    return lengths
