"""Packs of signals that a record names: what a hostile one costs, and whose files it is read from."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.exporter.logs_tree import OOM, LogsTree
from tests.users import ANOTHER, needs_root
from trainwarden.signals.pack import SHIPPED, PackError, read_pack
from trainwarden.signals.tailing.log import Searcher
from trainwarden.signals.tailing.opening import OwnedRoots
from trainwarden_exporter.collectors.logs.users_packs import (
    MAX_PACK_BYTES,
    MAX_PACKS_OF_USER,
    OwnedPackFiles,
    UsersPacks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOW = "log_signals: [{name: slow, pattern: '(?P<a>(a|aa)+$b)', state: CrashState}]\n"
LUCK = "log_signals: [{name: luck, pattern: out of luck}]\n"
ME = os.getuid()


@pytest.fixture
def folder_of_all() -> Iterator[Path]:
    """A folder that every user may enter, as one of pytest's is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def logs(tmp_path: Path) -> LogsTree:
    tree = LogsTree(tmp_path, timeout=60.0)
    tree.runs.metadata("victim")
    tree.write("victim", OOM)
    return tree


@pytest.mark.parametrize(
    "pack",
    [
        "/a\0b",
        "\0",
        "~nobody-of-this-name/pack.yaml",
        "{runs}/" + "n" * 300 + ".yaml",
        "{runs}/evil/closed/pack.yaml",
        "{runs}/evil/pipe.yaml",
        "{runs}/evil/loop.yaml",
        "{runs}/evil/empty",
    ],
)
def test_no_name_of_a_pack_costs_another_run_its_logs(logs: LogsTree, pack: str) -> None:
    runs = logs.folder / "runs"
    logs.runs.metadata("evil", signals=pack.format(runs=runs))
    (runs / "evil" / "closed").mkdir(mode=0)
    os.mkfifo(runs / "evil" / "pipe.yaml")
    (runs / "evil" / "loop.yaml").symlink_to("loop.yaml")
    logs.write("evil", OOM)
    logs.look()
    assert (logs.count("victim", "cuda_oom"), logs.count("evil", "cuda_oom")) == (1, 1)
    assert logs.value("trainwarden_log_errors_total", reason="pack") == 1


