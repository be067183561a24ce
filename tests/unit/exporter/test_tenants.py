"""Users who share a runs folder: none hides another's runs, reads another's files or takes more than a share."""

from __future__ import annotations

import gc
import logging
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.exporter.runs_tree import HOST, NOW, RunsTree, opened_files
from tests.users import ANOTHER, needs_root
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import LOG
from trainwarden.record.rank import RankBeat
from trainwarden_exporter.collectors.runs import attempts, collector, discovery, folder, names, problems
from trainwarden_exporter.collectors.runs.folder import RunFolder
from trainwarden_exporter.collectors.runs.limits import SERIES_OF_RANK, KeptRanks, RunLimits
from trainwarden_exporter.collectors.runs.names import RunNames
from trainwarden_exporter.collectors.runs.record import FailureVerdict, RunRecord, failure_verdict
from trainwarden_exporter.core.line_budget import LineBudget
from trainwarden_exporter.core.owned_folder import ReadBudget

KEY = "local:77-1:0"
AHEAD = 86_000.0


def give(path: Path, uid: int = ANOTHER) -> None:
    """Make everything at the path somebody else's."""
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)


def forged(tree: RunsTree, count: int) -> None:
    for number in range(count):
        run_id = f"forged-{number:04d}"
        tree.metadata(run_id, last_update=to_iso(NOW + AHEAD), phase_time=to_iso(NOW + AHEAD))
        give(tree.path / run_id)


