"""Checks of single files: whether each ends where its header or directory requires."""

from __future__ import annotations

import json
import struct
import zipfile
from typing import Any

from trainwarden.checkpoint import archive, names
from trainwarden.checkpoint.contents import MAX_READ, CheckpointFiles, DamagedFile
from trainwarden.checkpoint.verdict import Findings, abbreviated
from trainwarden.deadline import DeadlineExceeded

_ZIPPED = (".npz", ".pt", ".pth", ".ckpt", ".bin")
_DATA = (*_ZIPPED, ".safetensors", ".distcp", ".pkl", ".npy", ".h5", ".msgpack")
_PROBE_BYTES = 512
_SMALL_BYTES = 2**20
_MAX_CONFIGURATIONS = 64


def check_files(contents: CheckpointFiles, report: Findings) -> None:
    """Check all data files of a checkpoint folder, its small JSON files and its temporary files."""
    _leftovers(contents, report)
    data = sorted(path for path in contents.files if path.endswith(_DATA))
    empty = [
        path
        for path, size in contents.files.items()
        if size == 0 and path.endswith((*_DATA, ".json")) and not path.endswith(".distcp")
    ]
    if empty and not report.defects:
        report.defects.append(f"{len(empty)} files are empty: {abbreviated(empty)}")
    unknown = [path for path in data if path not in report.claimed]
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
        part = Findings()
        check_file(contents, path, part)
        report.defects += part.defects
        complete += bool(part.proofs)
        if part.doubts:
            unknown_end.append(path)
            if "gave up" in part.doubts[0]:
                report.doubts += part.doubts
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
        if path.endswith(".safetensors"):
            report.proofs.append(_check_safetensors(contents, path))
            return
        start = contents.read(path, 0, _PROBE_BYTES)
        if start.startswith(archive.START):
            report.proofs.append(archive.check(contents, path))
        elif path.endswith(".npz"):
            report.defects.append(f"{path} is no zip file, as every .npz is")
        elif path.endswith(_ZIPPED) and len(start) < len(archive.START):
            report.defects.append(f"{path} has {len(start)} bytes, too few for anything")
        elif path.endswith(_ZIPPED) and not start.strip(b"\0"):
            report.defects.append(f"{path} begins with nothing but zeros")
        else:
            report.doubts.append(f"nothing in {path} says how long it should be")
    except DamagedFile as error:
        report.defects.append(str(error))
    except (OSError, DeadlineExceeded) as error:
        report.doubts.append(f"{path}: {error}")
    except (zipfile.BadZipFile, ValueError, ArithmeticError, LookupError) as error:
        report.defects.append(f"{path} cannot be read: {error}")


def _configurations(contents: CheckpointFiles, report: Findings) -> None:
    """Parse small JSON files: a model cannot be loaded with a truncated configuration either."""
    small = [path for path, size in contents.files.items() if path.endswith(".json") and 0 < size <= _SMALL_BYTES]
    for path in sorted(small)[:_MAX_CONFIGURATIONS]:
        try:
            json.loads(contents.read_all(path))
        except (ValueError, RecursionError):  # noqa: PERF203  # each is checked on its own
            report.defects.append(f"{path} is no JSON")
        except DamagedFile as error:
            report.defects.append(str(error))
        except (OSError, DeadlineExceeded) as error:
            report.doubts.append(f"{path}: {error}")
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
        report.proofs.append(
            f"{len(temporary)} temporary files lie beside what replaced them: {abbreviated(list(temporary))}"
        )
    report.claimed.update(temporary)
    if contents.special:
        report.doubts.append(f"{len(contents.special)} names are no plain files: {abbreviated(contents.special)}")


def _check_safetensors(contents: CheckpointFiles, path: str) -> str:
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