def test_slow_signals_of_one_name_in_packs_of_one_name_cost_no_other_run_its_logs(
    logs: LogsTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.logs.users_packs.PAUSE_FACTOR", 0.0)
    monkeypatch.setattr("trainwarden.signals.patterns.TIME_LIMIT_SECONDS", 0.05)
    for run_id in ("evil1", "evil2"):
        pack = logs.runs.folder(run_id) / "mine.yaml"
        pack.write_text(SLOW)
        logs.runs.metadata(run_id, signals=str(pack))
        logs.write(run_id, ("a" * 60 + "c\n") * 3)
    for _ in range(4):  # three searches that are cut off may fill a round
        logs.look()
    assert [logs.count(run_id, "slow") for run_id in ("evil1", "evil2")] == [0, 0]
    assert logs.value("trainwarden_log_signal_off", pack="mine", signal="slow") == 1
    assert logs.count("victim", "cuda_oom") == 1


def test_a_pack_on_a_file_system_that_hangs_delays_its_run_alone(
    logs: LogsTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, come_back = threading.Event(), threading.Event()
    realpath = os.path.realpath

    def hanging(path: str) -> str:
        if str(path).endswith("hangs.yaml"):
            hung.set()
            come_back.wait(60)
        return realpath(path)

    monkeypatch.setattr(os.path, "realpath", hanging)
    monkeypatch.setattr("trainwarden_exporter.collectors.logs.users_packs.WAIT_SECONDS", 0.1)
    logs.runs.metadata("evil", signals=f"{logs.folder}/runs/hangs.yaml")
    logs.write("evil", OOM)
    try:
        logs.look()
        assert hung.is_set()
        assert (logs.count("victim", "cuda_oom"), logs.count("evil", "cuda_oom")) == (1, None)
    finally:
        come_back.set()


class ManyPacks:
    """Packs that take no time, and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loads: list[tuple[int | None, str]] = []
        self.packs = UsersPacks((), self.load, clock=lambda: self.now)

    def load(self, key: tuple[int | None, str], _: Sequence[str]) -> Searcher:
        self.loads.append(key)
        if "broken" in key[1]:
            raise PackError("is broken")
        return Searcher(read_pack("megatron_basic"))

    def get(self, *keys: tuple[int | None, str]) -> int:
        """One round; returns how many can be used."""
        self.packs.begin_round(keys)
        usable = 0
        for key in keys:
            self.now += 60.0  # whatever pause the one before has caused is over
            self.packs._wait_until = self.now + 60.0
            try:
                usable += self.packs.get(key) is not None
            except PackError:
                continue
        return usable


def test_a_user_with_many_packs_leaves_room_for_those_of_another() -> None:
    many = ManyPacks()
    named = [(1, f"/runs/{number}.yaml") for number in range(100)]
    assert many.get(*named) == MAX_PACKS_OF_USER
    assert many.get(*named, (2, "/runs/a.yaml")) == MAX_PACKS_OF_USER + 1
    # A pack that no run names any more takes no place.
    assert many.get(*named[50:]) == MAX_PACKS_OF_USER


def test_a_pack_that_cannot_be_used_is_not_read_in_each_round() -> None:
    many = ManyPacks()
    many.packs.begin_round([(1, "/runs/broken.yaml")])
    for _ in range(5):
        with pytest.raises(PackError, match="is broken"):
            many.packs.get((1, "/runs/broken.yaml"))
        many.now += 2.0
    assert len(many.loads) == 1
    many.now += 60.0
    with pytest.raises(PackError, match="is broken"):
        many.packs.get((1, "/runs/broken.yaml"))
    assert len(many.loads) == 2


def test_a_user_whose_packs_take_long_waits_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ManyPacks()
    many.packs.begin_round([])
    seconds = iter((0.0, 100.0, 100.0, 100.0))  # the first one takes long
    monkeypatch.setattr("trainwarden_exporter.collectors.logs.users_packs.time.monotonic", lambda: next(seconds))
    assert many.packs.get((1, "/runs/long.yaml")) is not None
    assert many.packs.get((1, "/runs/next.yaml")) is None
    assert many.packs.get((2, "/runs/other.yaml")) is not None


def test_a_pack_larger_than_the_limit_is_refused_with_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(LUCK + "#" * MAX_PACK_BYTES)
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\n")
    files = OwnedPackFiles(OwnedRoots((str(tmp_path),), ME))
    with pytest.raises(PackError, match=f"more than {MAX_PACK_BYTES} bytes with what it extends"):
        read_pack(str(tmp_path / "mine.yaml"), files)


def test_no_file_of_another_user_is_read_through_a_pack(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    secret = tmp_path / "secret.yaml"
    secret.write_text(LUCK)
    (runs / "mine.yaml").write_text(f"extends: [{secret}, all]\n")
    (runs / "link.yaml").symlink_to(secret)

    def signals(name: str, user: int) -> set[str]:
        return {
            each.name for each in read_pack(str(runs / name), OwnedPackFiles(OwnedRoots((str(runs),), user))).signals
        }

    found = signals("mine.yaml", ME)
    assert "cuda_oom" in found
    assert "luck" not in found
    # Only on the face of it the last lies among the packs that anybody may read.
    for name in ("link.yaml", SHIPPED / os.path.relpath(secret, SHIPPED)):
        with pytest.raises(PackError, match="no such file"):
            signals(str(name), ME)
    (runs / "mine.yaml").chmod(0o600)
    with pytest.raises(PackError, match="no such file"):
        signals("mine.yaml", ME + 1)


@needs_root
def test_a_pack_that_one_user_has_written_for_all_may_be_used_by_all(folder_of_all: Path) -> None:
    pack = folder_of_all / "team" / "team.yaml"
    pack.parent.mkdir(mode=0o755)
    pack.write_text(LUCK)
    for path in (pack.parent, pack):
        os.chown(path, ANOTHER, ANOTHER)

    def signals() -> list[str]:
        files = OwnedPackFiles(OwnedRoots((str(folder_of_all),), ANOTHER + 1))
        return [each.name for each in read_pack(str(pack), files).signals]

    pack.chmod(0o644)
    assert signals() == ["luck"]
    pack.parent.chmod(0o700)
    with pytest.raises(PackError, match="no such file"):
        signals()
    pack.parent.chmod(0o755)
    pack.chmod(0o640)
    with pytest.raises(PackError, match="no such file"):
        signals()