def opened_statuses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the name is added of what is looked at from now on."""
    looked: list[str] = []
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        looked.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(os, "lstat", lstat)
    return looked


def left_out(tree: RunsTree, reason: str) -> float | None:
    return tree.value("trainwarden_runs_left_out", reason=reason)


@needs_root
def test_runs_that_another_user_dates_a_day_ahead_hide_no_run(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limit=20)
    tree.metadata("real-1", last_update=to_iso(NOW - 60))
    tree.metadata("real-2", status="failed", last_update=to_iso(NOW - 3600))
    forged(tree, 100)
    assert tree.state("real-1") == "running"
    assert tree.state("real-2") == "failed"
    assert left_out(tree, "runs") == 20
    assert left_out(tree, "folders") == 62


def test_a_record_that_is_dated_ahead_is_no_newer_than_one_of_now(make_runs: Callable[..., RunsTree]) -> None:
    tree = make_runs(limit=2)
    tree.metadata("ahead", status="succeeded", last_update=to_iso(NOW + AHEAD))
    tree.metadata("a-running", last_update=to_iso(NOW - 60))
    tree.metadata("b-running", last_update=to_iso(NOW - 90))
    assert tree.state("ahead") is None
    assert tree.state("a-running") == tree.state("b-running") == "running"


@needs_root
def test_a_user_with_many_runs_takes_no_place_of_a_user_with_few(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limit=10)
    for number in range(4):
        tree.metadata(f"few-{number}", last_update=to_iso(NOW - 600 - number))
    for number in range(30):
        tree.metadata(f"many-{number:02d}", last_update=to_iso(NOW))
        give(tree.path / f"many-{number:02d}")
    shown = {dict(labels)["run_id"] for labels in tree.samples()["training_run_attempt"]}
    assert {f"few-{number}" for number in range(4)} <= shown
    assert len(shown) == 10


@needs_root
def test_a_record_that_claims_to_be_another_users_run_changes_nothing_of_that_run(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("victim", last_update=to_iso(NOW - 60))
    tree.progress("victim", step=120)
    tree.rank("victim", 0, step=120)

    def shown() -> list[str]:
        return [line for line in tree.text().splitlines() if 'run_id="victim"' in line]

    before = shown()
    tree.metadata("liar", run_id="victim", status="failed", reason="CUDA out of memory", model="lies")
    tree.progress("liar", run_id="victim", step=4711)
    tree.rank("liar", 0, run_id="victim", step=4711)
    tree.write("liar", "_error", {"run_id": "victim", "attempt_key": KEY, "time": to_iso(NOW), "message": "lies"})
    give(tree.path / "liar")
    assert tree.state("liar") == "failed"
    assert shown() == before


@needs_root
def test_a_user_whose_runs_change_all_the_time_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LineBudget", partial(LineBudget, 10))
    caplog.set_level(logging.INFO)
    tree = RunsTree(tmp_path / "runs")
    for start in range(20):
        tree.metadata("flood", attempt_key=f"local:77-1:{start}")
        give(tree.path / "flood")
        tree.text()
        tree.now += 0.1
    tree.metadata("quiet")
    tree.text()
    about = [line for line in caplog.messages if "run_id=flood" in line]
    assert 10 <= len(about) <= 12
    assert [line for line in caplog.messages if "left_out" in line] == [
        f"run_changes_left_out uid={ANOTHER}: its runs change too often to be logged"
    ]
    assert [line for line in caplog.messages if "run_started run_id=quiet" in line]


@needs_root
def test_records_that_cannot_be_used_again_and_again_fill_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "LineBudget", partial(LineBudget, 30, 0.0))
    tree = RunsTree(tmp_path / "runs")
    for number in range(40):
        content = "{" if number % 2 else "{}"
        for run in range(30):
            tree.write(f"flood-{run:02d}", "metadata.json", content)
            give(tree.path / f"flood-{run:02d}")
        if number == 1:
            tree.write("zz-mine", "metadata.json", "{")
        tree.text()
    assert sum("run flood" in line for line in caplog.messages) == 30
    assert f"run_problems_left_out uid={ANOTHER}: they change too often to be logged" in caplog.messages
    # Others' problems are in the log, though a sample has more than are logged at once.
    assert [line for line in caplog.messages if "run zz-mine" in line]


@needs_root
def test_a_user_with_many_series_takes_no_place_of_a_user_with_few(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(series=1000, owner_series=800, run_series=400))
    for number in range(4):
        tree.metadata(f"few-{number}")
        tree.rank(f"few-{number}", 0)
        give(tree.path / f"few-{number}")  # to a user with a higher uid: the order of users helps it not
    for number in range(10):
        tree.metadata(f"many-{number}")
        for rank in range(100):
            tree.rank(f"many-{number}", rank)
    samples = tree.samples()
    ranks = {dict(labels)["run_id"] for labels in samples["training_rank_step"]}
    assert {f"few-{number}" for number in range(4)} <= ranks
    assert sum(len(found) for name, found in samples.items() if name.startswith("training_")) <= 1000 + 40
    assert samples["trainwarden_runs_left_out"][frozenset({("reason", "series")})] > 0


def test_ranks_that_are_kept_give_way_to_those_of_a_user_who_comes_later() -> None:
    kept = KeptRanks(RunLimits(series=100, owner_series=100, run_series=100))
    ranks = [RankBeat(rank=rank, host=HOST) for rank in range(30)]  # of 4 series each, and 2 of their host
    assert kept.keep_first("first", 1, ranks) == 24
    assert kept.keep_first("first", 1, ranks[:24]) == 24
    assert kept.keep_first("second", 2, ranks) == 12
    assert kept.keep_first("first", 1, ranks[:24]) == 12


def test_the_series_of_a_user_are_bounded_where_the_page_has_room_for_more(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(series=1000, owner_series=200, run_series=400))
    for number in range(3):
        tree.metadata(f"run-{number}")
    assert len(tree.samples()["training_run_info"]) == 2
    assert left_out(tree, "series") == 1


def test_series_of_a_run_with_a_long_id_count_twice(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_series=400))
    for number in range(4):
        tree.metadata(f"{number}-{'x' * 70}")
    assert len(tree.samples()["training_run_info"]) == 2
    assert left_out(tree, "series") == 2


def test_series_of_a_run_whose_ranks_name_long_hosts_count_more(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_series=1200))
    for number in range(4):
        tree.metadata(f"run-{number}")
        tree.rank(f"run-{number}", 0, host=HOST, uuid="u" * 256)
    assert len(tree.samples()["training_run_info"]) == 2
    assert left_out(tree, "series") == 2


def test_of_runs_without_a_place_no_samples_are_kept(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limit=2)
    for number in range(2):
        tree.metadata(f"run-{number}", status="failed", reason="out of memory")
    for _ in range(2):
        assert tree.samples()["training_failure_message_info"]
    for number in range(4):
        tree.metadata(f"new-{number}")
    for _ in range(2):
        tree.samples()
    folders = tree.collector._discovery._folders
    kept = {name for name, each in folders.items() if each.cached or each.cached_settings or each.cached_texts}
    assert len(kept) == 2


def test_the_verdict_on_a_failure_is_made_once_though_its_record_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To classify a message takes milliseconds."""
    made: list[str] = []

    def note(record: RunRecord) -> FailureVerdict:
        made.append(record.run_id)
        return failure_verdict(record)

    monkeypatch.setattr(folder, "failure_verdict", note)
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r", status="failed", attempt_key=None, reason="CUDA out of memory")
    tree.now += 10  # the files are not read again
    for _ in range(3):
        assert tree.labels("training_failure_info", "r")["failure"] == "cuda_oom"
    assert made == ["r"]


