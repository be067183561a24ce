"""Folders as packages of Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden.clients import ray_package
from trainwarden.clients.ray_package import CannotPack, pack


def test_a_folder_is_packed_the_same_way_each_time_without_what_is_excluded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "big").write_text("big")
    with pytest.raises(CannotPack, match="expected a folder with files"):
        pack(tmp_path, ("data/*",))
    (tmp_path / "train.py").write_text("print(1)")
    first = pack(tmp_path, ("data/*",))
    assert first == pack(tmp_path, ("data",))
    assert b"big" not in first
    assert b"config" not in first


def test_what_cannot_be_packed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotPack, match=f"{tmp_path}/nowhere: expected a folder with files"):
        pack(tmp_path / "nowhere")
    (tmp_path / "big").write_bytes(bytes(100))
    monkeypatch.setattr(ray_package, "MAX_PACKAGE_BYTES", 99)
    with pytest.raises(CannotPack, match=f"{tmp_path}: more than 99 bytes"):
        pack(tmp_path)


@pytest.mark.process
def test_as_a_program_without_the_library_it_makes_the_same_package(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "big").write_bytes(bytes(100))
    source = Path(ray_package.__file__).read_text()
    command = [sys.executable, "-I", "-c", source, str(tmp_path), "big"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == pack(tmp_path, ("big",))
    failed = subprocess.run([*command[:-2], "/nowhere"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "/nowhere: expected a folder with files\n"
