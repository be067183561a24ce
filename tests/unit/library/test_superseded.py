"""An attempt that still lives although a newer one has begun: it is seen, and none of its checkpoints counts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import trainwarden
from tests.unit.library.looking import read_metadata, read_progress
from tests.unit.library.processes import DEADLINE_SECONDS, Script, line
from tests.waiting import wait_until
from trainwarden.record.folder import write_json
from trainwarden.record.progress import Checkpoint
from trainwarden.record.superseded import Superseded, living_rival, overwritten, read_superseded, write_superseded
from trainwarden.training.resume import best_checkpoint


@pytest.mark.process
def test_a_checkpoint_of_an_old_attempt_that_still_lives_is_none_of_the_run(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back to life on another host, where no lock tells."""
    old = script.start(
        """
        import sys, trainwarden
        from trainwarden.training import writer
        writer.LIVENESS_SECONDS = 0.1
        with trainwarden.run("r") as run:
            run.step(1)
            print("runs", flush=True)
            sys.stdin.readline()
            run.step(90)
            run.checkpoint_saved("/ckpt/step_90", 90)
            run.checkpoint_saved("/ckpt/step_50", 50)
            sys.stdin.readline()
        """,
        TRAINWARDEN_ATTEMPT_KEY="local:5:0",
    )
    assert old.stdin is not None
    assert line(old.stdout) == "runs\n"
    os.kill(old.pid, signal.SIGSTOP)
    (script.folder / ".owner").unlink()
    monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", "local:5:1")
    monkeypatch.setattr("trainwarden.training.writer.LIVENESS_SECONDS", 0.0)
    with trainwarden.run("r", dir=script.runs) as new:
        os.kill(old.pid, signal.SIGCONT)
        new.step(50)
        new.checkpoint_saved("/ckpt/step_50", 50)
        wait_until(lambda: (said := read_progress(script.folder)) and said.checkpoint)
        wait_until(lambda: read_metadata(script.folder).attempt_key == "local:5:1")
        rival = wait_until(lambda: living_rival(script.folder, os.stat(script.folder).st_mtime))  # noqa: PTH116
        assert (rival.attempt, rival.attempt_key, rival.pid) == (0, "local:5:0", old.pid)
        old.stdin.write("\n")
        old.stdin.flush()
        wait_until(lambda: len(read_superseded(script.folder)[0][0].checkpoints) == 2)
        progress = read_progress(script.folder)
        assert progress is not None
        assert [each.step for each in progress.known_checkpoints()] == [50]
        assert progress.attempt_key == "local:5:1"
        assert "step_90" not in (script.folder / "events.jsonl").read_text()
        # The old one wrote over it after the new one had saved it.
        assert overwritten(script.folder, progress.known_checkpoints()[0])
        old.stdin.write("\n")
        old.stdin.flush()
        assert old.wait(DEADLINE_SECONDS) == 0
        wait_until(lambda: read_superseded(script.folder)[0][0].status == "ended")
        assert living_rival(script.folder, os.stat(script.folder).st_mtime) is None  # noqa: PTH116


def test_what_an_old_attempt_has_overwritten_is_not_resumed_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / name for name in ("step_40.safetensors", "step_50.safetensors")]
    for path in paths:
        path.write_bytes((2).to_bytes(8, "little") + b"{}")
    saved = [
        Checkpoint(str(path), step, 1000.0, path.stat().st_size) for path, step in ((paths[0], 40), (paths[1], 50))
    ]
    documents = [each.to_json() for each in reversed(saved)]
    write_json(tmp_path / "progress.json", {"step": 50, "checkpoint": documents[0], "checkpoints": documents})
    chosen = best_checkpoint(tmp_path, "layout")
    assert chosen is not None
    assert chosen.step == 50
    write_superseded(tmp_path, Superseded(attempt=0, host="n1", checkpoints=(saved[1].replace(time=1001.0),)))
    chosen = best_checkpoint(tmp_path, "layout")
    assert chosen is not None
    assert chosen.step == 40
    assert "step_50.safetensors is left out: attempt 0 on n1 has saved there" in caplog.text
    # What it saved before is older than what the newer attempt wrote there.
    write_superseded(tmp_path, Superseded(attempt=0, checkpoints=(saved[1].replace(time=999.0),)))
    assert (best_checkpoint(tmp_path, "layout") or saved[0]).step == 50


def test_an_attempt_that_wrote_long_ago_is_no_rival(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("{}")
    write_superseded(tmp_path, Superseded(attempt=0, status="running"))
    now = (tmp_path / "superseded.0.json").stat().st_mtime
    assert living_rival(tmp_path, now) is not None
    assert living_rival(tmp_path, now + 200) is None
    os.utime(tmp_path / "superseded.0.json", (now - 60, now - 60))
    assert living_rival(tmp_path, now) is None