def test_the_ranks_of_a_run_are_bounded_and_the_run_stays(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(run_series=80))
    tree.metadata("r")
    for rank in range(30):
        tree.rank("r", rank)
    samples = tree.samples()
    assert len(samples["training_rank_step"]) == 19  # and two of their host
    assert tree.state("r") == "running"
    assert left_out(tree, "ranks") == 1


@needs_root
def test_the_ranks_that_are_kept_are_shared_among_users(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(series=1000, owner_series=600, run_series=400))
    for number in range(6):
        tree.metadata(f"many-{number}", world_size=90)
        for rank in range(90):
            tree.rank(f"many-{number}", rank)
    tree.samples()
    folders = tree.collector._discovery._folders
    assert sum(len(folder.shown.ranks) for folder in folders.values() if folder.shown) <= 600 / SERIES_OF_RANK
    for number in range(2):
        tree.metadata(f"few-{number}")
        for rank in range(20):
            tree.rank(f"few-{number}", rank)
        give(tree.path / f"few-{number}")
    samples = tree.samples()
    of_ranks = [dict(labels)["run_id"] for labels in samples["training_rank_info"]]
    assert of_ranks.count("few-0") == of_ranks.count("few-1") == 20
    # Of a run of which ranks were left out none is missing.
    assert "training_missing_ranks" not in samples


def test_the_series_of_ranks_are_bounded_whatever_the_ranks_state(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", all_hosts=True, limits=RunLimits(run_series=400))
    tree.metadata("r", world_size=200)
    sections = {f"part{number}": 0.5 for number in range(8)}
    for rank in range(200):
        tree.rank("r", rank, host=f"host{rank}", time=to_iso(NOW - 3600), sections=sections, gpu_taken_bytes=7)
    of_ranks = ("training_rank_", "training_host_", "training_silent_", "training_section_")
    shown = sum(len(found) for name, found in tree.samples().items() if name.startswith(of_ranks))
    assert 300 < shown <= 400


def test_a_file_of_a_record_is_bounded(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(file_bytes=4096))
    tree.metadata("large", model="x" * 5000)
    tree.metadata("good")
    assert tree.state("good") == "running"
    assert tree.state("large") is None
    assert tree.value("trainwarden_runs_unreadable", reason="unreadable") == 1


@needs_root
def test_a_user_who_writes_much_delays_its_own_runs_alone(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_bytes=10_000))
    for number in range(8):
        tree.metadata(f"large-{number}", model="x" * 5000)
        give(tree.path / f"large-{number}")
    tree.metadata("other")
    assert tree.state("other") == "running"
    assert left_out(tree, "bytes") == 6
    tree.now += 10  # the files that were read are not read again
    for _ in range(3):
        tree.samples()
    assert tree.state("large-7") == "running"
    assert left_out(tree, "bytes") == 0


