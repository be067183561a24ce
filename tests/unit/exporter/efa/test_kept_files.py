"""Counters are opened once, and let go of when the devices are to be reset."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.fixtures import p4d
from tests.nodes.watched import Watched
from trainwarden_exporter.collectors.rdma.files import KeptFile, allow_many_files, kept_below

Watch = Callable[..., Watched]


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def held(root: Path) -> list[str]:
    found = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return sorted(path for path in found if path.startswith(str(root)))


def test_files_are_kept_between_samples_and_released(tmp_path: Path, watch: Watch) -> None:
    tree = p4d(tmp_path)
    watched = watch(tree)
    watched.look()
    first = held(tree.sysfs)
    assert len(first) == len(set(first)) > 4 * 25
    watched.look()
    assert held(tree.sysfs) == first
    assert watched.group.release()
    assert held(tree.sysfs) == []
    watched.group.resume()
    watched.look()
    assert held(tree.sysfs) == first
    assert watched.value("efa_devices") == 4


def test_a_device_that_vanished_holds_no_files(tmp_path: Path, watch: Watch) -> None:
    tree = p4d(tmp_path)
    watched = watch(tree)
    watched.look()
    tree.remove_rdma("rdmap16s27")
    watched.look()
    assert [path for path in held(tree.sysfs) if "0000:10:1b.0" in path] == []


def test_where_descriptors_are_short_half_of_them_are_left_to_others(
    tmp_path: Path, watch: Watch, limits: tuple[int, int]
) -> None:
    there = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * (there + 20), limits[1]))
    assert kept_below() == there + 20
    tree = p4d(tmp_path)
    watched = watch(tree)
    watched.look()
    assert 0 < len(held(tree.sysfs)) < 40
    assert len(watched.samples["efa_tx_bytes_total"]) == 4
    assert watched.labelled("efa_read_errors_total", "device") == dict.fromkeys(
        watched.labelled("efa_device_up", "device"), 0
    )


def test_as_many_descriptors_as_may_be_are_asked_for(limits: tuple[int, int]) -> None:
    wanted = min(limits[1], 8192) if limits[1] != resource.RLIM_INFINITY else 8192
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    allow_many_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == wanted


def test_a_file_that_is_not_to_be_kept_is_closed(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("5\n")
    file = KeptFile(str(tmp_path / "counter"), below=0)
    assert file.read() == b"5\n"
    assert held(tmp_path) == []
