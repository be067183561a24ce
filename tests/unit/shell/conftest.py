"""What the tests of shell commands share."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.job_variables import remove_job_variables
from tests.unit.shell.calling import Shell


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a job of some scheduler."""
    remove_job_variables(monkeypatch)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """`trainwarden` is on its PATH."""
    commands = tmp_path / "commands"
    commands.mkdir()
    command = commands / "trainwarden"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})\n"
        "from trainwarden.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    made = Shell(tmp_path / "runs", commands)
    yield made
    made.clean_up()


@pytest.fixture(params=["bash", "dash"])
def interpreter(request: pytest.FixtureRequest) -> str:
    """Each shell that trainwarden.sh is for."""
    name = str(request.param)
    if subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} is not installed")
    return name
