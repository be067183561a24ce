"""Checks of single files: whether each ends where its header or directory requires."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from trainwarden.checkpoint import archive, names
from trainwarden.checkpoint.contents import MAX_READ, CheckpointFiles, DamagedFile
from trainwarden.checkpoint.verdict import Findings, abbreviated
from trainwarden.deadline import DeadlineExceeded

_TORCH = (".pt", ".pth", ".ckpt")
_ZIPPED = (*_TORCH, ".npz", ".bin")
_DATA = (*_ZIPPED, ".safetensors", ".distcp", ".pkl", ".npy", ".h5", ".msgpack")
_PROBE_BYTES = 512
_SMALL_BYTES = 2**20
_MAX_CONFIGURATIONS = 64
# Where a file of zeros is read, besides its beginning.
_PLACES = 8
# What files smaller than this have is no hole: file systems store small files in other ways.
_MIN_HOLE_FILE = 2**16
_MAX_HOLES = 4
# What torch wrote before it wrote zip files begins so; tensors follow the pickles.
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_TAIL_TENSORS = 16


def check_files(contents: CheckpointFiles, report: Findings) -> None:
    """Check all data files of a checkpoint folder, its JSON files and its temporary files.

    In a folder of a known layout, damage to a file that the layout does not promise is a doubt at most.
    """
    _leftovers(contents, report)
    data = sorted(path for path in contents.files if path.endswith(_DATA))
    promised = {path for path in data if path in report.claimed or not report.layouts}
    _empty(contents, data, promised, report)
    unknown = [path for path in data if path not in report.claimed and contents.files[path]]
    if not report.layouts:
        report.doubts.append("its layout is not known: nothing says which files belong to it")
    elif unknown:
        report.doubts.append(
            f"nothing promises {len(unknown)} of its files, others like them may be lost: {abbreviated(unknown)}"
        )
    complete, unknown_end = 0, []
    for path in data:
        if contents.files[path] == 0 or path.endswith(".distcp"):
            continue
        part = Findings(layouts=report.layouts, claimed=report.claimed)
        check_file(contents, path, part)
        if path in promised:
            report.defects += part.defects
            report.suspicions += part.suspicions
        else:
            report.remarks += part.defects + part.suspicions
        complete += bool(part.proofs)
        report.unread += part.unread
        report.remarks += part.remarks
        if part.doubts:
            unknown_end.append(path)
        if any("gave up" in line for line in part.unread):
            break
    if unknown_end:
        report.doubts.append(
            f"whether {len(unknown_end)} of its files are whole is not known: {abbreviated(unknown_end)}"
        )
    if complete:
        report.proofs.append(f"{complete} files end where their headers say")
    _configurations(contents, report)
    if not report.layouts:
        report.proofs.clear()


def check_file(contents: CheckpointFiles, path: str, report: Findings) -> None:
    """Check whether a file that is not empty is complete."""
    try:
        with contents.keep_open(path):
            _check_content(contents, path, report)
            if contents.reads_are_cheap and not report.defects:
                check_holes(contents, path, lambda _: [(0, contents.files[path])], report)
    except DamagedFile as error:
        report.defects.append(str(error))
    except (OSError, DeadlineExceeded) as error:
        report.unread.append(f"{path}: {error}")
    except (zipfile.BadZipFile, ValueError, ArithmeticError, LookupError) as error:
        report.defects.append(f"{path} cannot be read: {error}")


def _check_content(contents: CheckpointFiles, path: str, report: Findings) -> None:
    if path.endswith(".safetensors"):
        report.proofs.append(_check_safetensors(contents, path, report))
        return
    start = contents.read(path, 0, _PROBE_BYTES)
    if start.startswith(archive.START):
        report.proofs.append(archive.check(contents, path))
    elif path.endswith(".npz"):
        report.defects.append(f"{path} is no zip file, as every .npz is")
    elif path.endswith(_ZIPPED) and len(start) < len(archive.START):
        report.defects.append(f"{path} has {len(start)} bytes, too few for anything")
    elif path.endswith(_ZIPPED) and not start.strip(b"\0"):
        _begins_with_zeros(contents, path, report)
    else:
        report.doubts.append(f"nothing in {path} says how long it should be")
        if start.startswith(b"\x80") and not start.startswith(_LEGACY_TORCH) and is_zero(contents, path, -16):
            report.suspicions.append(f"{path} begins as a pickle and ends with zeros, as no pickle does")


def is_zero(contents: CheckpointFiles, path: str, start: int, length: int = 16) -> bool:
    """Whether a range of a file holds nothing but zeros; a negative `start` counts from its end."""
    data = contents.read(path, start if start >= 0 else max(0, contents.files[path] + start), length)
    return bool(data) and not data.strip(b"\0")


def _begins_with_zeros(contents: CheckpointFiles, path: str, report: Findings) -> None:
    size = contents.files[path]
    places = [size * place // _PLACES for place in range(_PLACES)]
    if all(is_zero(contents, path, place, _PROBE_BYTES) for place in (*places, -_PROBE_BYTES)):
        report.defects.append(f"{path} holds nothing but zeros wherever it was read")
    elif archive.END in contents.read(path, max(0, size - archive.END_BYTES), archive.END_BYTES):
        report.defects.append(f"{path} ends as a zip file and begins with nothing but zeros")
    elif report.layouts and path in report.claimed:
        report.defects.append(f"{path} begins with nothing but zeros")
    else:
        report.doubts.append(f"nothing in {path} says how long it should be")
        lines = report.suspicions if path.endswith(_TORCH) else report.remarks
        lines.append(f"{path} begins with zeros: it is a dump of raw data, or its beginning was lost")


def _empty(contents: CheckpointFiles, data: list[str], promised: set[str], report: Findings) -> None:
    """Add empty files: of what the checkpoint consists of a defect, unless the layouts found it already."""
    # A shard that holds no tensor is empty.
    empty = [path for path in data if contents.files[path] == 0 and not path.endswith(".distcp")]
    empty += [path for path, size in contents.files.items() if size == 0 and path.endswith(".json")]
    own = [path for path in empty if path in promised or path in report.claimed]
    if own and not report.defects:
        report.defects.append(f"{len(own)} files are empty: {abbreviated(own)}")
    extra = [path for path in empty if path not in own]
    if extra:
        report.remarks.append(f"{len(extra)} files that nothing promises are empty: {abbreviated(extra)}")


def _configurations(contents: CheckpointFiles, report: Findings) -> None:
    """Parse small JSON files: a model cannot be loaded with a truncated configuration either."""
    small = [path for path, size in contents.files.items() if path.endswith(".json") and 0 < size <= _SMALL_BYTES]
    for path in sorted(small)[:_MAX_CONFIGURATIONS]:
        # A file of the training's own may hold anything, such as a line of JSON for each step.
        lines = report.defects if path in report.claimed else report.remarks
        try:
            json.loads(contents.read_all(path))
        except (ValueError, RecursionError):
            lines.append(f"{path} is no JSON")
        except DamagedFile as error:
            lines.append(str(error))
        except (OSError, DeadlineExceeded) as error:
            report.unread.append(f"{path}: {error}")
            return


def _leftovers(contents: CheckpointFiles, report: Findings) -> None:
    """Check temporary files: one beside its final name is left from an earlier save, one alone was never finished."""
    temporary = {path: finished for path in contents.files if (finished := names.final(path))}
    alone = [path for path, finished in temporary.items() if finished not in contents.files]
    if alone:
        # If a layout is complete without it, it is a doubt only.
        lines = report.doubts if report.proofs else report.defects
        lines.append(f"{len(alone)} temporary files never got their final names: {abbreviated(alone)}")
    elif temporary:
        report.remarks.append(
            f"{len(temporary)} temporary files lie beside what replaced them: {abbreviated(list(temporary))}"
        )
    report.claimed.update(temporary)
    if contents.special:
        report.doubts.append(f"{len(contents.special)} names are no plain files: {abbreviated(contents.special)}")
    hidden = [path for path in contents.ignored if names.is_in_hidden_folder(path)]
    if hidden:
        report.remarks.append(f"{len(hidden)} files in hidden folders are no part of it: {abbreviated(hidden)}")
    removed = [path for path in contents.ignored if path not in hidden and not path.endswith(names.MANIFEST)]
    if removed:
        report.remarks.append(f"{len(removed)} files are what NFS keeps of removed ones: {abbreviated(removed)}")


def check_holes(
    contents: CheckpointFiles,
    path: str,
    archives: Callable[[tuple[int, int]], list[tuple[int, int]]],
    report: Findings,
) -> None:
    """Check ranges for which the file system stores nothing: they were never written, or are zeros that it left out.

    Args:
        contents: of the checkpoint.
        path: of the file.
        archives: returns start and length of the zip files in the file that a range, (begin, end), touches.
        report: to add to.
    """
    if contents.files[path] < _MIN_HOLE_FILE:
        return
    hole = contents.hole(path)
    for _ in range(_MAX_HOLES):
        if hole is None:
            return
        recorded = [
            archive.content_is_recorded(contents, path, hole, start=start, length=length)
            for start, length in archives(hole)
        ]
        line = f"{path} has a hole of {hole[1] - hole[0]} bytes at {hole[0]}"
        if recorded and all(recorded):
            # Zeros were saved there.
            hole = contents.hole(path, hole[1])
            continue
        if any(one is False for one in recorded):
            report.defects.append(f"{line}, and the checksums there say that something else was saved")
        else:
            report.suspicions.append(f"{line}: it was never written, or the file system leaves out zeros")
        return


def _check_safetensors(contents: CheckpointFiles, path: str, report: Findings) -> str:
    """Return the proof that a safetensors file is complete: its data end where the file does.

    The format is 8 bytes of length, a JSON header with the offsets of the tensors, and the data.

    Raises:
        DamagedFile: it is incomplete.
    """
    size = contents.files[path]
    start = contents.read(path, 0, 8)
    if len(start) < 8:
        raise DamagedFile(f"{path} has no safetensors header")
    (length,) = struct.unpack("<Q", start)
    if length > size - 8:
        raise DamagedFile(f"{path} is cut off or no safetensors file: a header of {length} bytes in a file of {size}")
    if length > MAX_READ:
        raise OSError(f"the header of {path} has {length} bytes, too many to be read")
    header = contents.read(path, 8, length)
    try:
        tensors = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"the safetensors header of {path} is no JSON") from error
    expected = 8 + length + _data_end(tensors, path)
    if size != expected:
        raise DamagedFile(f"{path} has {size} bytes, and its header promises {expected}")
    if contents.reads_are_cheap and is_zero(contents, path, -_PROBE_BYTES, _PROBE_BYTES):
        _zero_tail(contents, path, 8 + length, tensors, report)
    return f"{path} has the {size} bytes that its header promises"


def _data_end(tensors: Any, path: str) -> int:
    """Return the end of the last tensor, in bytes from the end of the header."""
    if not isinstance(tensors, dict):
        raise DamagedFile(f"the safetensors header of {path} names no tensors")
    end = 0
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(one) is int for one in offsets)):
            raise DamagedFile(f"the safetensors header of {path} gives a tensor no place")
        end = max(end, offsets[1])
    return end


def _zero_tail(contents: CheckpointFiles, path: str, data: int, tensors: dict[str, Any], report: Findings) -> None:
    """Add a suspicion if the last tensors are zeros in their middle, and a matrix is among them: biases often are."""
    found = [one for name, one in tensors.items() if name != "__metadata__"]
    found.sort(key=lambda one: one["data_offsets"], reverse=True)
    for tensor in found[:_TAIL_TENSORS]:
        begin, end = tensor["data_offsets"]
        if not is_zero(contents, path, data + (begin + end) // 2, min(_PROBE_BYTES, (end - begin + 1) // 2)):
            return
        shape = tensor.get("shape")
        if isinstance(shape, list) and len(shape) > 1:
            report.suspicions.append(f"{path} ends with zeros: its last tensors were lost, or are zeros")
            return
