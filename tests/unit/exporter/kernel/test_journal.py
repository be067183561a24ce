"""The kernel's log out of the journal, as a journalctl of ours tells it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.collectors.kernel.collector import KernelCollector
from trainwarden_exporter.collectors.kernel.log import (
    JOURNAL_INTERVAL_SECONDS,
    Journal,
    KernelLogUnreadable,
    journal_readable,
)
from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

XID = "NVRM: Xid (PCI:0000:18:00): 48, pid=12, Double Bit ECC Error"

pytestmark = pytest.mark.process


def entry(cursor: str, message: object, microseconds: int = 2_500_000, **fields: str) -> str:
    return json.dumps(
        {
            "_TRANSPORT": "kernel",
            "SYSLOG_FACILITY": "0",
            "__CURSOR": cursor,
            "__MONOTONIC_TIMESTAMP": "9999999",
            "_SOURCE_MONOTONIC_TIMESTAMP": str(microseconds),
            "MESSAGE": message,
            "PRIORITY": "3",
            **fields,
        }
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that notes how it is called and prints what the file `said` holds."""
    program = tmp_path / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return program


def test_each_line_comes_once_and_the_next_question_goes_on_where_the_last_ended(
    journalctl: Path, tmp_path: Path
) -> None:
    clock = Clock()
    journal = Journal(tmp_path, clock)
    said = tmp_path / "said"
    said.write_text(entry("c1", "first") + "\n" + entry("c2", list(b"caf\xc3\xa9 \xff")) + "\n" + '{"half')
    first = journal.read()
    assert [(line.sequence, line.logged, line.level, line.text) for line in first] == [
        (1, 2.5, 3, "first"),
        (2, 2.5, 3, "café \N{REPLACEMENT CHARACTER}"),
    ]
    said.write_text(entry("c3", None))
    assert journal.read() == [], "a process at each sample would cost too much"
    clock.now += JOURNAL_INTERVAL_SECONDS
    assert [(line.sequence, line.text) for line in journal.read()] == [(3, "")]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 2
    assert "--after-cursor=c2" in asked[1]
    assert f"--root={tmp_path}" in asked[0]


@pytest.mark.parametrize("forged", [{"_TRANSPORT": "syslog"}, {"_TRANSPORT": "stdout"}, {"SYSLOG_FACILITY": "1"}])
def test_lines_that_a_process_wrote_are_left_out(journalctl: Path, tmp_path: Path, forged: dict[str, str]) -> None:
    """Any user writes to the journal, and root to the kernel's log: neither is the kernel."""
    (tmp_path / "said").write_text(entry("c1", "the kernel's") + "\n" + entry("c2", "forged", 2_500_000, **forged))
    journal = Journal(tmp_path, Clock())
    assert [line.text for line in journal.read()] == ["the kernel's"]
    assert journal.position["cursor"] == "c2"


def test_a_restarted_exporter_reads_the_journal_where_the_last_ended(journalctl: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    state = StateFile(tmp_path / "state.json")
    said.write_text(entry("c1", XID))
    first = KernelCollector(Journal(tmp_path, Clock()), "journal", state, "boot-1")
    assert sum(count_of(first)) == 0
    said.write_text(entry("c2", XID))
    again = KernelCollector(Journal(tmp_path, Clock()), "journal", state, "boot-1")
    assert sum(count_of(again)) == 1
    assert "--after-cursor=c1" in (tmp_path / "asked").read_text().splitlines()[1]


def test_a_cursor_that_journalctl_refuses_is_left_and_no_line_is_counted_twice(
    journalctl: Path, tmp_path: Path
) -> None:
    state, said, clock = StateFile(tmp_path / "state.json"), tmp_path / "said", Clock()
    said.write_text(entry("c1", XID))
    KernelCollector(Journal(tmp_path, clock), "journal", state, "boot-1").collect()
    said.write_text(entry("c1", XID) + "\n" + entry("c2", XID, 150_000_000))
    journalctl.write_text(
        f'#!/bin/sh\ncase "$*" in *--after-cursor=*) echo "Failed to seek to cursor" >&2; exit 1;; esac\ncat {said}\n'
    )
    clock.now = 200.0
    again = KernelCollector(Journal(tmp_path, clock), "journal", state, "boot-1")
    assert sum(count_of(again)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"cursor": "a\0b"},
        {"cursor": "\ud800"},
        {"cursor": "c1\n--merge"},
        {"cursor": ""},
        {"cursor": ["c1"]},
        {"drained": float("inf")},
        {"drained": float("nan")},
        {"drained": 1e12},
        {"drift": float("-inf")},
    ],
    ids=str,
)
def test_a_damaged_position_costs_no_more_than_itself(
    journalctl: Path, tmp_path: Path, damage: dict[str, object]
) -> None:
    state, said = StateFile(tmp_path / "state.json"), tmp_path / "said"
    position = {"source": "journal", "cursor": "c1", "drained": 50.0, "drift": 0.0, **damage}
    counted = {"since": 1.0, "counts": {"xid": 7}, "last": {}, "kills": [], "lost": None}
    state.write({"boot_id": "boot-1", "position": position, **counted})
    said.write_text(entry("c2", XID))
    collector = KernelCollector(Journal(tmp_path, Clock()), "journal", state, "boot-1")
    assert sum(count_of(collector)) == 7, "a line that may have been counted is not counted again"
    assert "--after-cursor" not in (tmp_path / "asked").read_text()


def count_of(collector: KernelCollector) -> list[float]:
    families = {family.name: family for family in collector.collect()}
    return [sample.value for sample in families["kernel_events"].samples]


def test_a_journal_that_cannot_be_asked_gives_the_reason(journalctl: Path, tmp_path: Path) -> None:
    journalctl.write_text("#!/bin/sh\necho first >&2\necho 'No such boot' >&2\nexit 1\n")
    with pytest.raises(KernelLogUnreadable, match="status 1: No such boot"):
        Journal(tmp_path).read()


def test_a_journal_that_does_not_answer_is_left(journalctl: Path, tmp_path: Path) -> None:
    journalctl.write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(KernelLogUnreadable, match="no answer"):
        Journal(tmp_path, seconds=0.2).read()


def test_a_journal_that_this_user_may_not_read_is_none(
    journalctl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For journalctl itself ends in success, without a line."""
    assert not journal_readable(tmp_path)
    journal = tmp_path / "var/log/journal/0123/system.journal"
    journal.parent.mkdir(parents=True)
    journal.touch()
    assert journal_readable(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert not journal_readable(tmp_path)
