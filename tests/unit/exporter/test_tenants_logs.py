"""Users who share a node: the logs of one never show in the run of another."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.exporter.logs_tree import LATEST, OOM, LogsTree
from tests.unit.exporter.runs_tree import opened_files
from tests.users import ANOTHER, needs_root
from trainwarden.signals.tailing.log import Searcher
from trainwarden.signals.tailing.opening import OwnedRoots, Refused, open_log
from trainwarden.signals.tailing.template import Template
from trainwarden_exporter.collectors.logs import packs, reader
from trainwarden_exporter.collectors.logs import problems as problems_module
from trainwarden_exporter.collectors.logs.problems import LogProblems
from trainwarden_exporter.core.line_budget import LineBudget
from trainwarden_exporter.core.shared_state import WatchedRun

pytestmark = needs_root
SECRET = "RuntimeError: the secret of the other user\n" + OOM


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder for logs of all users."""
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def tree(tmp_path: Path, scratch: Path) -> LogsTree:
    """A runs folder, and logs by the number of a job."""
    template = Template.parse(f"{scratch}/slurm-{{job_id}}.out")
    return LogsTree(tmp_path, templates=(template,))


def thief(tree: LogsTree, **keys: object) -> Path:
    """A failed run of another user, whose log would be shown."""
    tree.runs.metadata("thief", status="failed", **keys)
    folder = tree.runs.path / "thief"
    for each in (folder, *folder.rglob("*")):
        os.chown(each, ANOTHER, ANOTHER, follow_symlinks=False)
    return folder


def belongs_to_another(tree: LogsTree, *run_ids: str) -> None:
    for run_id in run_ids:
        folder = tree.runs.path / run_id
        for each in (folder, *folder.rglob("*")):
            os.chown(each, ANOTHER, ANOTHER)


def assert_nothing_is_shown(tree: LogsTree) -> None:
    for _ in range(3):
        page = tree.look()
        assert "secret" not in page
        assert tree.count("thief", "cuda_oom") is None


def test_the_matches_that_are_kept_of_a_users_logs_are_bounded(tree: LogsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SEEN_OF_USER", 24)
    text = "".join(f"{SECRET}NVRM: Xid (PCI:0000:3b:00): {code}, x\n" for code in (79, 48, 62, 63)) * 4

    def kept(run_id: str) -> int:
        return sum(len(log.seen) for log in tree.collector._runs[run_id].logs.values())

    for run_id in ("many-1", "mine"):
        tree.runs.metadata(run_id)
        tree.write(run_id, text)
    belongs_to_another(tree, "many-1")
    tree.look()
    whole = kept("mine")
    assert kept("many-1") == whole > 12
    for run_id in ("many-2", "many-3"):
        tree.runs.metadata(run_id)
        tree.write(run_id, text)
        belongs_to_another(tree, run_id)
    for _ in range(2):
        tree.look()
    assert [kept(f"many-{number}") for number in (1, 2, 3)] == [8, 8, 8]
    assert kept("mine") == whole


@pytest.mark.parametrize("what", ["folder", "log", "hard link", "second log"])
def test_a_link_in_a_record_shows_no_log_of_another_user(tree: LogsTree, tmp_path: Path, what: str) -> None:
    tree.runs.metadata("victim")
    secret = tree.write("victim", SECRET)
    secret.chmod(0o600)
    folder = thief(tree)
    if what == "folder":
        (folder / "logs").symlink_to(secret.parent)
        os.chown(folder / "logs", ANOTHER, ANOTHER, follow_symlinks=False)
    else:
        (folder / "logs").mkdir()
        os.chown(folder / "logs", ANOTHER, ANOTHER)
        link = folder / ("logs/second.txt" if what == "second log" else LATEST)
        if what == "hard link":
            os.link(secret, link)
        else:
            link.symlink_to(secret)
            os.chown(link, ANOTHER, ANOTHER, follow_symlinks=False)
    for _ in range(3):
        tree.look()
        assert tree.count("thief", "cuda_oom") is None
        assert "secret" not in str(tree.samples.get("training_failure_message_info", ""))
    assert tree.count("victim", "cuda_oom") == 1


def test_a_record_that_names_the_job_of_another_user_shows_none_of_its_logs(tree: LogsTree, scratch: Path) -> None:
    log = scratch / "slurm-4711.out"
    log.write_text(SECRET)
    log.chmod(0o600)
    thief(tree, job_id="4711")
    assert_nothing_is_shown(tree)
    os.chown(log, ANOTHER, ANOTHER)
    tree.look(seconds=60.0)
    assert tree.count("thief", "cuda_oom") == 1


def test_a_user_with_many_runs_hides_no_signal_of_another(tmp_path: Path) -> None:
    tree = LogsTree(tmp_path, max_series=400)
    crowd = [f"crowd{number}" for number in range(8)]
    for run_id in (*crowd, "victim"):
        tree.runs.metadata(run_id)
        tree.write(run_id, OOM)
    belongs_to_another(tree, "victim")  # whose uid is the higher one: the order of users helps it not
    tree.look()
    assert len(tree.samples["training_log_signals_total"]) == 400
    assert tree.count("victim", "cuda_oom") == 1


def test_a_user_with_many_logs_leaves_room_for_those_of_another(tmp_path: Path) -> None:
    tree = LogsTree(tmp_path, max_files=4)
    tree.runs.metadata("crowd")
    for rank in range(9):
        tree.write("crowd", "hello\n", f"logs/rank_{rank}.txt")
    belongs_to_another(tree, "crowd")
    tree.look()
    assert tree.value("trainwarden_log_files", outcome="followed") == 4
    tree.runs.metadata("victim")
    tree.write("victim", OOM)
    tree.look()
    assert tree.count("victim", "cuda_oom") == 1
    assert tree.value("trainwarden_log_files", outcome="followed") == 5


def test_logs_that_cannot_be_read_fill_no_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems_module, "LineBudget", partial(LineBudget, 20, 0.0))
    problems = LogProblems()
    for number in range(40):
        problems.add("outside", f"/runs/r/logs/{number}", f"{number}: leads outside /runs")
    assert problems.counts["outside"] == 40
    assert len(caplog.messages) == 21
    assert caplog.messages[-1].endswith("trainwarden_log_errors_total counts it")


