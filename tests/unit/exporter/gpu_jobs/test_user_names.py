"""Names of users: the node's own in a container, the system's elsewhere, numbers where nothing has them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from trainwarden_exporter.collectors.gpu_jobs.user_names import UserNames


def test_in_a_container_the_nodes_users_count_and_not_the_containers_own(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("broken\nalice:x:1000:1000::/home/alice:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
    names = UserNames(tmp_path)
    assert [names(1000), names(0), names(7)] == ["alice", "root", "7"]


def test_a_node_whose_users_cannot_be_read_shows_numbers(tmp_path: Path) -> None:
    assert UserNames(tmp_path)(0) == "0"


def test_elsewhere_the_system_is_asked_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    expected = pwd.getpwuid(uid).pw_name
    names = UserNames(Path("/"))
    assert names(uid) == expected
    assert names(4_294_967_294) == "4294967294"

    def refuse(_: int) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(pwd, "getpwuid", refuse)
    assert names(uid) == expected
