"""The base of the record's documents: each names its keys and their kinds once, and is read and written by them.

A subclass of `RecordDocument` has one line for each key:

    class RankBeat(RecordDocument):
        rank: int = required(INTEGER)
        time: float | None = TIME

To type checkers it is a frozen dataclass. It is none at run time, because shell commands load it and `dataclasses`
takes half as long to import as Python to start.
"""

from __future__ import annotations

from types import MappingProxyType

from trainwarden.record.clock import from_own_form, to_iso
from trainwarden.record.document import JsonObject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, TypeVar

    from typing_extensions import Self, dataclass_transform

    Part = TypeVar("Part", bound="RecordDocument")
else:

    def dataclass_transform(**_options):  # noqa: ANN003, ANN201, D103  # typing has it from Python 3.11 on
        return lambda document: document


class Key:
    """How the value of one key is read and written.

    Args:
        read: returns the value of a key of a JSON object, None where it is absent or unusable; None for a field that
            the file does not hold.
        write: returns the JSON form of a value that is not None; the value itself if None.
        default: the value of a field that was not given or not found.
        is_required: whether a document without it is none, where it is part of another.
    """

    __slots__ = ("default", "is_required", "read", "write")

    def __init__(
        self,
        read: Callable[[JsonObject, str], Any] | None,
        write: Callable[[Any], Any] | None = None,
        default: Any = None,
        *,
        is_required: bool = False,
    ) -> None:
        self.read = read
        self.write = write
        self.default = default
        self.is_required = is_required


def _read_values(source: JsonObject, key: str) -> Mapping[str, Any] | None:
    child = source.child(key)
    return child.values if child else None


def _read_texts(source: JsonObject, key: str) -> dict[str, str] | None:
    child = source.child(key)
    return {name: value for name, value in child.values.items() if isinstance(value, str)} if child else None


def _read_raw_text(source: JsonObject, key: str) -> str | None:
    value = source.values.get(key)
    return value if isinstance(value, str) and value else None


_read_text, _read_integer, _read_time = JsonObject.text, JsonObject.integer, JsonObject.time
# The types of which a value may be plain: what its reader would return, and no other.
_PLAIN_TYPES: Mapping[Any, type] = {_read_text: str, _read_integer: int, JsonObject.number: float}
# Below the last time that can be written, in Unix seconds.
_PLAIN_NUMBERS = 2**37

# Characters of a text that people read.
MAX_MESSAGE = 4000

_NOTHING: Mapping[str, Any] = MappingProxyType({})

# The kinds are Any so that each can be the default of a field of its own type.
TEXT: Any = Key(_read_text)
# As it was written: a path that is not UTF-8 must still be found.
RAW_TEXT: Any = Key(_read_raw_text)
NUMBER: Any = Key(JsonObject.number)
INTEGER: Any = Key(_read_integer)
TIME: Any = Key(_read_time, to_iso)
# An object of any values; an empty one is left out of the file.
VALUES: Any = Key(_read_values, lambda values: dict(values) or None, _NOTHING)
# An object of texts.
TEXTS: Any = Key(_read_texts, lambda values: dict(values) or None, _NOTHING)
# A field of the document that its file does not hold.
NOT_IN_FILE: Any = Key(None)
# Uid of the owner of the file that the document was read from.
OWNER: Any = Key(None)
PROBLEMS: Any = Key(None, None, ())


def key(read: Callable[[JsonObject, str], Any], write: Callable[[Any], Any] | None = None, default: Any = None) -> Any:
    """Return a kind of its own for one field; see `Key`."""
    return Key(read, write, default)


def required(kind: Any) -> Any:
    """Return the same kind for a field that has to be given."""
    return Key(kind.read, kind.write, kind.default, is_required=True)


