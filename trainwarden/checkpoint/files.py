"""Whether single files are whole, as far as their kind tells."""

import json
import zipfile

from trainwarden.checkpoint import archive, names, safetensors
from trainwarden.checkpoint.contents import Contents, Damaged
from trainwarden.checkpoint.verdict import Report, named
from trainwarden.deadline import DeadlineExceeded

_ZIPPED = (".npz", ".pt", ".pth", ".ckpt", ".bin")
_DATA = (*_ZIPPED, ".safetensors", ".distcp", ".pkl", ".npy", ".h5", ".msgpack")
_PROBE_BYTES = 512
_SMALL_BYTES = 2**20
_MAX_CONFIGURATIONS = 64


def judge_all(contents: Contents, report: Report) -> None:
    """Look at every file of a checkpoint folder that has a beginning and an end to be compared."""
    _leftovers(contents, report)
    data = sorted(path for path in contents.files if path.endswith(_DATA))
    empty = [
        path
        for path, size in contents.files.items()
        if size == 0 and path.endswith((*_DATA, ".json")) and not path.endswith(".distcp")
    ]
    if empty and not report.against:
        report.against.append(f"{len(empty)} files are empty: {named(empty)}")
    unknown = [path for path in data if path not in report.claimed]
    if not report.layouts:
        report.doubts.append("its layout is not known: nothing says which files belong to it")
    elif unknown:
        report.doubts.append(
            f"nothing promises {len(unknown)} of its files, others like them may be lost: {named(unknown)}"
        )
    whole, untold = 0, []
    for path in data:
        if contents.files[path] == 0 or path.endswith(".distcp"):
            continue
        part = Report()
        judge(contents, path, part)
        report.against += part.against
        whole += bool(part.proof)
        if part.doubts:
            untold.append(path)
            if "gave up" in part.doubts[0]:
                report.doubts += part.doubts
                break
    if untold:
        report.doubts.append(f"whether {len(untold)} of its files are whole is not known: {named(untold)}")
    if whole:
        report.proof.append(f"{whole} files end where their headers say")
    _configurations(contents, report)
    if not report.layouts:
        report.proof.clear()


def judge(contents: Contents, path: str, report: Report) -> None:
    """Say whether a file that is not empty is whole."""
    try:
        if path.endswith(".safetensors"):
            report.proof.append(safetensors.check(contents, path))
            return
        start = contents.read(path, 0, _PROBE_BYTES)
        if start.startswith(archive.START):
            report.proof.append(archive.check(contents, path))
        elif path.endswith(".npz"):
            report.against.append(f"{path} is no zip file, as every .npz is")
        elif path.endswith(_ZIPPED) and len(start) < len(archive.START):
            report.against.append(f"{path} has {len(start)} bytes, too few for anything")
        elif path.endswith(_ZIPPED) and not start.strip(b"\0"):
            report.against.append(f"{path} begins with nothing but zeros")
        else:
            report.doubts.append(f"nothing in {path} says how long it should be")
    except Damaged as error:
        report.against.append(str(error))
    except (OSError, DeadlineExceeded) as error:
        report.doubts.append(f"{path}: {error}")
    except (zipfile.BadZipFile, ValueError, ArithmeticError, LookupError) as error:
        report.against.append(f"{path} cannot be read: {error}")


def _configurations(contents: Contents, report: Report) -> None:
    """Small JSON files are read: one that was cut off keeps a model from being loaded as much as its weights do."""
    small = [path for path, size in contents.files.items() if path.endswith(".json") and 0 < size <= _SMALL_BYTES]
    for path in sorted(small)[:_MAX_CONFIGURATIONS]:
        try:
            json.loads(contents.whole(path))
        except (ValueError, RecursionError):  # noqa: PERF203  # each on its own
            report.against.append(f"{path} is no JSON")
        except Damaged as error:
            report.against.append(str(error))
        except (OSError, DeadlineExceeded) as error:
            report.doubts.append(f"{path}: {error}")
            return


def _leftovers(contents: Contents, report: Report) -> None:
    """A temporary name beside the final one was left by an older try; alone it was never finished."""
    left = {path: finished for path in contents.files if (finished := names.final(path))}
    alone = [path for path, finished in left.items() if finished not in contents.files]
    if alone:
        # Where all that is promised is there, nobody waits for it.
        lines = report.doubts if report.proof else report.against
        lines.append(f"{len(alone)} temporary files never got their final names: {named(alone)}")
    elif left:
        report.proof.append(f"{len(left)} temporary files lie beside what replaced them: {named(list(left))}")
    report.claimed.update(left)
    if contents.others:
        report.doubts.append(f"{len(contents.others)} names are no plain files: {named(contents.others)}")
