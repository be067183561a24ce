"""SIGKILL before and after each commit and each call of the real process: one restart, by the launcher's own log."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.remediator.conftest import Process
from tests.integration.remediator.fake_services import FakeServices, World


class Dying(Process):
    """Dies at the point of this number; at none if it is negative."""

    point = -1

    @property
    def points(self) -> list[str]:
        """The points that it has passed."""
        return self._points.read_text(encoding="utf-8").splitlines() if self._points.exists() else []

    @property
    def _points(self) -> Path:
        return self.folder / "points"

    @property
    def argv(self) -> list[str]:
        """The command line."""
        dying = "tests.integration.remediator.dying_remediator"
        return [sys.executable, "-m", dying, str(self.point), str(self._points), *super().argv[3:]]


def _restarted_once(folder: Path, point: int) -> list[str]:
    """Kill the remediator at a point while it restarts a run, and start it again; return the points that it passed."""
    folder.mkdir()
    world = World()
    services = FakeServices(world)
    remediator = Dying(folder, services)
    try:
        world.alert()
        remediator.point = point
        if point >= 0:
            remediator.launch()
            assert remediator.wait() == -signal.SIGKILL, (folder / "log").read_text()
            remediator.point = -1
        before = len(remediator.points)
        remediator.start()
        incident = remediator.incident("DONE")
        assert world.starts == [incident["id"]], remediator.points
        assert world.generation == 1
        return remediator.points[before:]
    finally:
        remediator.close()
        services.close()


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.timeout(1800)
def test_a_process_that_is_killed_at_any_point_restarts_the_run_once(tmp_path: Path, everywhere: bool) -> None:
    points = _restarted_once(tmp_path / "clean", -1)
    calls = [number for number, name in enumerate(points) if name.endswith("call")]
    assert [points[number] for number in calls] == ["commit: before call", "commit: after call"]
    last = next(number for number, name in enumerate(points) if name == "VERIFYING to DONE: after commit")
    for number in range(last) if everywhere else [last // 4, *calls]:
        _restarted_once(tmp_path / "killed", number)
        shutil.rmtree(tmp_path / "killed")
