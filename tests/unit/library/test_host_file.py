"""The ranks of one host share one file of the record, and none of them depends on another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.small_disk import small_disk
from tests.unit.library.looking import read_rank, read_snapshot
from tests.unit.library.processes import DEADLINE_SECONDS, Script, line
from tests.waiting import wait_until
from trainwarden.identity import host_name
from trainwarden.record.folder import LIVENESS_SECONDS

pytestmark = pytest.mark.process

_KEY = "local:7-1:0"
_TRAIN = """
    import os, signal, sys, time, trainwarden
    {before}
    with trainwarden.run("r") as run:
        run.step(1)
        print("trains", flush=True)
        sys.stdin.readline()
        run.step(2)
"""
# When its end is published: the process holds the lock of the node's folder then.
_AT_ITS_END = """
    from trainwarden.record.store import RecordStore
    write = RecordStore.write
    def intercept(store, name, document, **options):
        if "-" in name and any(beat.rank == 1 and beat.status != "running" for beat in document.ranks):
            {then}
        write(store, name, document, **options)
    RecordStore.write = intercept
"""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Node:
    """Ranks of the run "r" on this host; `memory` is what their node has for /dev/shm."""

    def __init__(self, script: Script, memory: Path) -> None:
        self._script = script
        self.memory = memory
        self.folder = script.folder

    def start(
        self,
        rank: int,
        *,
        before: str = "",
        key: str = _KEY,
        under: tuple[str, ...] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[str]:
        """Start a rank, and wait until it trains."""
        code = _TRAIN.replace("    {before}\n", before)
        ranks = {"RANK": str(rank), "WORLD_SIZE": "8", "TRAINWARDEN_ATTEMPT_KEY": key}
        place = {"TRAINWARDEN_NODE_DIR": str(self.memory)}
        process = self._script.start(code, under=under, **{**ranks, **place, **environment})
        assert line(process.stdout) == "trains\n", process.communicate()[1]
        return process

    def let_end(self, *ranks: subprocess.Popen[str]) -> None:
        """Have ranks make another step and leave their block."""
        for rank in ranks:
            print(file=rank.stdin, flush=True)

    def finish(self, *ranks: subprocess.Popen[str]) -> None:
        """Let ranks end well, all at once."""
        self.let_end(*ranks)
        for rank in ranks:
            assert rank.wait(DEADLINE_SECONDS) == 0

    def files(self) -> list[str]:
        """The names of the beats' files in the record, without the hashes."""
        names = sorted(path.name for path in (self.folder / "ranks").glob("*.json"))
        return ["host" if "-" in name else name for name in names]

    def status(self, rank: int) -> str | None:
        """The status of a rank, as readers see it."""
        status: str | None = read_rank(self.folder, rank).status
        return status

    def folders(self) -> list[Path]:
        """The folders of attempts in the memory of the node."""
        return list(self.memory.glob("trainwarden-*/*"))


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def node(script: Script, memory: Path) -> Node:
    return Node(script, memory)


def test_all_ranks_of_a_host_are_in_one_file_from_their_start_to_their_end(node: Node) -> None:
    ranks = [node.start(rank) for rank in range(4)]
    assert node.files() == ["host"]
    assert [(beat.rank, beat.status) for beat in read_snapshot(node.folder).ranks] == [(n, "running") for n in range(4)]
    node.finish(*ranks)
    assert node.files() == ["host"]
    beats = read_snapshot(node.folder).ranks
    assert [(beat.rank, beat.status, beat.step) for beat in beats] == [(n, "succeeded", 2) for n in range(4)]
    assert {beat.host for beat in beats} == {host_name()}
    assert node.folders() == []


def test_a_killed_rank_grows_old_and_the_others_go_on(node: Node) -> None:
    first, second = node.start(0), node.start(1)
    second.kill()
    second.wait(DEADLINE_SECONDS)
    then = read_rank(node.folder, 0).time
    wait_until(lambda: read_rank(node.folder, 0).time > then + 1)
    killed = read_rank(node.folder, 1)
    assert (killed.status, killed.pid) == ("running", second.pid)
    assert killed.time < read_rank(node.folder, 0).time
    node.finish(first)
    assert (node.status(0), node.status(1)) == ("succeeded", "running")
    assert (node.files(), node.folders()) == (["host"], [])


