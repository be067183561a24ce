"""The client commands of SLURM: each answer is complete or a failure with a name, each record is read by itself."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05, job_24_05, node_22_05, node_24_05
from trainwarden.clients.slurm.client import CommandsMissing, SlurmError, UnreadableRecord, find_commands
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.nodes import SlurmNode

pytestmark = pytest.mark.process


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path)


def _reason(slurm: FakeSlurm, seconds: float = 60.0) -> str:
    with pytest.raises(SlurmError) as caught:
        list(slurm.client(seconds).jobs())
    return caught.value.reason


def test_jobs_of_both_layouts_are_read_and_an_odd_record_costs_itself_alone(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1), None, {}, "x", {"job_id": "2"}, job_24_05(3)])
    found = list(slurm.client().jobs())
    assert [job.job_id for job in found if isinstance(job, SlurmJob)] == ["1", "3"]
    assert sum(isinstance(job, UnreadableRecord) for job in found) == 4


def test_nodes_come_from_scontrol_where_it_prints_json_and_else_from_sinfo(slurm: FakeSlurm) -> None:
    slurm.nodes([node_22_05("n1"), {}])
    client = slurm.client()
    for _ in range(2):
        found = list(client.nodes())
        assert [node.name for node in found if isinstance(node, SlurmNode)] == ["n1"]
        assert len(found) == 2
    assert slurm.called("scontrol") == ["scontrol show nodes --json"]
    slurm.nodes([node_24_05("n2")], "scontrol")
    assert [node.name for node in slurm.client().nodes() if isinstance(node, SlurmNode)] == ["n2"]


def test_a_scontrol_that_fails_otherwise_does_not_stand_for_an_old_one(slurm: FakeSlurm) -> None:
    slurm.script("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"^failed: scontrol ended with status 1: Unable"):
        list(slurm.client().nodes())
    assert slurm.called("sinfo") == []


def test_one_job_is_named_to_squeue(slurm: FakeSlurm) -> None:
    list(slurm.client().jobs("17"))
    assert slurm.called("squeue") == ["squeue --json --all --states=all --jobs=17"]


@cases("job_id", ["", "0", "017", "-1", "12_3", "1,2", "1 2", "$(id)", "--help", "1\n", "\u0661"])
def test_what_is_no_job_id_reaches_no_command(slurm: FakeSlurm, job_id: str) -> None:
    with pytest.raises(ValueError, match="is no job id"):
        slurm.client().jobs(job_id)


@cases("target", ["", "-1", "1 2", "1,2", "all", "1_*", "12_[1-3]", "1\n"])
def test_what_names_no_single_job_is_refused_before_a_command_is_called(slurm: FakeSlurm, target: str) -> None:
    result = slurm.client().control("requeuehold", target)
    assert (result.accepted, result.refused) == (False, True)
    assert slurm.called("scontrol") == []


@cases(
    ("text", "status", "accepted", "refused"),
    [
        ("", 0, True, False),
        ("Access/permission denied for job 17", 1, False, True),
        ("Requested operation is presently disabled", 1, False, True),
        ("Socket timed out on send/recv operation", 1, False, False),
    ],
)
def test_a_call_of_scontrol_is_accepted_refused_or_unclear(
    slurm: FakeSlurm, text: str, status: int, accepted: bool, refused: bool
) -> None:
    slurm.script("scontrol", f"echo '{text}' >&2; exit {status}")
    result = slurm.client().control("release", "12_3")
    assert (result.accepted, result.refused) == (accepted, refused)
    assert f"scontrol release 12_3: status {status}" in result.detail


def test_a_call_of_scontrol_that_hangs_is_unclear(slurm: FakeSlurm) -> None:
    slurm.script("scontrol", "sleep 600")
    result = slurm.client(1.0).control("release", "17")
    assert (result.accepted, result.refused) == (False, False)
    assert result.detail.endswith("scontrol release 17: no answer within 1 s")


def test_a_squeue_that_hangs_is_a_timeout(slurm: FakeSlurm) -> None:
    slurm.script("squeue", "echo '{'; sleep 600")
    assert _reason(slurm, 1.0) == "timeout"


def test_the_status_explains_more_than_an_answer_that_is_cut_off(slurm: FakeSlurm) -> None:
    slurm.script("squeue", """echo '{"jobs": [1, '; echo 'Munge encode failed' >&2; exit 1""")
    assert _reason(slurm) == "authentication"


def test_errors_in_the_answer_are_classified_by_both_texts(slurm: FakeSlurm) -> None:
    slurm.answer("squeue", b'{"jobs": [], "errors": [{"error": "Protocol authentication error"}]}')
    assert _reason(slurm) == "authentication"


@cases(
    ("said", "reason"),
    [
        ("squeue: error: Munge encode failed: Failed to access socket (Did you start munged?)", "authentication"),
        ("slurm_load_jobs error: Protocol authentication error", "authentication"),
        ("slurm_load_jobs error: Access/permission denied", "authentication"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "failed"),
    ],
)
def test_the_message_of_the_command_gives_the_reason(slurm: FakeSlurm, said: str, reason: str) -> None:
    slurm.script("squeue", f"echo '{said}' >&2; exit 1")
    assert _reason(slurm) == reason


def test_a_command_that_is_not_there_has_a_reason_of_its_own(slurm: FakeSlurm) -> None:
    (slurm.folder / "squeue").unlink()
    assert _reason(slurm) == "missing"
    with pytest.raises(CommandsMissing, match=rf"squeue not found in {slurm.folder}"):
        find_commands(slurm.folder, ("squeue", "scontrol"))


def test_a_command_sees_little_of_our_environment(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    slurm.script("squeue", f"env > {slurm.folder}/env; echo '{{\"jobs\": []}}'")
    assert list(slurm.client().jobs()) == []
    lines = (slurm.folder / "env").read_text().splitlines()
    seen = dict(line.partition("=")[::2] for line in lines)
    assert (seen["SLURM_CONF"], seen["LC_ALL"], seen["TZ"]) == ("/etc/other.conf", "C", "UTC")
    assert seen["PATH"] == os.environ["PATH"]
    assert seen.keys().isdisjoint({"SQUEUE_FORMAT", "SLURM_JOB_ID", "AWS_SECRET_ACCESS_KEY"})


def test_a_long_queue_is_never_held_at_once(slurm: FakeSlurm) -> None:
    entry = json.dumps(job_22_05(comment="x" * 1000))
    slurm.script("squeue", f"""printf '{{"jobs": [%s' '{entry}'; yes ',{entry}' | head -n 4999; printf ']}}'""")
    tracemalloc.start()
    try:
        assert sum(1 for _ in slurm.client(120.0).jobs()) == 5_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
