"""What is opened below a folder is below it, with the kernel's own lookup and without."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.beneath import open_beneath, walk_beneath

Open = Callable[[int, str], int]


@pytest.fixture(params=[open_beneath, walk_beneath])
def opened(request: pytest.FixtureRequest) -> Open:
    """Either way to open."""
    function: Open = request.param
    return function


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """A folder with files, links and a pipe; outside of it a secret."""
    inside = tmp_path / "folder"
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/b/file").write_text("deep")
    (inside / "file").write_text("near")
    (tmp_path / "secret").write_text("secret")
    (inside / "link").symlink_to("file")
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "folder_link").symlink_to("a")
    (inside / "a/up").symlink_to("../..")
    os.mkfifo(inside / "pipe")
    descriptor = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@cases(("name", "content"), [("file", b"near"), ("a/b/file", b"deep"), ("a//b/./file", b"deep")])
def test_a_file_below_is_opened(opened: Open, folder: int, name: str, content: bytes) -> None:
    descriptor = opened(folder, name)
    assert os.read(descriptor, 10) == content
    os.close(descriptor)


@cases("name", ["link", "out", "folder_link/b/file", "a/up/secret"])
def test_no_link_is_followed(opened: Open, folder: int, name: str) -> None:
    with pytest.raises(OSError) as error:  # its number is checked
        opened(folder, name)
    assert error.value.errno == errno.ELOOP


@cases("name", ["../secret", "a/../../secret", "..", "/etc/passwd"])
def test_nothing_outside_is_opened(opened: Open, folder: int, name: str) -> None:
    with pytest.raises(OSError) as error:  # its number is checked
        opened(folder, name)
    assert error.value.errno == errno.EXDEV


@cases("name", ["absent", "a/absent", "absent/file", "a\0b"])
def test_what_is_not_there_is_not_found(opened: Open, folder: int, name: str) -> None:
    with pytest.raises((FileNotFoundError, ValueError)):
        opened(folder, name)


def test_a_pipe_is_not_waited_for(opened: Open, folder: int) -> None:
    os.close(opened(folder, "pipe"))
