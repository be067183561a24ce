"""Single files: truncated anywhere, with holes, or with wrong headers."""

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from trainwarden.checkpoint import verify
from trainwarden.checkpoint.contents import CheckpointFiles
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.checkpoint.tree import Listing
from trainwarden.checkpoint.verdict import CheckpointVerdict
from trainwarden.deadline import Deadline

WHOLE = {
    "step-10.safetensors": formats.safetensors(),
    "model.safetensors": formats.safetensors(tensors=0),
    "step-10.pt": formats.torch_file({"global_step": 10}),
    "epoch=0-step=10.ckpt": formats.torch_file([1] * 1000),
}


def _verdict(tmp_path: Path, name: str, data: bytes) -> CheckpointVerdict:
    (tmp_path / name).write_bytes(data)
    return verify(tmp_path / name)


@cases("name", WHOLE)
def test_a_whole_file_is_complete_and_one_cut_off_anywhere_is_not(name: str, tmp_path: Path) -> None:
    data = WHOLE[name]
    assert _verdict(tmp_path, name, data).answer == "complete"
    for length in {*range(0, len(data), 7), len(data) - 1}:
        assert _verdict(tmp_path, name, data[:length]).answer == "incomplete", f"cut off at {length} of {len(data)}"


@pytest.mark.parametrize("name", ["step-10.safetensors", "step-10.pt"])
def test_what_lacks_a_piece_in_the_middle_or_its_beginning_is_not_complete(name: str, tmp_path: Path) -> None:
    data = WHOLE[name]
    for begin in range(0, len(data) - 20, 13):
        assert _verdict(tmp_path, name, data[:begin] + data[begin + 13 :]).answer != "complete", begin


def test_a_safetensors_file_that_is_longer_than_its_header_states_is_refused_as_loaders_do(tmp_path: Path) -> None:
    assert _verdict(tmp_path, "a.safetensors", formats.safetensors() + b"\7").answer == "incomplete"


def test_a_file_that_begins_with_zeros_was_never_written_through(tmp_path: Path) -> None:
    for name in ("a.pt", "b.safetensors", "c.npz"):
        assert _verdict(tmp_path, name, b"\0" * 5000).answer == "incomplete"


@cases(
    "header",
    [
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 2**64 - 1) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"\xff\xff",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 9) + b'{"a": {}}',
    ],
)
def test_a_false_safetensors_header_proves_nothing(header: bytes, tmp_path: Path) -> None:
    assert _verdict(tmp_path, "a.safetensors", header + b"\7" * 100).answer == "incomplete"


def test_offsets_of_any_size_and_kind_are_no_trouble(tmp_path: Path) -> None:
    for offsets in ([0, 2**200], [-1, 0], ["0", "9"], [0, 1e400], None, [True, False]):
        text = json.dumps({"a": {"data_offsets": offsets}}).encode()
        data = struct.pack("<Q", len(text)) + text + b"\7" * 100
        assert _verdict(tmp_path, "a.safetensors", data).answer == "incomplete"


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 2**26)
    assert _verdict(tmp_path, "step-10.pt", file.getvalue()).answer == "complete"
    (tmp_path / "global_step10").mkdir()
    (tmp_path / "global_step10" / "mp_rank_00_model_states.pt").write_bytes(file.getvalue())
    assert verify(tmp_path / "global_step10").answer == "unverifiable"


def test_a_header_may_send_us_anywhere_and_we_go_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    contents = CheckpointFiles(FolderTree(str(tmp_path)), "", Listing({"a": 5}), Deadline(9))
    places = [(-1, 2), (5, 1), (2**63, 1), (2**200, 1), (3, 2**63)]
    assert [contents.read("a", start, length) for start, length in places] == [b"", b"", b"", b"", b"45"]


def test_a_zip_file_behind_something_else_is_not_what_was_saved(tmp_path: Path) -> None:
    assert _verdict(tmp_path, "a.pt", b"PK\x03\x04" + b"\7" * 96 + formats.torch_file()).answer == "incomplete"


def test_members_must_lie_where_the_zip_directory_states_and_fit_there(tmp_path: Path) -> None:
    data = formats.torch_file()
    entry = data.rindex(b"PK\x01\x02")
    moved = data[: entry + 42] + struct.pack("<I", data.rindex(b"PK\x03\x04") - 1) + data[entry + 46 :]
    longer = data[: entry + 20] + struct.pack("<I", 400) + data[entry + 24 :]
    for damaged in (moved, longer):
        assert _verdict(tmp_path, "a.pt", damaged).answer == "incomplete"


def test_any_one_damaged_byte_of_a_directory_raises_nothing(tmp_path: Path) -> None:
    """Half of them are noticed at least; some hold a date or a checksum, which nobody looks at here."""
    data = formats.torch_file()
    start = data.rindex(b"PK\x05\x06")
    answers = []
    for place in range(start, len(data)):
        for value in (0, 0xFF):
            damaged = data[:place] + bytes([value]) + data[place + 1 :]
            if damaged != data:
                answers.append(_verdict(tmp_path, "step-10.pt", damaged).answer)
    assert answers.count("incomplete") > len(answers) // 2