@pytest.mark.slow
def test_a_rank_that_is_stopped_while_it_publishes_costs_the_others_nothing(node: Node) -> None:
    first, second = node.start(0), node.start(2)
    # Sent to the thread itself, which else goes on for a moment.
    stop = "import threading; signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)"
    stopped = node.start(1, before=_AT_ITS_END.format(then=stop))
    node.let_end(stopped)
    wait_until(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    before, then = read_rank(node.folder, 1), read_rank(node.folder, 0).time
    wait_until(lambda: read_rank(node.folder, 0).time > then)
    node.finish(first)
    assert node.files() == ["0.json", "2.json", "host"]
    assert (node.status(0), node.status(1), node.status(2)) == ("succeeded", "running", "running")
    assert read_rank(node.folder, 1).time == before.time
    # What it had in hand is old by now, and replaces nothing newer.
    stopped.send_signal(signal.SIGCONT)
    node.finish(stopped, second)
    assert [beat.status for beat in read_snapshot(node.folder).ranks] == ["succeeded"] * 3


def test_the_lock_of_a_killed_rank_is_free_though_a_child_of_it_lives(node: Node, tmp_path: Path) -> None:
    over = tmp_path / "over"
    wait = f"while not os.path.exists({str(over)!r}): time.sleep(0.05)"
    die = f"os.fork() and os.kill(os.getpid(), signal.SIGKILL); os.closerange(0, 3); exec({wait!r}); os._exit(0)"
    first, killed = node.start(0), node.start(1, before=_AT_ITS_END.format(then=die))
    try:
        node.let_end(killed)
        assert killed.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        node.finish(first)
        # The killed one had left its end on the node.
        assert (node.status(0), node.status(1), node.files()) == ("succeeded", "succeeded", ["host"])
    finally:
        over.touch()


@pytest.mark.parametrize("place", ["", "/nonexistent", "/proc"])
def test_without_a_folder_in_memory_each_rank_has_a_file_of_its_own(node: Node, place: str) -> None:
    ranks = [node.start(rank, environment={"TRAINWARDEN_NODE_DIR": place}) for rank in range(2)]
    assert node.files() == ["0.json", "1.json"]
    node.finish(*ranks)
    assert [(beat.status, beat.step) for beat in read_snapshot(node.folder).ranks] == [("succeeded", 2)] * 2


@root_only
def test_a_full_memory_costs_the_shared_file_alone(script: Script, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        disk.path.chmod(0o700)
        node = Node(script, disk.path)
        first = node.start(0)
        disk.fill()
        second = node.start(1)
        assert "1.json" in node.files()
        then = read_rank(node.folder, 0).time
        wait_until(lambda: read_rank(node.folder, 0).time > then)
        node.finish(first, second)
        assert (node.status(0), node.status(1)) == ("succeeded", "succeeded")


def _link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


def _open_to_all(path: Path, elsewhere: Path) -> None:  # as the others
    path.mkdir()
    path.chmod(0o777)


def _of_another_user(path: Path, elsewhere: Path) -> None:  # as the others
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)


def _file(path: Path, elsewhere: Path) -> None:  # as the others
    path.write_text("mine")


@pytest.mark.parametrize("plant", [_link, _open_to_all, pytest.param(_of_another_user, marks=root_only), _file])
def test_what_another_user_has_put_in_the_place_is_left_alone(
    node: Node, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    node.memory.chmod(0o1777)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    planted = node.memory / f"trainwarden-{os.geteuid()}"
    plant(planted, elsewhere)
    rank = node.start(0)
    assert node.files() == ["0.json"]
    node.finish(rank)
    assert list(elsewhere.iterdir()) == []
    assert not planted.is_dir() or list(planted.iterdir()) == []


def test_a_place_where_others_may_rename_is_not_used(node: Node) -> None:
    node.memory.chmod(0o777)
    node.finish(node.start(0))
    assert (node.files(), node.folders()) == (["0.json"], [])


@root_only
def test_the_ranks_of_another_user_have_a_file_of_theirs(node: Node, tmp_path: Path) -> None:
    # Where that user may go; and what it needs is loaded while it may read all files.
    load = f"trainwarden.run('x', dir={str(tmp_path)!r}).__exit__(None, None, None)"
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        runs, memory = Path(place, "runs"), Path(place, "memory")
        for folder in (Path(place), runs / "r" / "ranks", runs / "r", runs, memory):
            folder.mkdir(exist_ok=True, parents=True)
            folder.chmod(0o1777)
        places = {"TRAINWARDEN_RUNS_DIR": str(runs), "TRAINWARDEN_NODE_DIR": str(memory)}
        first = node.start(0, environment=places)
        second = node.start(1, before=f"    {load}\n    os.setgid(65534)\n    os.setuid(65534)\n", environment=places)
        files = [path.name for path in (runs / "r" / "ranks").glob("*.json")]
        assert len([name for name in files if "-" in name]) == len(files) == 2
        node.finish(first, second)
        assert [beat.status for beat in read_snapshot(runs / "r").ranks] == ["succeeded"] * 2


@root_only
def test_containers_of_one_host_name_have_a_file_each(node: Node) -> None:
    own = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o mode=700 tmpfs {node.memory} && exec "$@"', "sh")
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the permission to unshare mounts")
    ranks = [node.start(0), node.start(1, under=own), node.start(2, under=own)]
    assert node.files() == ["host"] * 3
    node.finish(*ranks)
    assert [beat.status for beat in read_snapshot(node.folder).ranks] == ["succeeded"] * 3


def test_the_next_attempt_replaces_the_file_and_old_beats_count_no_more(node: Node) -> None:
    for rank in [node.start(0), node.start(1)]:
        rank.kill()
        rank.wait(DEADLINE_SECONDS)
    again = node.start(0, key="local:7-1:1")
    assert (node.files(), len(node.folders())) == (["host"], 2)
    assert [(beat.rank, beat.pid) for beat in read_snapshot(node.folder).ranks] == [(0, again.pid)]
    node.finish(again)
    assert len(node.folders()) == 1


def test_an_end_outlives_the_folder_of_the_node(node: Node) -> None:
    """As where a login manager removes what the user had in memory, and the job goes on."""
    first, second, third = (node.start(rank) for rank in range(3))
    node.finish(second)
    (folder,) = node.folders()
    # A rank that writes meanwhile may leave a file in it.
    wait_until(lambda: subprocess.run(["rm", "-rf", folder], check=False, capture_output=True).returncode == 0)
    then = read_rank(node.folder, 0).time
    wait_until(lambda: read_rank(node.folder, 0).time > then)
    assert node.status(1) == "succeeded"
    node.finish(first, third)
    assert [beat.status for beat in read_snapshot(node.folder).ranks] == ["succeeded"] * 3


def test_a_folder_that_nobody_has_written_for_long_is_removed(node: Node) -> None:
    for rank in (node.start(0), node.start(1, key="local:8-1:0")):
        rank.kill()
        rank.wait(DEADLINE_SECONDS)
    old, other = node.folders()
    os.utime(old, (1.0, 1.0))
    node.finish(node.start(0, key="local:9-1:0"))
    assert node.folders() == [other]


def test_a_new_phase_is_published_before_the_next_sign_of_life(node: Node, script: Script) -> None:
    code = _TRAIN.replace("    {before}\n", "").replace("run.step(2)", "run.phase('eval'); sys.stdin.readline()")
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "TRAINWARDEN_ATTEMPT_KEY": _KEY}
    process = script.start(code, **ranks, TRAINWARDEN_NODE_DIR=str(node.memory))
    assert line(process.stdout) == "trains\n"
    before = read_rank(node.folder, 1).time
    node.let_end(process)
    wait_until(lambda: read_rank(node.folder, 1).phase == "eval")
    assert read_rank(node.folder, 1).time - before < LIVENESS_SECONDS


def test_a_rank_of_an_older_version_counts_beside_them(node: Node) -> None:
    rank = node.start(0)
    beat = {"rank": 1, "step": 7, "status": "running", "host": "old", "pid": 4, "attempt_key": _KEY}
    (node.folder / "ranks" / "1.json").write_text(json.dumps({**beat, "time": "2026-01-01T00:00:00Z"}))
    assert [beat.host for beat in read_snapshot(node.folder).ranks] == [host_name(), "old"]
    node.finish(rank)
