"""Zip files: .pt and .ckpt of torch, .npz of numpy. They end with a directory of their members."""

from __future__ import annotations

import io
import struct
import zipfile

from trainwarden.checkpoint.contents import MAX_READ, CheckpointFiles, DamagedFile
from trainwarden.deadline import DeadlineExceeded

START = b"PK\x03\x04"
END = b"PK\x05\x06"
# Of the record at the end of a zip file without a comment, as torch and numpy write it.
END_BYTES = 22
_LOCAL_HEADER_BYTES = 30
_TAIL_BYTES = 2**16
_PIECE_BYTES = 2**20
# How many members are checked for their local header.
_SAMPLES = 8


def check(contents: CheckpointFiles, path: str) -> str:
    """Return the proof that the file is complete: the members in its directory fill it from the first byte on.

    Raises:
        DamagedFile: it is incomplete.
    """
    file = _RangeFile(contents, path)
    with _opened(file, path) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        if not members:
            raise DamagedFile(f"the zip directory of {path} is empty")
        ends = [member.header_offset for member in members[1:]] + [archive.start_dir]
        for member, end in zip(members, ends, strict=True):
            if member.header_offset + _LOCAL_HEADER_BYTES + member.compress_size > end:
                raise DamagedFile(f"the zip directory of {path} does not fit its members")
        if members[0].header_offset != 0:
            raise DamagedFile(f"{path} lacks what its zip directory says comes first")
        for member in members[:: max(1, len(members) // _SAMPLES)] + members[-1:]:
            file.seek(member.header_offset)
            if file.read(4) != START:
                raise DamagedFile(f"{path} does not hold {member.filename!r} where its zip directory says")
    return f"the zip directory at the end of {path} lists {len(members)} members, and they fill the file"


def pickle_of(contents: CheckpointFiles, path: str) -> bytes | None:
    """Return the pickle in a file of `torch.save`, without the tensors; None if there is none of a readable size.

    Raises:
        DamagedFile: the file is incomplete.
    """
    with _opened(_RangeFile(contents, path), path) as archive:
        for member in archive.infolist():
            # Uncompressed, as torch writes it: a compressed member may expand without bound.
            is_plain = member.compress_type == zipfile.ZIP_STORED and member.file_size == member.compress_size
            if member.filename.endswith("/data.pkl") and is_plain and member.file_size <= MAX_READ:
                head = contents.read(path, member.header_offset, _LOCAL_HEADER_BYTES)
                if len(head) < _LOCAL_HEADER_BYTES:
                    break
                skipped = sum(struct.unpack("<HH", head[26:30]))
                return contents.read(path, member.header_offset + _LOCAL_HEADER_BYTES + skipped, member.file_size)
    return None


def content_is_recorded(
    contents: CheckpointFiles, path: str, damaged: tuple[int, int], *, start: int = 0, length: int | None = None
) -> bool | None:
    """Return whether members are what their checksums in the zip directory say; None where they have none.

    Args:
        contents: of the checkpoint.
        path: of a file.
        damaged: begin and end of a range in the file; the members that it touches are read.
        start: of the zip file in that file.
        length: of the zip file, in bytes; up to the end of the file if None.
    """
    begin, end = damaged[0] - start, damaged[1] - start
    try:
        if contents.read(path, start, len(START)) != START:
            return None
        with _opened(_RangeFile(contents, path, start, length), path) as archive:
            members = archive.infolist()
            if not any(member.CRC for member in members) or any(member.compress_type for member in members):
                # torch has a setting that records none.
                return None
            for member in members:
                if member.header_offset < end and begin < member.header_offset + _LOCAL_HEADER_BYTES + member.file_size:
                    with archive.open(member) as file:
                        while file.read(_PIECE_BYTES):
                            pass
    except (DamagedFile, zipfile.BadZipFile):
        return False
    except (OSError, DeadlineExceeded):
        return None
    return True


def _opened(file: _RangeFile, path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    # Beside its own error zipfile raises these for damaged fields: a version that it cannot read (NotImplementedError),
    # places before the file's begin, records that are cut.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OverflowError) as error:
        raise DamagedFile(f"the zip directory of {path} cannot be read: {error}") from error


class _RangeFile(io.RawIOBase):
    """A seekable file, or a part of one, that reads only the requested ranges: the end once, and up to MAX_READ bytes.

    Args:
        contents: of the checkpoint.
        path: of the file.
        start: of the part.
        length: of the part, in bytes; up to the end of the file if None.
    """

    def __init__(self, contents: CheckpointFiles, path: str, start: int = 0, length: int | None = None) -> None:
        super().__init__()
        self._contents = contents
        self._path = path
        self._start = start
        self._size = contents.files[path] - start if length is None else length
        self._position = 0
        self._budget = MAX_READ
        self._tail_start = max(0, self._size - _TAIL_BYTES)
        self._tail = contents.read(path, start + self._tail_start, self._size - self._tail_start)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("before the beginning of the file")
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        length = max(0, self._size - self._position)
        length = length if size < 0 else min(size, length)
        self._budget -= length
        if self._budget < 0:
            raise OSError(f"the zip directory of {self._path} is too large to be read")
        if self._position >= self._tail_start:
            begin = self._position - self._tail_start
            data = self._tail[begin : begin + length]
        else:
            data = self._contents.read(self._path, self._start + self._position, length)
        self._position += len(data)
        return data
