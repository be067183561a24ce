"""A file of a record is read with the memory that it needs, and no further than its limit."""

import json
import os
import tracemalloc
from pathlib import Path

from tests.cases import cases
from trainwarden.record.document import FileContent, JsonObject, Unreadable, parse_json, read_file, read_open


def test_a_short_file_takes_no_memory_for_a_long_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2000)
    tracemalloc.start()
    try:
        found = read_file(tmp_path / "file")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, FileContent)
    assert found.data == b"x" * 2000
    assert peak < 100_000


@cases("size", [0, 1, 99, 100])
def test_a_file_is_read_up_to_its_limit(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    found = read_file(tmp_path / "file", limit=100)
    assert isinstance(found, FileContent)
    assert found.data == b"x" * size


def test_a_file_beyond_its_limit_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    assert read_file(tmp_path / "file", limit=100) == Unreadable(tmp_path / "file", "is larger than 100 bytes")


@cases(("stated", "limit"), [(0, 200_000), (3, 200_000), (150_000, 200_000), (150_000, 90_000)])
def test_a_file_that_has_grown_since_its_size_was_seen_is_read_whole(tmp_path: Path, stated: int, limit: int) -> None:
    data = os.urandom(150_000)
    (tmp_path / "file").write_bytes(data)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert read_open(descriptor, stated, limit) == data[:limit]
    finally:
        os.close(descriptor)


@cases("value", [2**63, 10**200, 1e200])
def test_a_whole_number_that_no_counter_reaches_is_a_problem_of_the_record(value: float) -> None:
    found = JsonObject({"step": value, "largest": 2**63 - 1})
    assert (found.integer("step"), found.integer("largest")) == (None, 2**63 - 1)
    [problem] = found.problems
    assert problem.startswith("step: '1" if value > 2**63 else "step: '9")
    assert problem.endswith("is not a whole number below 2^63")


@cases(
    "data",
    [
        b'{"a": 1}', b'{"a": 1}\n', b'{"a": 1} \n\n', b' {"a": 1}', b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"), b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}',
        b'{"a": 1} x', b'{"a": 1}{"b": 2}', b'{"a": ', b'{"a"', b'{"', b'{"a": nul}', b'{"a": NaN}',
        b'{"a":' * 100_000,
    ],
)  # fmt: skip
def test_an_object_reads_as_json_reads_it(data: bytes) -> None:
    found = parse_json(FileContent(data, 0.0), "f")
    try:
        expected = json.loads(data)
    except (ValueError, RecursionError) as error:
        assert isinstance(found, Unreadable)
        assert found.reason == f"is not JSON: {error}"
    else:
        assert isinstance(found, JsonObject)
        assert repr(found.values) == repr(expected)
