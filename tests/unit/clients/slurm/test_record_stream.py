"""A long list of records is read one by one, and counts as read only once its answer is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.cases import cases
from trainwarden.clients.slurm.record_stream import AnswerErrors, read_records

RECORDS: list[Any] = [
    {"job_id": 1, "name": 'a"]},\\ {[', "nested": {"jobs": [1, {}]}},
    {},
    [],
    "text",
    None,
    True,
    12,
    -1.5e3,
    {"job_id": 2, "deep": [[[[{"a": "é\u2028"}]]]]},
]


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(answer: Any, size: int = 7) -> list[Any]:
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return list(read_records(cut(data, size), "jobs"))


@cases("size", [1, 2, 3, 5, 64, 1 << 20])
@cases(
    "answer",
    [
        {"meta": {"jobs": [9]}, "errors": [], "jobs": RECORDS},
        {"jobs": RECORDS, "last_update": {"set": True, "number": 17952}, "errors": [], "warnings": ["x"]},
    ],
    ids=["22.05", "24.05"],
)
def test_every_record_is_read_wherever_the_answer_is_cut(answer: dict[str, Any], size: int) -> None:
    for text in (json.dumps(answer), json.dumps(answer, indent=2, ensure_ascii=False)):
        assert read(text.encode(), size) == RECORDS


def test_an_empty_list_has_no_records() -> None:
    assert read(b' { "jobs" : [ ] , "errors" : [ ] } \n') == []


def test_control_characters_and_bytes_that_are_no_utf_8_stay_in_their_record() -> None:
    answer = b'{"jobs": [{"name": "a\xff\x01\tb"}, {"name": "c"}]}'
    assert read(answer, 1) == [{"name": "a\ufffd\x01\tb"}, {"name": "c"}]


@pytest.mark.parametrize("where", ["before", "after"])
def test_errors_count_wherever_they_stand(where: str) -> None:
    errors = {"errors": [{"description": "Failed"}]}
    jobs: dict[str, Any] = {"jobs": [1]}
    with pytest.raises(AnswerErrors, match="Failed"):
        read({**errors, **jobs} if where == "before" else {**jobs, **errors})


@cases(
    "answer",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"jobs": {}}',
        b'{"jobs": null}',
        b'{"jobs": [1, 2',
        b'{"jobs": [1, 2]',
        b'{"jobs": [1 2]}',
        b'{"jobs": [1,]}',
        b'{"jobs": [1], "jobs": [2]}',
        b'{"jobs": [1]} {}',
        b'{"jobs": [1], 7: 8}',
        b'{"jobs": [{"name": "x]}',
    ],
)
def test_an_answer_that_is_not_complete_is_an_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(answer, 3)


def test_nesting_without_end_is_an_error() -> None:
    with pytest.raises((ValueError, RecursionError)):
        read(b'{"jobs": [' + b"[" * 200_000, 1 << 16)


def test_records_come_while_the_answer_is_still_arriving() -> None:
    arrived = []

    def chunks() -> Iterable[bytes]:
        for number in range(1000):
            arrived.append(number)
            yield b"%s%d" % (b"," if number else b'{"jobs": [', number)
        yield b"]}"

    records = read_records(chunks(), "jobs")
    assert [next(records) for _ in range(3)] == [0, 1, 2]
    assert len(arrived) < 10


def test_one_long_record_takes_linear_time() -> None:
    record = {"nodes": [f"n{number}" for number in range(500_000)]}
    assert read({"jobs": [record]}, 4096) == [record]
