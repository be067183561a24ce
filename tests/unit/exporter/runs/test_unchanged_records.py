"""A record that did not change is neither read nor made into series again; one that did is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.exporter.runs_tree import NOW, RunsTree, opened_files
from trainwarden.record.clock import to_iso
from trainwarden.record.metadata import Metadata
from trainwarden_exporter.collectors.runs import collector, series
from trainwarden_exporter.collectors.runs.documents import MetadataReader
from trainwarden_exporter.core.owned_folder import OwnedFolder

LATER = 10.0


def tree_in(folder: Path) -> RunsTree:
    """A run that was looked at a while ago, and again: its series are kept from the second look on."""
    runs = RunsTree(folder / "runs")
    runs.metadata("r")
    runs.progress("r")
    runs.rank("r", 0)
    runs.now += LATER
    runs.text()
    runs.text()
    return runs


@pytest.fixture
def tree(tmp_path: Path) -> RunsTree:
    return tree_in(tmp_path)


def test_series_that_are_kept_are_those_that_were_made_first(runs: RunsTree) -> None:
    runs.metadata("r")
    runs.progress("r")
    runs.rank("r", 0)
    runs.now += LATER
    first = runs.text()
    assert 'training_rank_step{run_id="r",rank="0"}' in first
    assert [runs.text(), runs.text()] == [first, first]


def test_an_unchanged_record_is_not_read_again(tree: RunsTree, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real_add: dict[str, Any] = {"add_settings": series.add_settings, "add_progress": series.add_progress}

    def note(name: str) -> None:
        def noted_add(families: Any, record: Any, *arguments: Any) -> None:
            made.append(name)
            real_add[name](families, record, *arguments)

        monkeypatch.setattr(collector, name, noted_add)

    opened = opened_files(monkeypatch)
    for name in real_add:
        note(name)
    before = tree.samples()
    assert (opened, made) == ([], [])
    tree.now += 1
    after = tree.samples()
    ages = "training_heartbeat_age_seconds"
    assert {name: found for name, found in before.items() if name != ages} == {
        name: found for name, found in after.items() if name != ages
    }
    labels = frozenset({("run_id", "r"), ("source", "metadata")})
    assert after[ages][labels] == before[ages][labels] + 1
    tree.progress("r", step=121)
    assert tree.value("training_step", run_id="r") == 121
    assert made == ["add_progress"]
    tree.metadata("r", phase="eval", last_update=to_iso(NOW + 30))
    assert tree.value("training_phase", run_id="r", phase="eval") == 1
    assert made == ["add_progress", "add_progress", "add_settings"]


@cases("where", ["nowhere", "before", "behind", "in a text"])
def test_a_metadata_file_of_which_only_the_heartbeat_changes_reads_as_any_other(tmp_path: Path, where: str) -> None:
    """Nothing but that time is then parsed: it must be the document's own, and all else that of before."""
    reader, folder = MetadataReader(2**20), tmp_path / "r"
    folder.mkdir()

    def read(beat: float, other: float = 0.0, **keys: Any) -> Metadata:
        document: dict[str, Any] = {"status": "running", "last_update": to_iso(NOW + beat), **keys}
        nested = {"environment": {"last_update": to_iso(NOW + other)}}
        text = {"reason": f'"last_update": "{to_iso(NOW + other)}'}
        document = {
            "nowhere": document, "before": nested | document, "behind": document | nested, "in a text": text | document
        }[where]  # fmt: skip
        (folder / "metadata.json").write_text(json.dumps(document))
        with OwnedFolder.opened(folder) as files:
            found, fresh = reader(files), MetadataReader(2**20)(files)
        assert isinstance(found, Metadata)
        assert found == fresh
        return found

    assert read(0).last_update == NOW
    assert read(5).last_update == NOW + 5
    assert read(5) is read(5) or where in ("before", "behind")
    read(10, other=10)
    read(10, other=20)
    read(15, phase="eval")
    assert read(20, phase="eval").phase == "eval"
    assert read(25, phase="load").phase == "load"
    assert read(30, status="failed").status == "failed"


@cases("what", ["metadata", "progress", "rank", "error", "completion", "gone"], tree=tree_in)
def test_every_change_is_exported_at_the_next_look(tree: RunsTree, what: str) -> None:
    if what == "metadata":
        tree.metadata("r", phase="eval")
        assert tree.value("training_phase", run_id="r", phase="eval") == 1
    elif what == "progress":
        tree.progress("r", step=121)
        assert tree.value("training_step", run_id="r") == 121
    elif what == "rank":
        tree.rank("r", 0, step=125)
        assert tree.value("training_rank_step", run_id="r", rank="0") == 125
    elif what == "gone":
        (tree.path / "r" / "progress.json").unlink()
        assert tree.value("training_step", run_id="r") is None
    else:
        name, state = {"error": ("_error", "failed"), "completion": ("_complete", "succeeded")}[what]
        tree.write("r", name, {"attempt_key": "local:77-1:0", "time": to_iso(NOW), "message": "m"})
        assert tree.state("r") == state
