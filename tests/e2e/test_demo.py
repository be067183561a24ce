"""Every scenario of the demo keeps its promise, with the whole stack and a real training."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden.stack.binaries import Tools

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(600)]


def _demo(scenario: str, state_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples/demo/demo.py"), "--scenario", scenario, "--stall-seconds", "10"]
    return subprocess.run(
        [*command, "--state-dir", str(state_dir), *options],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _processes_that_name(folder: Path) -> list[str]:
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = cmdline.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text:
            found.append(text)
    return found


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    "scenario",
    ["hang", "oom", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("crash", "none", "kill9", "nan"))],
)
def test_the_outcome_is_the_promised_one_and_nothing_is_left_behind(scenario: str, tmp_path: Path) -> None:
    _check_promise(_demo(scenario, tmp_path), scenario, tmp_path)


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("scenario", ["hang", "crash", "oom"])
def test_a_job_of_a_real_ray_keeps_the_same_promise(scenario: str, tmp_path: Path) -> None:
    done = _demo(scenario, tmp_path, "--driver", "ray")
    _check_promise(done, scenario, tmp_path)
    assert re.search(r" ray:demo-\S+:0 started", done.stdout)


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("scenario", ["hang", "crash", "oom"])
def test_a_job_of_a_real_slurm_keeps_the_same_promise(scenario: str, tmp_path: Path) -> None:
    done = _demo(scenario, tmp_path, "--driver", "slurm")
    _check_promise(done, scenario, tmp_path)
    assert re.search(r" slurm:\d+:0 started", done.stdout)
    assert ("slurm:1:1 started again" in done.stdout) == (scenario != "oom"), "the same job"


def _check_promise(done: subprocess.CompletedProcess[str], scenario: str, folder: Path) -> None:
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "as promised" in done.stdout
    assert _processes_that_name(folder) == []
    (page,) = folder.rglob("report.html")
    assert page.as_uri() in done.stdout
    text = page.read_text(encoding="utf-8")
    assert all(f">{plot}</h3>" in text for plot in ("Step", "Loss", "Heartbeats"))
    if scenario in ("hang", "crash", "kill9"):
        moments = dict(re.findall(r"^  (\w+) +(-?[\d.]+) s ", done.stdout, re.MULTILINE))
        assert {"fault", "detected", "alerted", "decided", "restarted", "recovered"} <= moments.keys()
        assert "steps, trained again" in done.stdout
        assert "after 1 restart." in text
        assert "steps trained again" in text


def test_an_unknown_driver_is_refused_with_the_known_ones(tmp_path: Path, tools: Tools) -> None:
    done = _demo("hang", tmp_path, "--driver", "flux")
    assert done.returncode == 2
    assert "DRIVER=flux: one of local, slurm, ray" in done.stderr


def test_an_unknown_scenario_is_refused_with_the_known_ones(tmp_path: Path, tools: Tools) -> None:
    done = _demo("earthquake", tmp_path)
    assert done.returncode == 2
    assert "SCENARIO=earthquake" in done.stderr
    assert "hang" in done.stderr
