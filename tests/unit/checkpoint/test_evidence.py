"""Damage that leaves every file in its place and at its length; and oddities that are no damage."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from trainwarden.checkpoint import choose, newest, size_of, verify
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.cli import main
from trainwarden.record.progress import Checkpoint

_SAVED = 1_700_000_000.0
_HOUR = 3600.0


def dcp_of_zips(ranks: int = 3, items: int = 6, data: int = 100_000) -> formats.Files:
    """torch.distributed.checkpoint whose items are zip files, as torch writes them."""
    shard = formats.torch_file(data=data) * items
    files = {f"__{rank}_0.distcp": shard for rank in range(ranks)}
    return {".metadata": formats.dcp_metadata({name: len(shard) for name in files}, pieces=items), **files}


def saved_at(folder: Path, times: dict[str, float]) -> None:
    """Give the files, by their names, the times of their last change."""
    for name, time in times.items():
        os.utime(folder / name, (time, time))


def overwrite(path: Path, begin: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(data)


def punch(path: Path, begin: int, length: int) -> None:
    """Make a hole: the rest of the file stays as it is."""
    content = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.write(content[:begin])
        file.seek(begin + length)
        file.write(content[begin + length :])


def dcp_in(tmp_path: Path) -> Path:
    folder = write(tmp_path / "step-10", dcp_of_zips())
    saved_at(folder, {"__0_0.distcp": _SAVED - 2, "__1_0.distcp": _SAVED - 1, "__2_0.distcp": _SAVED - 1})
    saved_at(folder, {".metadata": _SAVED})
    return folder


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    return dcp_in(tmp_path)


def test_shards_of_an_interrupted_save_over_an_older_one_are_never_complete(dcp: Path) -> None:
    assert verify(dcp).answer == "complete"
    saved_at(dcp, {"__0_0.distcp": _SAVED + _HOUR})
    verdict = verify(dcp)
    assert verdict.answer == "unverifiable"
    assert "1 of 3 shards are 3600 s newer than .metadata" in verdict.evidence[0]
    assert verify(dcp, size_of(dcp)).answer == "unverifiable", "the sizes of both saves are the same"
    assert verify(dcp, trust="complete").answer == "unverifiable"


def test_a_checkpoint_with_a_sign_of_damage_is_the_last_that_is_chosen(dcp: Path) -> None:
    saved_at(dcp, {"__0_0.distcp": _SAVED + _HOUR})
    plain = write(dcp.parent / "step-5", {"model.pt": formats.torch_file()})
    suspect, unknown = Checkpoint(str(dcp), 10, size_bytes=size_of(dcp)), Checkpoint(str(plain), 5)
    assert choose([suspect, unknown])[0] is unknown
    assert choose([suspect])[0] is suspect
    best = newest(dcp.parent)
    assert best is not None and best[0].step == 5


@cases(
    "times",
    [
        {"__0_0.distcp": 4, "__1_0.distcp": 4, ".metadata": 0},
        {"__0_0.distcp": 60, "__1_0.distcp": 120, "__2_0.distcp": 190, ".metadata": 0},
        {"__0_0.distcp": 60, "__1_0.distcp": 120, "__2_0.distcp": 250, ".metadata": 180},
        {"__0_0.distcp": 900, "__1_0.distcp": 900, "__2_0.distcp": 900, ".metadata": 0},
        dict.fromkeys(("__0_0.distcp", "__1_0.distcp", "__2_0.distcp", ".metadata"), -_SAVED),
    ],
    ids=["clocks of hosts", "copied in order", "copied in any order", "copied at once", "without times"],
    dcp=dcp_in,
)
def test_times_that_have_another_cause_leave_it_complete(dcp: Path, times: dict[str, float]) -> None:
    saved_at(dcp, {name: _SAVED + time for name, time in times.items()})
    assert verify(dcp).answer == "complete", verify(dcp)


@cases(("begin", "length"), [(0, None), (0, 4096), (-4096, 4096), (-22, 22)], dcp=dcp_in)
def test_zeros_at_an_end_of_a_shard_are_noticed(dcp: Path, begin: int, length: int | None) -> None:
    shard = dcp / "__1_0.distcp"
    size = shard.stat().st_size
    overwrite(shard, begin % size, b"\0" * (length or size))
    verdict = verify(dcp, size_of(dcp))
    assert verdict.answer == "incomplete"
    assert "__1_0.distcp holds zeros" in verdict.evidence[0]


def test_items_that_are_not_where_the_metadata_promises_them_are_of_another_save(dcp: Path) -> None:
    shard = dcp / "__1_0.distcp"
    shard.write_bytes((b"\7" * 100 + shard.read_bytes())[: shard.stat().st_size])
    assert "__1_0.distcp holds something else at 0" in verify(dcp).evidence[0]
    assert verify(dcp).answer == "incomplete"


def test_the_only_shard_of_zeros_is_no_shard(tmp_path: Path) -> None:
    folder = write(tmp_path / "step-10", dcp_of_zips(ranks=1))
    (folder / "__0_0.distcp").write_bytes(b"\0" * (folder / "__0_0.distcp").stat().st_size)
    assert verify(folder).answer == "incomplete"


HOLED: dict[str, tuple[str, Callable[[], formats.Files]]] = {
    "DCP": ("__1_0.distcp", dcp_of_zips),
    "torch": ("step_7.pt", lambda: {"step_7.pt": formats.torch_file(data=500_000)}),
    "Trainer": (
        "optimizer.pt",
        lambda: {**formats.transformers_trainer(10), "optimizer.pt": formats.torch_file(data=500_000)},
    ),
}


@cases("kind", HOLED)
def test_a_hole_in_a_file_is_noticed_by_its_checksums(kind: str, tmp_path: Path) -> None:
    name, files = HOLED[kind]
    folder = write(tmp_path / "checkpoint-10", files())
    path = folder if kind != "torch" else folder / name
    assert verify(path).answer == "complete"
    punch(folder / name, 131_072, 65_536)
    verdict = verify(path, size_of(path))
    assert verdict.answer == "incomplete", verdict
    assert f"{name} has a hole of 65536 bytes at 131072" in verdict.evidence[0]


def test_zeros_that_were_saved_may_be_stored_as_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "step_7.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
        archive.writestr("archive/data/0", b"\0" * 500_000)
    punch(path, 131_072, 65_536)
    assert verify(path).answer == "complete", verify(path)


def test_a_hole_that_no_checksum_covers_leaves_a_suspicion_whatever_its_size(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(formats.safetensors(of_bytes=100_000))
    assert verify(path).answer == "complete"
    punch(path, 131_072, 65_536)
    verdict = verify(path, path.stat().st_size)
    assert verdict.answer == "unverifiable"
    assert "has a hole of 65536 bytes" in verdict.evidence[0]


@pytest.mark.parametrize(("shape", "answer"), [([100, 1000], "unverifiable"), ([100_000], "complete")])
def test_zeros_at_the_end_of_safetensors_are_suspect_where_they_are_a_matrix(
    tmp_path: Path, shape: list[int], answer: str
) -> None:
    places = {"a": [0, 200_000], "b": [200_000, 300_000]}
    header = {name: {"dtype": "U8", "shape": shape, "data_offsets": place} for name, place in places.items()}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\7" * 200_000 + b"\0" * 100_000)
    assert verify(path).answer == answer, verify(path)


def _beside(name: str, data: bytes) -> Callable[[Path], None]:
    def add(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return add


@cases(
    "add",
    [
        _beside("metrics.json", b'{"step": 1}\n{"step": 2}\n'),
        _beside("notes.json", b""),
        _beside("DONE", b""),
        _beside(".nfs000000000a1b2c3d00000001", b"\7" * 300),
        _beside(".~tmp~/__0_0.distcp", b"PK\3\4 half"),
        _beside(".cache/huggingface/download/model.safetensors", b"half"),
    ],
    ids=["lines of JSON", "empty JSON", "empty marker", "removed on NFS", "copy under way", "download"],
)
@cases("layout", ["DCP", "Trainer"])
def test_what_a_user_keeps_beside_it_leaves_it_complete(
    add: Callable[[Path], None], layout: str, tmp_path: Path
) -> None:
    files = dcp_of_zips() if layout == "DCP" else formats.transformers_trainer(10)
    folder = write(tmp_path / "checkpoint-10", files)
    size = size_of(folder)
    add(folder)
    assert verify(folder).answer == verify(folder, size).answer == "complete", verify(folder)


@cases("data", [b"", b"\0" * 5000, b"\0" * 4096 + b"\7" * 999, b"PK\x03\x04 no zip"], dcp=dcp_in)
def test_a_file_that_no_layout_promises_is_never_a_reason_to_reject(dcp: Path, data: bytes) -> None:
    (dcp / "dump.bin").write_bytes(data)
    verdict = verify(dcp)
    assert verdict.answer != "incomplete", verdict
    assert "dump.bin" in str(verdict)


@cases("name", ["step_7.bin", "step_7/dump.bin", "step_7/dump.pt"])
def test_a_dump_of_raw_data_may_begin_with_zeros(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\0" * 4096 + os.urandom(9999))
    verdict = verify(tmp_path / name.partition("/")[0])
    assert verdict.answer == "unverifiable"
    assert "begins with zeros" in str(verdict)


def test_files_that_nfs_keeps_of_removed_ones_do_not_count_into_the_size(dcp: Path) -> None:
    kept = dcp / ".nfs000000000a1b2c3d00000001"
    kept.write_bytes(b"\7" * 1000)
    size = size_of(dcp)
    assert "NFS" in str(verify(dcp))
    kept.unlink()
    assert verify(dcp, size).answer == "complete"


def plain_in(tmp_path: Path) -> Path:
    """Folders of files in no known layout, the older one in a known one."""
    write(tmp_path / "step_10", formats.dcp())
    return write(tmp_path / "step_20", {"model.pt": formats.torch_file(), "loader.pkl": b"\x80\x02N."})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return plain_in(tmp_path)


def test_a_plain_folder_counts_where_its_owner_vouches_for_it(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [verify(plain, trust=trust).answer for trust in ("layout", "complete", "none")]
    assert answers == ["unverifiable", "complete", "unverifiable"]
    steps = [(best := newest(plain.parent, trust=trust)) and best[0].step for trust in ("layout", "complete")]
    assert steps == [10, 20]
    assert main(["checkpoints", "--newest", "--trust", "complete", str(plain.parent)]) == 0
    assert capsys.readouterr().out == f"{plain}\n"
    assert main(["checkpoints", "--trust", "none", str(plain.parent)]) == 3
    candidates = [Checkpoint(str(plain)), Checkpoint(str(plain.parent / "step_10"))]
    assert choose(candidates)[0] is candidates[1]
    assert choose(candidates, "complete")[0] is candidates[0]


@cases("damage", [b"", formats.torch_file()[:300], b"\0" * 5000], plain=plain_in)
def test_no_owner_vouches_for_a_defect(plain: Path, damage: bytes) -> None:
    (plain / "model.pt").write_bytes(damage)
    assert verify(plain, trust="complete").answer == "incomplete"


def test_no_owner_vouches_for_what_cannot_be_read(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, *rest: Any, **options: Any) -> Any:
        if str(path).endswith("model.pt"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert verify(plain, trust="complete").answer == "unverifiable"


def test_many_shards_cost_one_open_and_a_few_short_reads_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = formats.torch_file(data=100)
    shards = {f"__{rank}_0.distcp": item * 20 for rank in range(200)}
    metadata = formats.dcp_metadata({name: len(data) for name, data in shards.items()}, pieces=20)
    folder = write(tmp_path / "step-10", {".metadata": metadata, **shards})
    opened: list[str] = []
    read: list[int] = []
    real_open, real_pread = os.open, os.pread

    def count_open(path: Any, *rest: Any, **options: Any) -> int:
        opened.append(str(path))
        return real_open(path, *rest, **options)

    def count_read(descriptor: int, length: int, start: int) -> bytes:
        data = real_pread(descriptor, length, start)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "open", count_open)
    monkeypatch.setattr(os, "pread", count_read)
    assert verify(folder).answer == "complete"
    assert len(opened) == 201
    assert sum(read) - len(metadata) <= 200 * 128
    assert len(read) <= 201 + 200 * 6


def test_a_file_that_is_kept_open_is_opened_once_and_closed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    tree = FolderTree(str(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with tree.keep_open("a"):
        assert (tree.read("a", 0, 2), tree.read("a", 2, 9)) == (b"12", b"345")
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before
