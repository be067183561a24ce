"""The built wheel: what is in it, and that it works away from the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's content and comes before the checkout on the import path."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def _python(installed: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_it_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "trainwarden",
        "trainwarden_exporter",
        "trainwarden_remediator",
    }


def test_the_folders_exporter_and_remediator_are_no_packages() -> None:
    assert not (ROOT / "exporter" / "__init__.py").exists()
    assert not (ROOT / "remediator" / "__init__.py").exists()


def test_away_from_the_checkout_it_finds_its_own_configuration(installed: Path) -> None:
    script = (
        "from trainwarden.stack.bundle import bundle\n"
        "for part, file in (('rules', 'alerts/runs.yml'), ('alertmanager', 'alertmanager.yml'),\n"
        "                   ('prometheus', 'prometheus.yml'), ('grafana', 'dashboards/train-fleet.json')):\n"
        "    path = bundle(part) / file\n"
        "    assert path.is_file(), path\n"
        "    print(path)\n"
    )
    paths = [Path(line) for line in _python(installed, "-c", script).splitlines()]
    assert len(paths) == 4
    assert all(path.is_relative_to(installed) for path in paths)


def test_away_from_the_checkout_the_rules_are_built(installed: Path, tmp_path: Path) -> None:
    assert "files in" in _python(installed, "-m", "trainwarden", "rules", "build", "--out", str(tmp_path / "rules"))
    for kind in ("alerts", "recording"):
        built = {path.name: path.read_bytes() for path in (tmp_path / "rules" / kind).glob("*.yml")}
        assert built == {path.name: path.read_bytes() for path in (ROOT / "rules" / kind).glob("*.yml")}


def test_away_from_the_checkout_the_exporter_and_the_policies_work(installed: Path, tmp_path: Path) -> None:
    page = _python(installed, "-m", "trainwarden_exporter", "--once", f"--collector.runs.path={tmp_path}")
    assert "trainwarden_build_info" in page
    _python(installed, "-m", "trainwarden_remediator", "check-policy", "megatron_transient")


def test_away_from_the_checkout_a_run_is_recorded_listed_exported_and_its_failure_found(
    installed: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    training = (
        "import trainwarden\n"
        "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.')\n"
        "with trainwarden.run('r') as run:\n"
        "    run.step(7, loss=1.5)\n"
    )
    arguments = ("-m", "trainwarden", "exec", "--run-id", "r", "--", sys.executable, "-c", training)
    _python(installed, *arguments, TRAINWARDEN_RUNS_DIR=str(runs))
    assert "succeeded" in _python(installed, "-m", "trainwarden", "runs", TRAINWARDEN_RUNS_DIR=str(runs))
    page = _python(installed, "-m", "trainwarden_exporter", "--once", f"--collector.runs.path={runs}")
    assert 'training_step{run_id="r"} 7.0' in page
    log = tmp_path / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    found = _python(installed, "-m", "trainwarden", "scan", str(log), status=1)
    assert "cuda_oom" in found


def test_the_library_alone_needs_nothing_but_the_standard_library(installed: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import trainwarden; trainwarden.run; trainwarden.RunRefused; import trainwarden.taxonomy\n"
        "print(sorted(name.partition('.')[0] for name in sys.modules))\n"
    )
    # -I and -S: neither the environment nor site-packages.
    modules = set(eval(_python(installed, "-I", "-S", "-c", script)))  # the list that the line above prints
    assert modules - set(sys.stdlib_module_names) - {"__main__", "trainwarden"} <= {"_distutils_hack"}
