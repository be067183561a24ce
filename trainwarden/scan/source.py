"""The bytes of a log: of a file, compressed or not, or of standard input."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

STDIN = "-"
_MAGIC_BYTES = 6
_BEGIN_BYTES = 1024
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_ZSTD = b"\x28\xb5\x2f\xfd"


class UnreadableLog(Exception):
    """A log cannot be read, or not to its end; the message has the reason."""


class Source:
    """A log that is open for reading.

    Attributes:
        size: of the file in bytes, as it is on the disk; None where unknown.
    """

    def __init__(self, raw: IO[bytes], content: Any, size: int | None, is_growing: bool) -> None:
        self._raw = raw
        self._content = content
        self.size = size
        # Read no further than the size at the start, or a scan of a fast writer would never end.
        self._left = size if is_growing and size else None
        self._trouble: UnreadableLog | None = None

    def read(self, most: int) -> bytes:
        """Return the next bytes, up to `most`; empty at the end.

        Raises:
            UnreadableLog: a read failed, or the compressed content is damaged.
        """
        if self._left is not None:
            most = min(most, self._left)
        parts: list[bytes] = []
        size = 0
        while size < most and self._trouble is None:
            try:
                # At most one read below, so that nothing before the damage in a damaged file is lost.
                part = self._read1(most - size)
            except UnreadableLog as error:
                self._trouble = error
                break
            if not part:
                break
            parts.append(part)
            size += len(part)
        if self._trouble is not None and not size:
            raise self._trouble
        if self._left is not None:
            self._left -= size
        return b"".join(parts)

    def _read1(self, most: int) -> bytes:
        try:
            data: bytes = self._content.read1(most)
        except EOFError:
            raise UnreadableLog("the compressed content is cut off") from None
        except (OSError, zlib.error, lzma.LZMAError) as error:
            raise UnreadableLog(_reason(error)) from error
        except Exception as error:  # each zstd package has its own exceptions
            if type(error).__name__ != "ZstdError":
                raise
            raise UnreadableLog(str(error)) from error
        return data

    def position(self) -> int:
        """Bytes read of the file itself; 0 where unknown."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return 0


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a log by its name, `-` for standard input. Compression is recognised by the first bytes.

    Raises:
        UnreadableLog: there is none, it may not be read, or nothing here can decompress it.
    """
    if name == STDIN:
        yield _source(sys.stdin.buffer, None)
        return
    try:
        raw = open(name, "rb")  # noqa: SIM115, PTH123  # closed below; a name is what was typed, not a path of ours
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UnreadableLog(_reason(error)) from error
    with raw:
        status = os.fstat(raw.fileno())
        yield _source(raw, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _source(raw: Any, size: int | None) -> Source:
    try:
        magic = raw.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    except OSError as error:
        raise UnreadableLog(_reason(error)) from error
    content = _decompressed(raw, magic)
    encoding = _encoding(content or raw)
    if encoding is not None:
        return Source(raw, _Recoded(content or raw, encoding), size, is_growing=False)
    return Source(raw, content or raw, size, is_growing=content is None)


class _Recoded:
    """Content in an encoding of several bytes for each letter, read as UTF-8."""

    def __init__(self, content: Any, encoding: str) -> None:
        self._content = content
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read1(self, most: int) -> bytes:
        while True:
            data = self._content.read1(most)
            text: str = self._decoder.decode(data, final=not data)
            if text or not data:
                return text.encode("utf-8", "replace")


def _encoding(content: Any) -> str | None:
    """Return the encoding of the content by its mark, or by where its zeros are; None where a letter is a byte."""
    try:
        begin: bytes = content.peek(_BEGIN_BYTES)[:_BEGIN_BYTES]
    except Exception:  # noqa: BLE001  # damaged content, which reading it reports
        return None
    for mark, encoding in _MARKS:
        if begin.startswith(mark):
            return encoding
    even, odd = begin[::2], begin[1::2]
    for zeros, letters, encoding in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if len(begin) >= _MAGIC_BYTES and not letters.count(0) and zeros.count(0) > len(zeros) // 2:
            return encoding
    return None


def _decompressed(raw: IO[bytes], magic: bytes) -> Any:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(b"BZh") and magic[3:4].isdigit():
        return bz2.BZ2File(raw)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    if magic.startswith(_ZSTD):
        return _zstd_reader()(raw)
    return None


def _zstd_reader() -> Callable[[IO[bytes]], Any]:
    try:
        return import_module("compression.zstd").ZstdFile  # type: ignore[no-any-return]  # from Python 3.14
    except ImportError:
        pass
    try:
        decompressor = import_module("zstandard").ZstdDecompressor()  # optional
    except ImportError:
        raise UnreadableLog("is compressed with zstd; `zstd -dc FILE | trainwarden scan -` reads it") from None
    return lambda raw: io.BufferedReader(decompressor.stream_reader(raw, read_across_frames=True))


def _reason(error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        return "is a folder; name the files in it"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
