"""What a person reads from `trainwarden scan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.unit.scan.conftest import LATER, OOM, STEPS, Scanned

Scan = Callable[..., Scanned]
Write = Callable[..., Path]


def test_the_evidence_stands_between_its_neighbours_with_what_to_do_next(scan: Scan, log: Write) -> None:
    done = scan(log("one\ntwo\nthree\n" + OOM + "five\nsix\nseven\n"))
    lines = [line.strip() for line in done.out.splitlines()]
    at = lines.index(f"4 > {OOM.strip()}")
    assert [line.removeprefix("| ") for line in lines[at - 2 : at]] == ["two", "three"]
    assert [line.removeprefix("| ") for line in lines[at + 1 : at + 3]] == ["five", "six"]
    assert "one" not in done.out
    assert "oom (cuda_oom), critical" in lines[0]
    assert "next: stop" in done.out
    assert "batch size" in done.out


def test_neighbours_are_found_across_the_pieces_in_which_a_log_is_read(scan: Scan, log: Write) -> None:
    filler = "x" * 99 + "\n"
    for before in (256 * 1024 - 40, 1024 * 1024 - 40):
        lines = filler * (before // 100)
        done = scan(log(lines + "just before\n" + OOM + "just after\n" + filler * 20_000))
        assert "| just before" in done.out
        assert "| just after" in done.out


def test_a_log_can_not_steer_the_terminal(scan: Scan, log: Write) -> None:
    done = scan(
        "--explain",
        log(b"\x1b]0;title\x07before\n" + OOM.strip().encode() + b" \x1b[2J\x1b]0;x\x07 \xc2\x9b1m \xe2\x80\xae\n"),
    )
    assert done.status == 1
    assert all(letter.isprintable() or letter == "\n" for letter in done.out)
    assert "\\x1b]0;title\\x07" in done.out


def test_explain_gives_the_reason_why_the_rest_does_not_count(scan: Scan, log: Write) -> None:
    content = (
        STEPS + OOM + LATER + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "srun: error: gpu-1: task 3: Exited with exit code 1\n"
    )
    lines = [line.strip() for line in scan("--explain", log(content)).out.splitlines()]
    assert any("cuda_oom (oom, 1x): the training went on after it" in line for line in lines)
    assert any("slurm_task_exited" in line and "follows from a failure elsewhere" in line for line in lines)
    assert any(line.startswith("cuda_illegal_access counts: the first cause") for line in lines)


def test_without_a_failure_it_shows_it_and_how_far_the_run_is(scan: Scan, log: Write) -> None:
    done = scan(log(STEPS))
    assert done.status == 0
    assert "no failure found" in done.out
    assert "step 40" in done.out
    assert done.err == ""
