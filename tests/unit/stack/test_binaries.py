"""Where Prometheus and Alertmanager are taken from."""

import os
import shutil
from pathlib import Path

import pytest

from trainwarden.stack import binaries, debian
from trainwarden.stack.binaries import ToolsMissing, find_tools
from trainwarden.stack.debian import PackagesUnavailable

pytestmark = pytest.mark.process

_NAMES = ("prometheus", "promtool", "alertmanager", "amtool")


def _programs(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _NAMES:
        (folder / name).write_text(f"#!/bin/sh\necho '{name}, version {version} (branch: x)'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_arguments: object, **_options: object) -> None:
        message = "no packages here"
        raise PackagesUnavailable(message)

    monkeypatch.setattr(binaries, "unpack", unavailable)
    monkeypatch.delenv("TRAINWARDEN_TOOLS_DIR", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")


def _path(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    # The stand-ins are shell scripts.
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"]))


def test_programs_on_path_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _programs(tmp_path / "bin", "2.50.1")
    _path(monkeypatch, folder)
    tools = find_tools(tmp_path / "into")
    assert (tools.prometheus, tools.amtool) == (folder / "prometheus", folder / "amtool")
    assert tools.versions() == "Prometheus 2.50.1, Alertmanager 2.50.1"


def test_programs_on_path_that_are_too_old_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _path(monkeypatch, _programs(tmp_path / "bin", "0.20.0"))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "docker" else str(tmp_path / "bin" / name))
    with pytest.raises(ToolsMissing, match=r"prometheus 2\.42.*no packages here.*docker is not on PATH"):
        find_tools(tmp_path / "into")


def test_a_folder_named_in_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _path(monkeypatch, _programs(tmp_path / "path", "2.50.1"))
    monkeypatch.setenv("TRAINWARDEN_TOOLS_DIR", str(_programs(tmp_path / "named", "3.0.0")))
    assert find_tools().prometheus == tmp_path / "named" / "prometheus"


def test_what_was_unpacked_before_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _path(monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    _programs(tmp_path / "into/root/usr/bin", "2.42.0")
    with pytest.raises(ToolsMissing):
        find_tools(tmp_path / "into")  # somebody may still be at it
    (tmp_path / "into/unpacked-prometheus+prometheus-alertmanager").touch()
    assert find_tools(tmp_path / "into").source == str(tmp_path / "into")


def test_where_docker_answers_the_programs_come_out_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = _programs(tmp_path / "image", "3.5.0")
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        f'#!/bin/sh\ncase "$1" in create) echo c1;; cp) exec cp "{image}/$(basename "$2")" "$3";; rm) ;; esac\n'
    )
    docker.chmod(0o755)
    _path(monkeypatch, docker.parent)
    monkeypatch.setattr(shutil, "which", lambda name: str(docker) if name == "docker" else None)
    tools = find_tools(tmp_path / "into")
    assert (tools.source, tools.alertmanager) == ("Docker", tmp_path / "into/docker/alertmanager")


def test_a_name_that_is_no_package_never_reaches_apt(tmp_path: Path) -> None:
    with pytest.raises(PackagesUnavailable, match="no package name"):
        debian.unpack(["--option=x"], tmp_path)


def test_without_apt_the_reason_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PackagesUnavailable, match="no Debian or Ubuntu system"):
        debian.unpack(["prometheus"], tmp_path)