@dataclass_transform(frozen_default=True, field_specifiers=(required,))
class RecordDocument:
    """A JSON document of the run record, or a part of one; times in memory are floats, Unix seconds.

    A field that was not given has the default of its kind, and is not written.
    """

    KEYS: ClassVar[dict[str, Key]] = {}
    # How each key of the file is read; with the key itself, for each file brings another object of the same text, which
    # takes longer to look up and is kept.
    _READERS: ClassVar[Mapping[str, tuple[str, Callable[[JsonObject, str], Any], type | None]]] = {}
    _REQUIRED: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = {name: kind for name, kind in vars(cls).items() if isinstance(kind, Key)}
        cls.KEYS = {**cls.KEYS, **own}
        cls._READERS = {
            name: (name, kind.read, _PLAIN_TYPES.get(kind.read)) for name, kind in cls.KEYS.items() if kind.read
        }
        cls._REQUIRED = tuple(name for name, kind in cls.KEYS.items() if kind.is_required)
        for name, kind in own.items():
            setattr(cls, name, kind.default)

    def __init__(self, *values: Any, **named: Any) -> None:
        if values:
            named.update(zip(self.KEYS, values))  # noqa: B905  # more values than keys is an error below
        if len(values) > len(self.KEYS) or not named.keys() <= self.KEYS.keys():
            raise TypeError(f"{type(self).__name__} has only the fields {', '.join(self.KEYS)}")
        self.__dict__.update(named)

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | JsonObject) -> Self:
        """Return the document that a JSON object spells; what is absent or unusable has its default."""
        source = values if isinstance(values, JsonObject) else JsonObject(values)
        document = cls.__new__(cls)
        given, readers = document.__dict__, cls._READERS
        for key, value in source.values.items():
            reader = readers.get(key)
            if reader is None:
                continue
            name, read, plain_type = reader
            # What most values are, read without their readers: the exporter reads many documents.
            kind = type(value)
            if kind is plain_type:
                if value.isascii() if plain_type is str else 0 <= value < _PLAIN_NUMBERS:
                    given[name] = value
                    continue
            elif read is _read_time and kind is str and 0 <= (seconds := from_own_form(value) or -1.0) < _PLAIN_NUMBERS:
                given[name] = seconds
                continue
            if (found := read(source, name)) is not None:
                given[name] = found
        if source.owner is not None and "owner" in cls.KEYS:
            given["owner"] = source.owner
        if source.problems and "problems" in cls.KEYS:
            given["problems"] = tuple(source.problems)
        return document

    @property
    def is_whole(self) -> bool:
        """Whether it has all keys that are required."""
        for name in self._REQUIRED:  # noqa: SIM110  # a generator would take three times as long
            if getattr(self, name) is None:
                return False
        return True

    def to_json(self) -> dict[str, Any]:
        """Return the fields that were given, as the file holds them; one that is None is None."""
        given = self.__dict__
        document = {}
        for name, kind in self.KEYS.items():
            if name in given and kind.read:
                value = given[name]
                document[name] = value if value is None or kind.write is None else kind.write(value)
        return document

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some fields."""
        if not changes.keys() <= self.KEYS.keys():
            raise TypeError(f"{type(self).__name__} has only the fields {', '.join(self.KEYS)}")
        document = self.__new__(type(self))
        document.__dict__.update(self.__dict__)
        document.__dict__.update(changes)
        return document

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        # What was given decides nearly always, and is compared at once.
        return self.__dict__ == other.__dict__ or all(
            getattr(self, name) == getattr(other, name) for name in type(self).KEYS
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.KEYS))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({given})"


def part(kind: type[RecordDocument], default: RecordDocument | None = None) -> Any:
    """Return the kind of a key that holds one document of another kind."""

    def read(source: JsonObject, key: str) -> RecordDocument | None:
        child = source.child(key)
        return read_part(kind, child) if child else None

    return Key(read, _write_part, default)


def parts(kind: type[RecordDocument]) -> Any:
    """Return the kind of a key that holds a list of documents of another kind."""

    def read(source: JsonObject, key: str) -> tuple[RecordDocument, ...]:
        found = (read_part(kind, child) for child in source.children(key))
        return tuple(document for document in found if document is not None)

    return Key(read, lambda documents: [_write_part(one) for one in documents] or None, ())


def read_part(kind: type[Part], source: JsonObject) -> Part | None:
    """Return a document that is part of another; None if it lacks a required key."""
    document = kind.from_json(source)
    return document if document.is_whole else None


def _write_part(document: RecordDocument) -> dict[str, Any]:
    return {name: value for name, value in document.to_json().items() if value is not None}


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning and the end of a longer text, and never a lone surrogate."""
    if len(text) > limit:
        cut = f" … {len(text) - limit} characters left out … "
        head = (limit - len(cut)) // 3
        text = text[:head] + cut + text[len(text) - (limit - len(cut) - head) :]
    return text.encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """Return a text of people's as one line of at most `MAX_MESSAGE` characters."""
    return " ".join(shorten(text, MAX_MESSAGE).split())
