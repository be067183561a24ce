"""A tailed log counts every record once, across reads, rotations and restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwarden.signals.model import Match, Signal
from trainwarden.signals.pack import Pack
from trainwarden.signals.tailing.log import KEPT, MAX_SEEN, Searcher, TailedLog

BOOM = Signal("boom", "boom (?P<n>\\d+)", failure="cuda_oom", shipped=True)


class Tailing:
    """A log and a tail of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.txt"
        self.folder = folder
        self.searcher = Searcher(Pack("test", "test", (BOOM,)))
        self.log = TailedLog(str(self.path), [str(folder)], 1 << 30)
        self.now = 1000.0

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def found(self, *, last: bool = False) -> list[str]:
        """The numbers in what is new."""
        return [match.fields["n"] for match in self.matches(last=last)]

    def matches(self, *, last: bool = False) -> list[Match]:
        self.log.poll(self.now)
        matches = []
        while taken := self.log.take(self.searcher, self.now, last=last):
            matches += taken[0]
        return matches

    def restart(self) -> None:
        """Go on from what the state file would hold."""
        state = json.loads(json.dumps(self.log.state()))
        self.log.follower.close()
        self.log = TailedLog(str(self.path), [str(self.folder)], 1 << 30)
        self.log.restore(state, self.searcher.signals)


@pytest.fixture
def tailing(tmp_path: Path) -> Tailing:
    return Tailing(tmp_path)


def test_a_record_split_across_reads_is_one_record(tailing: Tailing) -> None:
    tailing.add(b"bo")
    assert tailing.found() == []
    tailing.add(b"om 1")
    assert tailing.found() == []
    tailing.add(b"2\n")
    assert tailing.found() == ["12"]
    assert tailing.found() == []


def test_a_record_split_by_a_restart_is_one_record(tailing: Tailing) -> None:
    tailing.add(b"boom 1\nboo")
    assert tailing.found() == ["1"]
    tailing.restart()
    tailing.add(b"m 2\n")
    assert tailing.found() == ["2"]
    assert tailing.log.seen[-1].match.line == 2


def test_the_last_record_counts_once_though_nothing_ends_it(tailing: Tailing) -> None:
    tailing.add(b"boom 1\nboom 2")
    assert tailing.found() == ["1"]
    assert tailing.found(last=True) == ["2"]
    assert tailing.found(last=True) == []


def test_the_last_record_of_a_rotated_file_counts(tailing: Tailing) -> None:
    tailing.add(b"boom 1")
    assert tailing.found() == []
    tailing.path.rename(tailing.folder / "log.txt.1")
    tailing.add(b"boom 2\n")
    assert tailing.found() == ["1", "2"]
    assert [one.match.offset for one in tailing.log.seen] == [0, 6]


def test_carriage_returns_nul_bytes_and_other_encodings_are_read(tailing: Tailing) -> None:
    tailing.add(b"10%\rboom 1\r20%\r\xff\xfe\x00 boom 2\n\x00\x00boom 3\x00\n")
    assert tailing.found() == ["1", "2", "3"]


def test_a_line_of_100_mb_costs_neither_memory_nor_what_follows(tailing: Tailing) -> None:
    tailing.add(b"boom 1 ")
    for _ in range(100):
        tailing.add(b"x" * 1_000_000)
    tailing.add(b" boom 2\nboom 3\n")
    assert tailing.found() == ["1", "3"]
    assert tailing.searcher.scanner.records_cut == 1


def test_a_restart_within_a_long_line_goes_on_within_it(tailing: Tailing) -> None:
    tailing.add(b"boom 1 " + b"x" * 1_000_000)
    assert tailing.found() == ["1"]
    tailing.restart()
    tailing.add(b" boom 2\nboom 3\n")
    assert tailing.found() == ["3"]


