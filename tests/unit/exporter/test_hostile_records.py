"""No record, however odd, breaks the page or costs another run its series; what cannot be used is counted."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.unit.exporter.runs_tree import HOST, NOW, RunsTree
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.metadata import Metadata
from trainwarden.record.progress import Progress
from trainwarden.record.rank import RankBeat
from trainwarden.record.sentinels import Sentinel
from trainwarden_exporter.collectors.runs.limits import RunLimits
from trainwarden_exporter.collectors.runs.record import EXPIRY_SECONDS
from trainwarden_exporter.collectors.runs.series import add_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden_exporter.collectors.runs.record import RunRecord, StepTimes
    from trainwarden_exporter.core.metric import Families

os_stat, os_open = os.stat, os.open


def neighbour_in(folder: Path) -> RunsTree:
    """A runs folder with one good run in it."""
    runs = RunsTree(folder / "runs")
    runs.metadata("good")
    runs.progress("good")
    return runs


@pytest.fixture
def neighbour(tmp_path: Path) -> RunsTree:
    return neighbour_in(tmp_path)


def assert_neighbour_is_there(runs: RunsTree) -> None:
    samples = runs.samples()
    assert samples["training_step"][frozenset({("run_id", "good")})] == 120
    assert runs.state("good") == "running"


def unreadable(runs: RunsTree, reason: str) -> float:
    return runs.samples()["trainwarden_runs_unreadable"][frozenset({("reason", reason)})]


@cases(
    "content",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"null",
        b"\xff\xfe\x00",
        b'{"a": ' * 100_000 + b"1" + b"}" * 100_000,
        b'{"pad": "' + b"x" * 10_000_000 + b'"}',
        b"[" * 1_000_000,
        b'{"step": ' + b"9" * 100_000 + b"}",
    ],
    ids=["empty", "cut", "list", "null", "not_utf8", "deep", "10MB", "brackets", "long_number"],
)
@cases("name", ["metadata.json", "progress.json", "ranks/0.json", "ranks/node1-0123abcd.json"], neighbour=neighbour_in)
def test_a_file_that_is_no_record_is_counted(neighbour: RunsTree, name: str, content: bytes) -> None:
    neighbour.write("bad", name, content)
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "unreadable") == 1


@cases(
    ("key", "value"),
    [
        ("step", "12"),
        ("step", -1),
        ("step", 1.5),
        ("step", 10**400),
        ("loss", float("nan")),
        ("loss", [1]),
        ("total_steps", True),
        ("last_updated", "yesterday"),
        ("checkpoint", "path"),
    ],
    neighbour=neighbour_in,
)
def test_a_value_of_the_wrong_kind_is_counted_and_the_others_stay(neighbour: RunsTree, key: str, value: Any) -> None:
    neighbour.metadata("odd")
    neighbour.progress("odd", learning_rate=0.25, **{key: value})
    assert_neighbour_is_there(neighbour)
    assert neighbour.value("training_learning_rate", run_id="odd") == 0.25
    assert unreadable(neighbour, "unexpected_value") == 1


@cases(
    "name",
    ["metadata.json", "progress.json", "_error", "ranks/0.json", "ranks/node1-0123abcd.json", "ranks"],
    neighbour=neighbour_in,
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(neighbour: RunsTree, name: str) -> None:
    path = neighbour.folder("bad") / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    neighbour.folder("bad")
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "unreadable") == 1


def test_a_link_is_not_followed_out_of_the_record(neighbour: RunsTree, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text('{"model": "secret-model", "status": "running"}')
    (neighbour.folder("bad") / "metadata.json").symlink_to(private)
    neighbour.folder("bad")
    assert "secret-model" not in neighbour.text()
    assert unreadable(neighbour, "unreadable") == 1


def test_links_that_lead_to_themselves_are_no_runs(neighbour: RunsTree) -> None:
    (neighbour.path / "loop").symlink_to(neighbour.path / "loop")
    (neighbour.path / "gone").symlink_to(neighbour.path / "nowhere")
    folder = neighbour.folder("bad")
    (folder / "metadata.json").symlink_to(folder / "metadata.json")
    neighbour.folder("bad")
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "unreadable") == 1


@cases(
    "name",
    ['quo"te', "line\nbreak", "a..b", "-dash", "x" * 200, "café", "back\\slash", "sp ace", os.fsdecode(b"\xff\xfe")],
    neighbour=neighbour_in,
)
def test_a_folder_whose_name_is_no_run_id_is_counted(neighbour: RunsTree, name: str) -> None:
    (neighbour.path / name).mkdir()
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "invalid_run_id") == 1


def test_files_and_hidden_folders_beside_the_runs_are_nobodys_business(neighbour: RunsTree) -> None:
    (neighbour.path / "README").write_text("hello")
    (neighbour.path / ".snapshot").mkdir()
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "invalid_run_id") == 0


@cases("closed", ["bad/metadata.json", "bad/ranks", "bad/_error", "bad"], neighbour=neighbour_in)
def test_what_may_not_be_read_is_counted_and_read_once_it_may(
    neighbour: RunsTree, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    neighbour.metadata("bad")
    neighbour.rank("bad", 0)
    neighbour.write("bad", "_error", {"attempt_key": "another", "message": "x"})
    with monkeypatch.context() as patch:
        for call in ("open", "stat", "scandir"):
            patch.setattr(os, call, denied(getattr(os, call), neighbour.path / closed))
        assert_neighbour_is_there(neighbour)
        assert unreadable(neighbour, "unreadable") >= 1
    neighbour.now += 31
    assert neighbour.state("bad") == "running"
    assert unreadable(neighbour, "unreadable") == 0


def denied(call: Callable[..., Any], closed: Path) -> Callable[..., Any]:
    """The system call as it answers where nobody may enter `closed`; root, who runs tests too, may always."""

    def answer(path: Any, *rest: Any, dir_fd: int | None = None, **named: Any) -> Any:
        name = f"/proc/self/fd/{path}" if isinstance(path, int) else os.fspath(path)
        place = Path(Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else "/", name)
        if place.parts[1:4] == ("proc", "self", "fd"):
            place = Path(Path(*place.parts[:5]).readlink(), *place.parts[5:])
        # What is done to a folder itself asks its parent; what is done below it asks the folder.
        is_look = call is os_stat or (call is os_open and rest[0] & os.O_PATH)
        if closed in place.parents or (place == closed and not is_look):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return call(path, *rest, **({"dir_fd": dir_fd} if dir_fd is not None else {}), **named)

    return answer


def test_a_folder_with_far_too_many_ranks_loses_only_its_ranks(tmp_path: Path) -> None:
    assert RunLimits().rank_files > 10_000
    runs = RunsTree(tmp_path / "runs", limits=RunLimits(rank_files=3))
    runs.metadata("many")
    for rank in range(4):
        runs.rank("many", rank)
    assert runs.state("many") == "running"
    assert "training_rank_step" not in runs.samples()
    assert unreadable(runs, "unreadable") == 1


def test_a_file_of_a_host_with_far_too_many_ranks_loses_only_them(tmp_path: Path) -> None:
    neighbour = RunsTree(tmp_path / "runs", limits=RunLimits(rank_files=3))
    neighbour.metadata("many")
    neighbour.write("many", "ranks/node1-0123abcd.json", {"ranks": [{"rank": rank, "step": 1} for rank in range(4)]})
    assert neighbour.state("many") == "running"
    assert "training_rank_step" not in neighbour.samples()
    assert unreadable(neighbour, "unreadable") == 1


def test_a_wrong_rank_in_the_file_of_a_host_costs_itself(neighbour: RunsTree, caplog: pytest.LogCaptureFixture) -> None:
    neighbour.metadata("good")
    beats = [{"rank": rank, "step": 1, "time": to_iso(NOW), "attempt_key": "local:77-1:0"} for rank in (0, -1, "x")]
    neighbour.write("good", "ranks/node1-0123abcd.json", {"host": HOST, "ranks": beats})
    assert neighbour.samples()["training_rank_step"] == {frozenset({("run_id", "good"), ("rank", "0")}): 1.0}
    assert unreadable(neighbour, "unreadable") == 1
    assert "node1-0123abcd.json: ranks[1].rank: '-1' is no rank; ranks[2].rank: 'x' is no rank" in caplog.text


@cases("name", ["07.json", "-1.json", "x.json", "0.json.tmp", "99999999999.json"], neighbour=neighbour_in)
def test_only_the_files_of_ranks_are_ranks(neighbour: RunsTree, name: str) -> None:
    neighbour.write("good", f"ranks/{name}", {"rank": 7, "step": 1, "time": to_iso(NOW)})
    assert "training_rank_step" not in neighbour.samples()


def test_an_unforeseen_error_in_one_run_is_counted_and_costs_no_other(
    neighbour: RunsTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour.metadata("bad")

    def fail_for_bad(families: Families, record: RunRecord, steps: StepTimes, now: float) -> None:
        if record.run_id == "bad":
            raise RuntimeError("never thought of")
        add_progress(families, record, steps, now)

    monkeypatch.setattr("trainwarden_exporter.collectors.runs.collector.add_progress", fail_for_bad)
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "internal") == 1


def test_a_problem_is_logged_once_and_names_run_and_file(neighbour: RunsTree, caplog: pytest.LogCaptureFixture) -> None:
    neighbour.write("bad", "metadata.json", "{")
    for _ in range(3):
        neighbour.text()
    assert len(caplog.messages) == 1
    assert "bad" in caplog.messages[0]
    assert "metadata.json" in caplog.messages[0]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters())
    | st.just('\ud800\n\x1b[1m"'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
# Every key that a reader looks for.
KEYS = sorted({name for kind in (Metadata, Progress, RankBeat, Sentinel) for name in kind.KEYS})


DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=12), min_size=4, max_size=4)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, plain=st.binary(max_size=60))
def test_whatever_the_files_hold_the_page_stays_readable(
    neighbour: RunsTree, documents: list[dict[str, Any]], plain: bytes
) -> None:
    assert_page_is_readable(neighbour, documents, plain)


@pytest.mark.nightly
@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=DOCUMENTS, plain=st.binary(max_size=60))
def test_whatever_a_thousand_files_hold_the_page_stays_readable(
    neighbour: RunsTree, documents: list[dict[str, Any]], plain: bytes
) -> None:
    assert_page_is_readable(neighbour, documents, plain)


def assert_page_is_readable(neighbour: RunsTree, documents: list[dict[str, Any]], plain: bytes) -> None:
    for name, document in zip(("metadata.json", "progress.json", "_error", "ranks/3.json"), documents, strict=True):
        neighbour.write("odd", name, json.dumps(document))
    neighbour.write("odd", "logs/training_log_latest.txt", plain)
    neighbour.write("odd", "_complete", plain)
    assert_neighbour_is_there(neighbour)
    assert unreadable(neighbour, "internal") == 0
    for line in neighbour.text().splitlines():
        assert len(line.encode()) < 4000


def test_many_old_folders_are_silent_and_looked_at_seldom(runs: RunsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        runs.folder(f"old-{number}", modified=NOW - EXPIRY_SECONDS - 10)
    # On a busy machine a sample ends before it has looked at all.
    wait_until(lambda: runs.value("trainwarden_runs", outcome="expired") == 300, "all folders")
    looked: list[str] = []
    real = Path.stat

    def stat(path: Path, **named: Any) -> os.stat_result:
        looked.append(path.name)
        return real(path, **named)

    monkeypatch.setattr(Path, "stat", stat)
    runs.now += 2
    samples = runs.samples()
    assert samples["trainwarden_runs"][frozenset({("outcome", "expired")})] == 300
    assert not {name for name in samples if name.startswith("training_") and "_duration_" not in name}
    assert [name for name in looked if name.startswith("old-")] == []
