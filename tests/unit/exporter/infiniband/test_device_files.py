"""Whether anything of a device is as it was in the sample before, so that it need not be told anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.collectors.rdma.files import DeviceFiles


class Device:
    """A counter and a text, looked at again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = DeviceFiles(str(path), below=0)

    def write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text)

    def look(self) -> tuple[int | None, str | None, bool]:
        """The counter, the text, and whether something changed."""
        with self.files as files:
            return files.counter("count"), files.text("word", str), files.changed


@pytest.fixture
def device(tmp_path: Path) -> Device:
    device = Device(tmp_path)
    device.write("count", "7\n")
    device.write("word", "seven\n")
    assert device.look() == (7, "seven", True)
    assert device.look() == (7, "seven", False)
    return device


def test_another_value_is_a_change_once(device: Device) -> None:
    device.write("count", "8\n")
    assert device.look() == (8, "seven", True)
    assert device.look() == (8, "seven", False)


def test_a_text_that_is_gone_is_a_change_once_and_no_error(device: Device) -> None:
    (device.path / "word").unlink()
    assert device.look() == (7, None, True)
    assert device.look() == (7, None, False)
    device.write("word", "seven\n")
    assert device.look() == (7, "seven", True)
    assert device.files.errors == 0


def test_what_is_no_counter_is_one_error_more_each_time(device: Device) -> None:
    device.write("count", "many\n")
    assert [device.look(), device.look()] == [(None, "seven", True)] * 2
    assert device.files.errors == 2
    device.write("count", "7\n")
    assert device.look() == (7, "seven", True)


def test_another_device_of_the_same_name_is_a_change(device: Device) -> None:
    device.path.rename(device.path.with_name("old"))
    device.path.mkdir()
    device.write("count", "7\n")
    device.write("word", "seven\n")
    assert device.look() == (7, "seven", True)


def test_what_was_read_and_not_exported_is_exported_the_next_time(device: Device) -> None:
    device.write("count", "8\n")
    with pytest.raises(RuntimeError), device.files as files:
        files.counter("count")
        raise RuntimeError("before anybody was told")
    assert device.look() == (8, "seven", True)