def test_of_a_storm_the_first_matches_and_the_last_are_kept(tailing: Tailing) -> None:
    tailing.add(b"".join(b"boom %d\n" % number for number in range(50_000)))
    counts = [match.count for match in tailing.matches()]
    assert (sum(counts), len(counts) < 1000) == (50_000, True)
    assert [one.match.fields["n"] for one in tailing.log.seen] == [*map(str, range(KEPT - 1)), "49999"]


def test_findings_and_progress_survive_a_restart(tailing: Tailing) -> None:
    tailing.add(b"step: 5/100 loss: 1.5\nboom 1\n")
    tailing.found()
    tailing.restart()
    assert tailing.log.progress.step == 5
    assert [one.match.text for one in tailing.log.seen] == ["boom 1"]


def test_what_the_training_got_over_is_no_longer_kept(tailing: Tailing) -> None:
    tailing.add(b"boom 1\n")
    tailing.found()
    for step in range(1, 5):
        tailing.add(b"step: %d/100 loss: 1.5\n" % step)
        tailing.found()
    assert tailing.log.seen == []


def test_a_new_attempt_begins_without_the_findings_of_the_old_one(tailing: Tailing) -> None:
    tailing.add(b"step: 50/100 loss: 1.5\nboom 1\n")
    tailing.found()
    written = tailing.log.seen[0].time
    tailing.log.forget_before(written + 1)
    assert tailing.log.seen == []
    assert tailing.log.progress.step is None


@pytest.mark.parametrize("state", [{}, {"file": 1}, {"file": None, "progress": {}}])
def test_a_state_that_is_none_is_an_error_and_changes_nothing(tailing: Tailing, state: dict[str, object]) -> None:
    tailing.add(b"boom 1\n")
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        tailing.log.restore(state, tailing.searcher.signals)
    assert tailing.found() == ["1"]


def test_of_a_log_with_every_signal_the_first_matches_are_kept_and_few(tmp_path: Path) -> None:
    tailing = Tailing(tmp_path)
    signals = [Signal(f"s{number}", f"fault {number} ", failure="cuda_oom") for number in range(MAX_SEEN + 20)]
    tailing.searcher = Searcher(Pack("test", "test", tuple(signals)))
    for number in range(MAX_SEEN + 20):
        tailing.add(f"fault {number} here\n".encode() * (KEPT if number == 0 else 1))
    assert len(tailing.matches()) == MAX_SEEN + 20 + KEPT - 1
    assert [one.match.signal.name for one in tailing.log.seen] == [f"s{number}" for number in range(MAX_SEEN)]


def test_of_a_log_among_very_many_fewer_matches_are_kept_of_each_signal_one_at_first(tmp_path: Path) -> None:
    tailing = Tailing(tmp_path)
    tailing.searcher = Searcher(Pack("test", "test", tuple(Signal(f"s{each}", f"fault {each} ") for each in range(4))))
    for number in (0, 0, 1, 0, 2, 3):
        tailing.add(f"fault {number} here\n".encode())
    tailing.matches()

    def kept() -> list[str]:
        return [one.match.signal.name for one in tailing.log.seen]

    assert kept() == ["s0", "s0", "s1", "s0", "s2", "s3"]
    tailing.log.keep_at_most(4)
    assert kept() == ["s0", "s1", "s2", "s3"]
    tailing.log.keep_at_most(3)
    tailing.add(b"fault 1 again\n")
    tailing.matches()
    assert kept() == ["s0", "s1", "s2"]


def test_a_pattern_with_many_groups_keeps_little_of_a_match(tmp_path: Path) -> None:
    tailing = Tailing(tmp_path)
    groups = "".join(f"(?P<g{number}>.{{100}})" for number in range(90))
    tailing.searcher = Searcher(Pack("test", "test", (Signal("many", groups),)))
    tailing.add(b"x" * 9000 + b"\n")
    [match] = tailing.matches()
    assert sum(map(len, match.fields.values())) <= 2000