@pytest.mark.parametrize("place", ["{run_id}*", "*/{run_id}", "../private/{run_id}.out"])
def test_a_path_in_a_record_is_looked_at_below_the_roots_alone(
    tree: LogsTree, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "thief.out").write_text(SECRET)
    listed: list[str] = []
    real = os.scandir

    def noted(path: str = ".") -> object:
        listed.append(os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", noted)
    thief(tree, log_path=f"{private}/{place}")
    assert_nothing_is_shown(tree)
    assert not [path for path in listed if "private" in str(path)]


def test_what_is_outside_of_the_roots_is_refused_alike_whether_it_is_there_or_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "there").write_text("x")
    answers = []
    for name in ("there", "absent"):
        (root / name).symlink_to(tmp_path / name)
        with pytest.raises(Refused) as refused:
            open_log(str(root / name), OwnedRoots([str(root)], ANOTHER))
        answers.append(refused.value.reason)
    assert answers == ["outside", "outside"]


def test_a_log_below_a_root_that_is_a_link_is_read(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "deep").mkdir(parents=True)
    (real / "deep" / "log").write_text("own")
    (tmp_path / "root").symlink_to(real)
    descriptor = open_log(str(tmp_path / "root/deep/log"), OwnedRoots([str(tmp_path / "root")], os.geteuid()))
    assert os.read(descriptor, 10) == b"own"
    os.close(descriptor)


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_no_log_of_the_user_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs/pipe")
    (tmp_path / "logs/link").symlink_to("pipe")
    (tmp_path / "logs/private").write_text("another user's")
    (tmp_path / "logs/private").chmod(0o600)
    opened = opened_files(monkeypatch)
    roots = OwnedRoots([str(tmp_path)], ANOTHER, alone=alone)
    for name, reason in (("pipe", "no_plain_file"), ("link", "no_plain_file"), ("private", "owner")):
        with pytest.raises(Refused) as refused:
            open_log(str(tmp_path / "logs" / name), roots)
        assert refused.value.reason == reason
    assert opened == []


def test_what_root_lets_everybody_read_is_a_users_log_unless_only_its_own_are(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("root's")
    os.close(open_log(str(tmp_path / "log"), OwnedRoots([str(tmp_path)], ANOTHER)))
    with pytest.raises(Refused, match="belongs to another user"):
        open_log(str(tmp_path / "log"), OwnedRoots([str(tmp_path)], ANOTHER, alone=True))


def test_of_a_folder_with_very_many_logs_few_names_are_kept(tree: LogsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MAX_PATHS", 5)
    tree.runs.metadata("r")
    tree.write("r", OOM)
    for number in range(20):
        tree.write("r", "", name=f"logs/{number}.txt")
    tree.look()
    assert tree.count("r", "cuda_oom") == 1
    assert (tree.value("trainwarden_log_files", outcome="followed") or 0) <= 6


def test_of_logs_that_are_not_followed_or_cannot_be_read_little_is_kept(tmp_path: Path) -> None:
    tree = LogsTree(tmp_path, max_files=1)
    tree.runs.metadata("r")
    tree.write("r", OOM)
    for number in range(300):
        tree.write("r", "", name=f"logs/{number}.txt")
        os.mkfifo(tree.runs.path / "r" / "logs" / f"pipe-{number}.txt")
    tree.look()
    run = tree.collector._runs["r"]
    assert (len(run.logs), len(run._sources)) == (1, 1)
    assert len(run.unreadable) <= 256


def test_a_user_whose_logs_take_long_to_find_has_them_looked_for_less_often_and_nobody_else(
    tree: LogsTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("quick", "slow", "slow-2"):
        tree.runs.metadata(run_id)
        tree.write(run_id, "hello\n")
    belongs_to_another(tree, "slow", "slow-2")
    spent, looked = [0.0], Counter[str]()
    find = packs.LogPacks._found_paths

    def found(self: packs.LogPacks, run: WatchedRun, searcher: Searcher) -> dict[str, str]:
        looked[run.run_id] += 1
        spent[0] += 1.0 if run.owner == ANOTHER else 0.0
        return find(self, run, searcher)

    monkeypatch.setattr(packs.LogPacks, "_found_paths", found)
    monkeypatch.setattr(packs, "time", SimpleNamespace(monotonic=lambda: tree.runs.now, thread_time=lambda: spent[0]))
    for _ in range(30):
        tree.look(2.0)
    assert looked["quick"] == 30
    assert looked["slow"] + looked["slow-2"] == 3
    tree.write("slow", OOM)
    tree.runs.metadata("slow", status="failed")
    belongs_to_another(tree, "slow")
    for _ in range(25):
        tree.look(2.0)
    assert tree.labels("training_failure_info", "slow")["failure"] == "cuda_oom"
