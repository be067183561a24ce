"""The commands that show runs, over records in S3: what they say of a folder they say of a bucket."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.s3.store import Store
from tests.unit.library.processes import Script
from trainwarden import cli

VIEWS = {
    "status": ["status", "r", "--once"],
    "runs": ["runs"],
    "compare": ["compare", "r", "other", "--gpus", "8"],
    "report": ["report", "r", "-o", "-"],
    "health": ["health", "r"],
    "top": ["top", "--once", "--all"],
}
# The record's place differs, and how long ago something was. Heartbeats of ranks stay on their nodes.
DIFFERENT = re.compile(
    r"Ranks +\d+|(?:s3://|/)[^\s<]*|\b\d+(?:\.\d+)? (?:s|min|h|d)\b( ago)?|\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \S+"
)
TRAINING = """
    import trainwarden
    with trainwarden.run(total_steps=60, s3="{url}") as run:
        for step in range(1, 61):
            print(f"step {{step}}/60 loss: {{3 - step / 60:.3f}}", flush=True)
            run.step(step, loss=3 - step / 60, tokens=4096)
        {end}
"""


@pytest.fixture
def recorded(store: Store, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of the library, one of which failed, in a folder and in the bucket. Returns the folder."""
    monkeypatch.chdir(tmp_path)
    for run, end in (("other", "pass"), ("r", "raise RuntimeError('CUDA out of memory')")):
        done = script.run(TRAINING.format(url=store.url, end=end), TRAINWARDEN_RUN_ID=run)
        assert (done.returncode == 0) == (run == "other"), done.stderr
    return tmp_path / "runs"


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    try:
        status = cli.main(list(argv))
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, capsys.readouterr().out


def test_each_view_says_of_the_bucket_what_it_says_of_the_folder(
    recorded: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for view, command in VIEWS.items():
        there = printed(capsys, *command, "--s3", store.url)
        assert "r" in there[1], view
        here = printed(capsys, *command, "--runs-dir", str(recorded))
        assert there[0] == here[0], view
        if view == "report":  # drawings end at the present
            there, here = (
                (status, re.sub(r"<svg.*?</svg>|<table.*?</table>", "", text, flags=re.DOTALL))
                for status, text in (there, here)
            )
        assert DIFFERENT.sub("", there[1]).split() == DIFFERENT.sub("", here[1]).split(), view


def test_missing_credentials_are_named_with_what_to_set(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert cli.main(["status", "r", "--once", "--s3", store.url]) == 2
    assert "set AWS_PROFILE" in capsys.readouterr().err