class SlowReading:
    """A clock of a thread's processor time by which each record of some users takes a second to read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.users = {ANOTHER}
        read, slow = RunFolder.read, self

        def read_slowly(folder: RunFolder, now: float) -> RunRecord:
            record = read(folder, now)
            slow.time += folder.owner in slow.users
            return record

        monkeypatch.setattr(RunFolder, "read", read_slowly)
        monkeypatch.setattr(discovery, "time", SimpleNamespace(thread_time=lambda: self.time))


def steps(tree: RunsTree) -> dict[str, float]:
    """The steps that one sample shows, by run."""
    return {dict(labels)["run_id"]: step for labels, step in tree.samples().get("training_step", {}).items()}


@needs_root
def test_a_user_whose_records_take_long_to_read_delays_its_own_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SlowReading(monkeypatch)
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_seconds=1.5, all_seconds=1.5))
    slow, mine = [f"aa-slow-{number}" for number in range(6)], ["aa-mine", "zz-mine"]
    for run_id in (*slow, *mine):
        tree.metadata(run_id)
        tree.progress(run_id, step=1)
    for run_id in slow:
        give(tree.path / run_id)
    shown = steps(tree)
    assert len(shown.keys() & set(slow)) == 2, "a sample that takes longer fails for all"
    assert shown.keys() >= set(mine), "at first those who have few come first"
    for step in range(2, 6):
        for run_id in mine:
            tree.progress(run_id, step=step)
        shown = steps(tree)
        assert [shown[run_id] for run_id in mine] == [step, step], "those who take little come first"
    assert steps(tree).keys() == {*slow, *mine}, "what was read stays until there is time again"
    for run_id in slow:
        tree.progress(run_id, step=9)
        give(tree.path / run_id)
    for _ in range(3):  # two in each
        shown = steps(tree)
    assert [shown[run_id] for run_id in slow] == [9] * 6


@pytest.mark.slow
def test_what_is_kept_of_large_records_is_small(tmp_path: Path) -> None:
    padding = {str(number): [number] for number in range(4_000)}

    def kept(count: int) -> int:
        tree = RunsTree(tmp_path / str(count))
        for number in range(count):
            run_id, long = f"r{number}", "x" * 50_000
            tree.metadata(
                run_id,
                environment={**{str(each): "x" for each in range(2000)}, "slurm_job_name": long},
                s3=padding,
                resume={"a": long},
                attempt_key="k" * 20_000,
                attempts=[{"attempt": each, "key": "k" * 20_000} for each in range(5)],
                log_path=f"/{long}",
                model=long,
                attempt=1,
            )
            tree.progress(run_id, metrics=padding, checkpoint={"path": f"/{long}"}, attempt_key="k" * 20_000)
            tree.write(run_id, "_error", {"attempt_key": "k" * 20_000, "message": long, "hint": long, "host": long})
            tree.rank(run_id, 0, host=long, uuid=long, attempt_key="k" * 20_000)
        tracemalloc.start()
        wait_until(lambda: len(tree.samples().get("training_run_attempt", {})) == count)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    kept(0)  # modules that are loaded when first needed would count as kept
    small, large = kept(1), kept(11)
    assert (large - small) / 10 < 3 * 2**14


class FewTexts(ReadBudget):
    """So little time that two texts of each user are made labels in a sample; notes which users they are of."""

    def __init__(self, limit: int) -> None:
        super().__init__(2)
        self.made: list[int] = []

    def take(self, owner: int, size: int) -> bool:
        self.made += [owner] * bool(size)
        return super().take(owner, bool(size))


@needs_root
def test_a_user_with_many_long_messages_delays_its_own_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "ReadBudget", FewTexts)
    tree = RunsTree(tmp_path / "runs")
    for number in range(6):
        tree.metadata(f"many-{number}", status="failed", reason=f"message {number}")
        give(tree.path / f"many-{number}")
    tree.metadata("zz-mine", status="failed", reason="mine")

    def shown() -> list[str]:
        return sorted(dict(labels)["run_id"] for labels in tree.samples()["training_failure_message_info"])

    assert shown() == ["many-0", "many-1", "zz-mine"]
    for _ in range(3):
        shown()
    assert len(shown()) == 7
    budget = tree.collector._text_budget
    assert isinstance(budget, FewTexts)
    made = len(budget.made)
    shown()
    assert len(budget.made) == made  # what does not change is looked at once
    # What was shown stays until there is time, but for another attempt.
    for number in range(6):
        tree.metadata(f"many-{number}", status="failed", reason=f"again {number}", attempt_key="local:77-1:1")
        give(tree.path / f"many-{number}")
    assert shown() == ["many-0", "many-1", "zz-mine"]


def test_of_what_cannot_be_used_of_a_record_little_is_kept(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    for rank in range(300):
        tree.write("r", f"ranks/{rank}.json", "{")
        tree.rank("s", rank, step="x", gpu="y")
    tree.samples()
    folders = tree.collector._discovery._folders.values()
    assert max(len(folder.problems) for folder in folders) == 20
    assert tree.value("trainwarden_runs_unreadable", reason="unreadable") == 20
    assert tree.value("trainwarden_runs_unreadable", reason="unexpected_value") == 20


def crashed(tree: RunsTree, run_id: str, names: int = 0) -> None:
    """Write a run whose only rank crashed, and so many traces of other ranks beside its own, without a crash."""
    tree.metadata(run_id, attempt_key=KEY, start_time=to_iso(NOW - 100))
    header = f"attempt_key={KEY} pid=1 start=2 host=elsewhere".ljust(511)
    tree.write(run_id, "ranks/0.trace", f"{header}\nFatal Python error: Segmentation fault\n")
    for number in range(names):
        (tree.path / run_id / f"ranks/{number + 1}.trace").touch()


@needs_root
def test_a_user_whose_ranks_leave_many_traces_delays_its_own_crashes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_crash_work=400))
    for number in range(12):
        crashed(tree, f"many-{number:02d}", names=100)
        give(tree.path / f"many-{number:02d}")
    crashed(tree, "other")
    opened = opened_files(monkeypatch)
    assert tree.state("other") == "failed"
    assert 1 < opened.count("0.trace") <= 4
    for _ in range(12):
        tree.now += 2
        tree.samples()
    assert {tree.state(f"many-{number:02d}") for number in range(12)} == {"failed"}


@needs_root
def test_no_trace_of_a_crash_is_read_beyond_what_its_user_has_a_share_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of large files were read in each sample, until every run was missing."""
    tree = RunsTree(tmp_path / "runs", limits=RunLimits(owner_crash_work=2000))
    crashed(tree, "many")
    for rank in range(1, 50):
        with (tree.path / f"many/ranks/{rank}.trace").open("wb") as file:
            file.truncate(2**20)
    tree.metadata("good")
    opened = opened_files(monkeypatch)
    assert tree.state("good") == "running"
    assert not [name for name in opened if name.endswith(".trace")]


