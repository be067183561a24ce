"""The folder of the states of logs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainwarden_exporter.core.state_folder import KEPT_SECONDS, StateFolder


def test_old_states_are_removed_and_no_file_of_others_in_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    others = {
        "thesis.tex": "x",
        "package.json": '{"version": 1}',
        "new.json": '{"version":1,"run":"old"}',
        "a.json": "{}",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("elsewhere")
    folder = StateFolder(tmp_path)
    for run_id in ("old", "damaged", "young"):
        folder.write(run_id, {"logs": []})
    folder.set_aside("damaged", "is none")
    before = time.time() - KEPT_SECONDS - 1
    for path in tmp_path.iterdir():
        if path.name != "young.json":
            os.utime(path, (before, before), follow_symlinks=False)
    folder.prune()
    folder.close()
    assert {path.name for path in tmp_path.iterdir()} == {*others, "elsewhere", "link", ".lock", "young.json"}


def test_who_waits_for_the_folder_puts_nothing_aside_that_another_one_writes(tmp_path: Path) -> None:
    first = StateFolder(tmp_path)
    second = StateFolder(tmp_path, waits=True)
    (tmp_path / "r.json").write_text("{")
    assert second.read("r") == (None, True)
    assert (tmp_path / "r.json").exists()
    assert not second.hold()
    first.close()
    assert second.hold()
    second.close()
