"""`ray register` of a job whose reservations Ray shows no more; with a real Ray: tests/ray/test_restart_obstacles."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.remediator.fake_ray import FakeRay
from trainwarden.clients.ray_jobs import RayJobs, RayReserved
from trainwarden_remediator.cli import main
from trainwarden_remediator.commands import ray_register
from trainwarden_remediator.drivers.ray_templates import RayTemplates
from trainwarden_remediator.errors import ConfigError


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    found = FakeRay()
    found.add("job", "run-1")
    monkeypatch.setattr(ray_register, "ray_jobs", lambda _settings: RayJobs(found))
    return found


@pytest.fixture
def register(tmp_path: Path) -> Callable[..., int]:
    def call(*flags: str) -> int:
        of_service = ["--driver=ray", "--ray-address=http://127.0.0.1:9", f"--ray-template-dir={tmp_path}"]
        return main([*of_service, f"--state-dir={tmp_path}/state", "ray", "register", "job", *flags])

    return call


ALL = ("--num-gpus=2", "--num-cpus=4", "--memory=8000000000", "--resource=special=1", "--label=zone=a")


def test_all_that_ray_does_not_show_any_more_can_be_given_and_what_was_not_is_named(
    ray: FakeRay, register: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ray.reserved.clear()
    assert register("--num-gpus=2", "--memory=8000000000") == 0
    assert "not given: --num-cpus, --resource, --label" in capsys.readouterr().out
    assert register(*ALL, "--train-max-failures=0") == 0
    assert "not given" not in capsys.readouterr().out
    template = RayTemplates(tmp_path).of("run-1")
    assert template is not None
    assert template.reserved == RayReserved(4, 2, 8_000_000_000, {"special": 1}, {"zone": "a"})
    assert template.ray_train_max_failures == 0
    assert register("--num-cpus=4") == 2
    assert "expected --num-gpus N" in capsys.readouterr().err


def test_what_is_given_may_not_contradict_what_ray_shows(
    ray: FakeRay, register: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ray.reserved["job"] = {"GPU": 1.0, "memory": 8_000_001_024.0, "special": 2.0}
    assert register(*ALL) == 2
    said = capsys.readouterr().err
    for part in ("--num-gpus 2: Ray shows 1", "--num-cpus 4: Ray shows 0", "--resource special=1: Ray shows 2",
                 "--label zone=a: Ray shows none"):  # fmt: skip
        assert part in said
    assert "--memory" not in said, "it differs by rounding alone"
    assert register("--num-gpus=1", "--resource=special=2") == 0
    assert "not given" not in capsys.readouterr().out
    assert json.loads((tmp_path / "run-1.yaml").read_text())["entrypoint_resources"] == {"special": 2}


def test_another_registration_keeps_the_copy_and_the_number_that_it_does_not_give_anew(
    ray: FakeRay, register: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-1.yaml").write_text("entrypoint_num_gpus: many\n")
    ray.jobs["job"]["runtime_env"] = {"working_dir": "gcs://code.zip"}
    (tmp_path / "code.zip").write_bytes(b"a copy")
    assert register(f"--working-dir={tmp_path}/code.zip") == 0
    assert register("--train-max-failures=0") == 0
    assert "package gcs://code.zip: a copy is kept" in capsys.readouterr().out
    assert register() == 0
    template = RayTemplates(tmp_path).of("run-1")
    assert template is not None
    assert template.ray_train_max_failures == 0
    assert RayTemplates(tmp_path).package(template.packages["code.zip"]) == b"a copy"


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--num-gpus=-1", "--num-gpus -1: expected 0 or more"),
        ("--resource=special", "--resource special: expected NAME=N"),
        ("--resource=special=many", "--resource special=many: expected NAME=N"),
        ("--label=zone", "--label zone: expected KEY=VALUE"),
        ("--train-max-failures=-2", "--train-max-failures -2: expected -1, 0 or more"),
    ],
)
def test_a_wrong_value_is_named(
    ray: FakeRay, register: Callable[..., int], capsys: pytest.CaptureFixture[str], flag: str, expected: str
) -> None:
    assert register(flag) == 2
    assert expected in capsys.readouterr().err


def test_a_template_that_cannot_be_written_gets_one_line(
    ray: FakeRay, register: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ray.jobs
    (tmp_path / "run-1.yaml").mkdir()
    assert register() == 2
    assert "trainwarden-remediator: --ray-template-dir: " in capsys.readouterr().err


def test_a_folder_of_templates_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    monkeypatch.setattr(Path, "exists", stale)
    with pytest.raises(ConfigError, match=r"run-1\.yaml: Stale file handle"):
        RayTemplates(tmp_path).of("run-1")