def test_empty_folders_take_no_more_than_names(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs", limit=10)
    for number in range(500):
        tree.folder(f"empty-{number:03d}")
    tree.metadata("zz-real")
    assert tree.value("trainwarden_runs_left_out", reason="folders") == 481
    assert len(tree.samples()["training_run_info"]) == 10


@needs_root
def test_of_too_many_names_each_user_keeps_a_share(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / f"many-{number:02d}"
        folder.mkdir()
        give(folder)
    for name in ("few-1", "few-2"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1, 1))
    listing = RunNames(tmp_path, 2.0, most=10)
    assert {"few-1", "few-2"} < listing.listed(NOW).keys()
    assert len(listing.listed(NOW)) == 10
    assert listing.left_out == 22


@needs_root
def test_a_new_run_is_seen_at_once_beside_very_many_folders_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at all names takes long, and is done seldom; what is new is found without."""
    clock = 0.0

    def monotonic() -> float:
        nonlocal clock
        clock += 1.0  # each listing takes a second
        return clock

    monkeypatch.setattr(names, "time", SimpleNamespace(monotonic=monotonic, thread_time=lambda: 0.0))
    monkeypatch.setattr(names, "QUICK_SECONDS", 0.5)
    for number in range(30):
        (tmp_path / f"many-{number:02d}").mkdir()
        give(tmp_path / f"many-{number:02d}")
    (tmp_path / "no run id").mkdir()
    listing = RunNames(tmp_path, 2.0, most=10)
    kept = listing.listed(NOW).keys()
    assert (len(kept), listing.left_out, len(listing.problems)) == (10, 20, 1)
    looked = opened_statuses(monkeypatch)
    (tmp_path / "new").mkdir()
    assert "new" in listing.listed(NOW)
    assert (len(listing.listed(NOW)), listing.left_out, len(listing.problems)) == (10, 21, 1)
    assert looked == ["new"]
    # A folder that was left out and is changed now is among the newest of its user, once all are looked at.
    left = next(each.name for each in sorted(tmp_path.glob("many-*")) if each.name not in kept)
    os.utime(tmp_path / left, (2 * NOW, 2 * NOW))
    clock += 100.0
    assert left in listing.listed(NOW)
    assert len(looked) > 20


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A record of the user that runs the test, which nobody else may read, outside of the runs folder."""
    tree = RunsTree(tmp_path / "private")
    tree.metadata("secret", model="secret-model", host=HOST)
    tree.progress("secret", step=4711)
    tree.rank("secret", 0, step=4711)
    for each in (tmp_path / "private").rglob("*"):
        each.chmod(0o700)
    return tmp_path / "private" / "secret"


@needs_root
@pytest.mark.parametrize("name", ["metadata.json", "progress.json", "ranks", "_error"])
@pytest.mark.parametrize("by", ["link", "hard link"])
def test_no_file_of_another_user_is_read_through_a_record(tmp_path: Path, victim: Path, name: str, by: str) -> None:
    (victim / "_error").write_text("secret-model is out of memory")
    (victim / "_error").chmod(0o600)
    tree = RunsTree(tmp_path / "runs")
    if name != "metadata.json":
        tree.metadata("thief")
    folder = tree.folder("thief")
    if by == "link":
        (folder / name).symlink_to(victim / name)
    elif name == "ranks":
        (folder / name).mkdir()
        os.link(victim / "ranks" / "0.json", folder / "ranks" / "0.json")
    else:
        os.link(victim / name, folder / name)
    for each in (folder, *folder.rglob("*")):
        if each.is_symlink() or not each.is_file() or each.stat().st_nlink == 1:
            os.chown(each, ANOTHER, ANOTHER, follow_symlinks=False)
    page = tree.text()
    assert "secret-model" not in page
    assert "4711" not in page
    assert tree.state("thief") in (None, "running")


@needs_root
def test_a_link_to_another_users_record_is_no_run(tmp_path: Path, victim: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("own")
    link = tree.path / "thief"
    link.symlink_to(victim)
    os.chown(link, ANOTHER, ANOTHER, follow_symlinks=False)
    assert tree.state("thief") is None
    assert "secret-model" not in tree.text()


def test_a_link_of_the_same_user_to_a_record_is_a_run(tmp_path: Path, victim: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.folder("own")
    (tree.path / "linked").symlink_to(victim)
    assert tree.state("linked") == "running"


@needs_root
def test_a_record_in_a_folder_that_root_made_is_that_of_its_writer(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    tree.rank("r", 0)
    give(tree.path / "r")
    os.chown(tree.path / "r", 0, 0)
    assert tree.state("r") == "running"
    assert tree.value("training_rank_step", run_id="r", rank="0") is not None


@needs_root
def test_what_root_writes_into_a_users_record_for_all_to_read_counts(tmp_path: Path) -> None:
    tree = RunsTree(tmp_path / "runs")
    tree.metadata("r")
    give(tree.path / "r")
    error = tree.write("r", "_error", {"attempt_key": KEY, "time": to_iso(NOW), "message": "node reboots"})
    assert tree.state("r") == "failed"
    error.chmod(0o600)
    tree.now += 40
    assert tree.state("r") == "running"


@needs_root
def test_a_link_as_a_log_shows_nothing_of_root_and_opens_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that root lets nobody enter may hold files that everybody could read; opening a watchdog starts it."""
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed/notes").write_text("the launch is on monday")
    os.mkfifo(tmp_path / "device")
    tree = RunsTree(tmp_path / "runs")
    for run_id, target in (("thief", "closed/notes"), ("breaker", "device")):
        tree.metadata(run_id, status="failed")
        (tree.folder(run_id) / "logs").mkdir()
        (tree.path / run_id / LOG).symlink_to(tmp_path / target)
        give(tree.path / run_id)
    opened = opened_files(monkeypatch)
    assert "monday" not in tree.text()
    assert tree.state("thief") == tree.state("breaker") == "failed"
    assert not {"notes", "device"} & set(opened)
