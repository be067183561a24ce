"""What a pickle says, without unpickling it: its opcodes are read, and nothing in it is ever called."""

from collections.abc import Collection, Iterator
from functools import cache

from trainwarden.checkpoint.contents import Damaged
from trainwarden.deadline import Deadline

Value = str | int | bool

_MEMOIZE, _STOP, _FRAME, _PROTO = 0x94, 0x2E, 0x95, 0x80
_TEXTS = frozenset((0x58, 0x8C, 0x55, 0x8D))
_NUMBERS = frozenset((0x4B, 0x4D))
_SIGNED = frozenset((0x4A, 0x8A))
_GETS = frozenset((0x68, 0x6A))
_PUTS = frozenset((0x71, 0x72))
_CONSTANTS = {0x88: True, 0x89: False}
_OPCODES_BETWEEN_LOOKS = 2**16
# How an argument's length is known: fixed where positive, else one of these.
_ONE_LINE, _TWO_LINES = -100, -101


def pairs(data: bytes, keys: Collection[str], deadline: Deadline) -> Iterator[tuple[str, Value]]:
    """Each of `keys` in the pickle with what follows it, as in a dict: a text, a number or a truth value.

    Raises:
        Damaged: the pickle is cut off or none.
        DeadlineExceeded: it takes too long.
    """
    memo: dict[int, Value] = {}
    memoized = 0
    last: Value | None = None
    # Millions of opcodes are common, so this is one plain loop.
    for count, (code, begin, end) in enumerate(_opcodes(data)):
        if count % _OPCODES_BETWEEN_LOOKS == 0:
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


def stated(data: bytes | None, keys: Collection[str], deadline: Deadline, path: str) -> dict[str, Value]:
    """The last of each of `keys` in the pickle that the file `path` holds; nothing if it holds none.

    Raises:
        Damaged: the pickle is cut off or none; it names the file.
        DeadlineExceeded: it takes too long.
    """
    try:
        return dict(pairs(data or b".", keys, deadline))
    except Damaged as error:
        raise Damaged(f"{path} holds {error}") from error


def _opcodes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Each opcode, and where its argument begins and ends."""
    lengths = _lengths()
    position, size = 0, len(data)
    while position < size:
        code = data[position]
        position += 1
        length = lengths[code]
        if length is None:
            raise Damaged("something that should be a pickle and is none")
        begin, end = position, position + length
        if length < 0:
            if code == _STOP:
                return
            begin, end = _counted(data, position, length)
        if end > size or end < begin:
            break
        yield code, begin, end
        position = end
    raise Damaged("a pickle that is cut off")


def _counted(data: bytes, position: int, kind: int) -> tuple[int, int]:
    """Where an argument begins and ends that says itself how long it is."""
    if kind in (_ONE_LINE, _TWO_LINES):
        end = data.find(b"\n", position) + 1
        if end and kind == _TWO_LINES:
            end = data.find(b"\n", end) + 1
        return position, end
    begin = position - kind
    return begin, begin + int.from_bytes(data[position:begin], "little")


@cache
def _lengths() -> list[int | None]:
    """By opcode: bytes of its argument; negative for how many bytes count it, or for lines; None for no opcode."""
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
