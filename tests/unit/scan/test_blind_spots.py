"""What cannot be searched never counts as healthy."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.scan.conftest import LATER, OOM, STEPS, Scanned

Scan = Callable[..., Scanned]
Write = Callable[..., Path]


@cases("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@cases("packed", [False, True])
def test_a_log_of_two_bytes_for_a_letter_is_read(scan: Scan, log: Write, encoding: str, packed: bool) -> None:
    data = (STEPS + "Verlust: 3 µs, schön\r\n" + OOM).encode(encoding)
    done = scan("--format", "json", log(gzip.compress(data) if packed else data))
    assert (done.status, done.objects[0]["failure"], done.objects[0]["progress"]["step"]) == (1, "cuda_oom", 40)
    assert scan(log((STEPS + LATER).encode(encoding))).status == 0


def test_text_of_two_bytes_for_a_letter_within_a_log_is_reported(scan: Scan, log: Write) -> None:
    done = scan("--format", "json", log(STEPS.encode() + OOM.encode("utf-16-le")))
    assert (done.status, done.objects[0]["error_type"]) == (3, None)
    assert "NUL bytes" in done.err


def test_a_failure_behind_the_limit_of_a_record_is_no_health(scan: Scan, log: Write) -> None:
    done = scan(log(STEPS + "x" * 70_000 + OOM))
    assert done.status == 3
    assert "1 records were searched in part" in done.err
    assert "as far as it could be read" in done.out


def test_what_follows_a_hole_is_read_and_the_hole_is_reported(scan: Scan, log: Write) -> None:
    done = scan(log(b"\0" * 100_000 + b"KeyError: 'input_ids'\n"))
    assert (done.status, "input_ids" in done.out) == (1, True)
    assert "100000 NUL bytes" in done.err
    assert scan(log(b"\0" * 5000 + STEPS.encode())).status == 3
    assert scan(log(STEPS.encode() + b"a stray \0 in a print\n")).status == 0


def test_a_signal_that_was_switched_off_is_reported(
    scan: Scan, log: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.signals.patterns.TIME_LIMIT_SECONDS", 0.05)
    pack = tmp_path / "mine.yaml"
    pack.write_text("log_signals: [{name: slow, pattern: '(a|a)+b(?<=x)y', state: CrashState}]\n")
    lines = ("a" * 40 + "b\n") * 4
    done = scan("--signals", pack, log(lines))
    assert done.status == 3
    assert "the signal slow was off" in done.err


def test_a_failure_counts_more_than_a_blind_spot_and_less_than_an_unreadable_log(
    scan: Scan, log: Write, tmp_path: Path
) -> None:
    blind, failed = log(STEPS + "x" * 70_000 + "\n", "blind"), log(OOM, "failed")
    assert scan(blind, failed).status == 1
    assert scan(blind, tmp_path / "absent").status == 2
    assert scan(log(STEPS, "fine"), blind).status == 3


@cases(
    "line",
    [
        "\x1b[31mtorch.OutOfMemoryError\x1b[0m: \x1b[1mCUDA out \x1b[4mof\x1b[24m memory\x1b[0m. Tried 2 GiB",
        "torch.OutOfMemoryError: CUDA \x1b]8;;https://pytorch.org/oom\x1b\\out of\x1b]8;;\x1b\\ memory.",
        "torch.OutOfMemoryError: CUDA\x1b[K out of\x1b[38;5;196m mem\x1b[0mory.\x1b[K",
        "\x1b(B\x1b[mtorch.OutOfMemoryError: CU\x1b[1mDA out of memory.\x1b]0;title\x07",
    ],
)
def test_colours_and_links_within_words_are_read_through(scan: Scan, log: Write, line: str) -> None:
    done = scan("--format", "json", log(STEPS + line + "\n" + "after\n"))
    assert (done.status, done.objects[0]["failure"]) == (1, "cuda_oom")
    assert [one["line"] for one in done.objects[0]["evidence"]][:1] == [41]
    assert "\x1b" not in done.objects[0]["evidence"][0]["text"]
