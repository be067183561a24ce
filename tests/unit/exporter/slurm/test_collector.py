"""One snapshot of the queue and one of the nodes become the page; what cannot be read leaves nothing stale."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05, job_24_05, node_22_05, node_24_05
from trainwarden.clients.slurm.client import REASONS, SlurmError
from trainwarden_exporter.collectors.slurm.collector import SlurmCollector, SlurmSettings
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.shared_state import ExpectedRuns
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.device_group import DeviceGroup

pytestmark = pytest.mark.process


def _collector(slurm: FakeSlurm, **changes: Any) -> SlurmCollector:
    settings: dict[str, Any] = {"interval": 30.0, "timeout": 10.0, "max_jobs": 100, "max_nodes": 100, **changes}
    return SlurmCollector(SlurmSettings(client=slurm.client(), **settings))


def _part(collector: SlurmCollector, device: str) -> str:
    (part,) = (part for part in collector.tasks() if part.device == device)
    return encode_text(part.read()).decode()


def _own(collector: SlurmCollector) -> str:
    return encode_text(collector.collect()).decode()


def test_the_jobs_of_runs_are_exported_and_all_are_counted(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1), job_24_05(2), job_22_05(3, comment="", job_state="PENDING")])
    page = _part(_collector(slurm), "jobs")
    info = 'slurm_job_info{run_id="run-1",job_id="1",queue_id="1",name="train",user="alice",partition="main"} 1.0'
    assert info in page
    assert 'slurm_job_state{run_id="run-2",job_id="2",state="running"} 1.0' in page
    assert 'slurm_job_state{run_id="run-2",job_id="2",state="pending"} 0.0' in page
    assert 'job_id="3"' not in page
    assert 'slurm_jobs{state="running"} 2.0' in page
    assert 'slurm_jobs{state="pending"} 1.0' in page
    assert 'slurm_jobs{state="node_fail"} 0.0' in page


def test_a_job_that_ran_into_its_time_limit_is_distinguished_from_one_that_was_cancelled(slurm: FakeSlurm) -> None:
    ended = [
        job_22_05(1, job_state="TIMEOUT", state_reason="TimeLimit", exit_code=15),
        job_22_05(2, job_state="CANCELLED", state_reason="None", exit_code=15),
    ]
    slurm.jobs(ended)
    page = _part(_collector(slurm), "jobs")
    assert 'slurm_job_end_info{run_id="run-1",job_id="1",state="timeout",reason="TimeLimit"} 1.0' in page
    assert 'slurm_job_end_info{run_id="run-2",job_id="2",state="cancelled",reason=""} 1.0' in page
    assert 'slurm_job_exit_signal{run_id="run-1",job_id="1"} 15.0' in page
    assert "slurm_job_gpus{" not in page


def test_a_user_with_many_marked_jobs_takes_no_place_on_the_page_of_a_user_with_few(slurm: FakeSlurm) -> None:
    few = [job_22_05(1, user_name="bob"), job_22_05(2, user_name="bob", job_state="COMPLETED")]
    slurm.jobs([*few, *(job_24_05(number, user_name="mallory") for number in range(3, 30))])
    page = _part(_collector(slurm, max_jobs=5), "jobs")
    shown = re.findall(r'slurm_job_info\{.*?job_id="(\d+)".*?user="(\w+)"', page)
    assert shown == [("29", "mallory"), ("28", "mallory"), ("27", "mallory"), ("1", "bob"), ("2", "bob")]


def test_nodes_users_and_partitions_that_are_named_as_tokens_begin_keep_their_names(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1, nodes="sk-gpu-[01-02]", user_name="sk-train-42", partition="sk-h100-80g")])
    page = _part(_collector(slurm), "jobs")
    assert 'slurm_job_node_info{job_id="1",node="sk-gpu-01"} 1.0' in page
    assert 'slurm_job_node_info{job_id="1",node="sk-gpu-02"} 1.0' in page
    assert 'user="sk-train-42",partition="sk-h100-80g"' in page


def test_the_ends_of_all_jobs_are_known_by_their_attempt(slurm: FakeSlurm) -> None:
    slurm.jobs(
        [
            job_22_05(1, job_state="TIMEOUT", restart_cnt=0),
            job_24_05(2, job_state=["CANCELLED", "COMPLETING"], restart_cnt=3),
            job_22_05(3, job_state="PREEMPTED", comment=""),
            job_22_05(4, job_state="RUNNING"),
            job_22_05(5, job_state="PENDING"),
        ]
    )
    ends: list[Any] = []
    _part(_collector(slurm, put_ended=ends.append), "jobs")
    states = {key: end.state for key, end in ends[0].items()}
    assert states == {"slurm:1:0": "timeout", "slurm:2:3": "cancelled", "slurm:3:1": "preempted"}
    assert all(end.time for end in ends[0].values())


def test_one_call_each_is_made_for_jobs_and_nodes(slurm: FakeSlurm) -> None:
    collector = _collector(slurm)
    for _ in range(3):
        _part(collector, "jobs")
        _part(collector, "nodes")
    assert slurm.called("squeue") == ["squeue --json --all --states=all"] * 3
    # This scontrol knows no JSON, and is asked once.
    assert slurm.called("scontrol") == ["scontrol show nodes --json"]
    assert slurm.called("sinfo") == ["sinfo --json"] * 3


def test_a_newer_scontrol_counts(slurm: FakeSlurm) -> None:
    slurm.nodes([node_24_05("g1", state=["IDLE", "DRAIN"], reason="xid 79", reason_set_by_user="root")], "scontrol")
    collector = _collector(slurm)
    page = _part(collector, "nodes")
    assert 'slurm_node_state{node="g1",state="drained"} 1.0' in page
    assert 'slurm_node_drain_info{node="g1",reason="xid 79",user="root"} 1.0' in page
    assert "slurm_gpus 8.0" in page
    assert "slurm_gpus_allocated 6.0" in page
    assert slurm.called("sinfo") == []


def test_an_odd_record_costs_no_other_and_is_counted(slurm: FakeSlurm) -> None:
    odd: list[Any] = [None, 7, {}, job_22_05(4, comment="trainwarden:../x"), job_22_05(5, job_state={"a": [1]})]
    slurm.jobs([*odd, job_22_05(1)])
    slurm.nodes([{}, "x", node_22_05("n1")])
    collector = _collector(slurm)
    assert 'slurm_job_info{run_id="run-1"' in _part(collector, "jobs")
    assert 'slurm_node_state{node="n1",state="mixed"} 1.0' in _part(collector, "nodes")
    own = _own(collector)
    assert 'trainwarden_slurm_records{kind="jobs",outcome="unreadable"} 4.0' in own
    assert 'trainwarden_slurm_records{kind="nodes",outcome="unreadable"} 2.0' in own


def test_bytes_that_are_no_utf_8_and_control_characters_hide_no_job(slurm: FakeSlurm) -> None:
    text = json.dumps({"errors": [], "jobs": [job_22_05(1, name="NAME"), job_22_05(2)]})
    slurm.answer("squeue", text.encode().replace(b"NAME", b"a\xff\x01\tb"))
    page = _part(_collector(slurm), "jobs")
    assert re.search(r'slurm_job_info\{run_id="run-1",job_id="1",queue_id="1",name="a[^"\n]*b"', page)
    assert 'run_id="run-2"' in page


def test_of_too_many_those_that_have_ended_go_first_and_are_counted(slurm: FakeSlurm) -> None:
    ended = {"job_state": "COMPLETED"}
    slurm.jobs([job_22_05(9, **ended, end_time=5), job_22_05(8, **ended, end_time=6), job_22_05(1), job_22_05(2)])
    collector = _collector(slurm, max_jobs=3)
    page = _part(collector, "jobs")
    assert set(re.findall(r'slurm_job_info\{run_id="(run-\d)"', page)) == {"run-1", "run-2", "run-8"}
    assert 'slurm_jobs{state="completed"} 2.0' in page
    assert 'trainwarden_slurm_records{kind="jobs",outcome="dropped"} 1.0' in _own(collector)


def test_of_too_many_nodes_those_that_are_out_stay(slurm: FakeSlurm) -> None:
    slurm.nodes([node_22_05(f"n{i}", state="idle") for i in range(5)] + [node_22_05("z", state="down")])
    collector = _collector(slurm, max_nodes=2)
    page = _part(collector, "nodes")
    assert 'node="z"' in page
    assert page.count("slurm_node_state{") == 2
    assert 'slurm_nodes{state="idle"} 5.0' in page
    assert 'trainwarden_slurm_records{kind="nodes",outcome="dropped"} 4.0' in _own(collector)


@pytest.mark.parametrize(
    ("output", "said", "reason"),
    [
        # What 22.05 prints, with status 0, while slurmctld does not answer.
        (b'{"errors":[{"description":"Failed while looking for jobs"}],"jobs":[]}', "", "failed"),
        (b'{"errors":[{"error":"Unspecified error"}],"jobs":[]}', "Munge encode failed", "authentication"),
        (b'{"jobs": [{"job_id": 1', "", "unreadable"),
        (b'{"errors":[]}', "", "unreadable"),
        (b"[" * 100_000, "", "unreadable"),
        (b"", "", "unreadable"),
    ],
)
def test_what_is_no_answer_fails_with_a_reason(slurm: FakeSlurm, output: bytes, said: str, reason: str) -> None:
    slurm.answer("squeue", output, said)
    collector = _collector(slurm)
    with pytest.raises(SlurmError, match=f"^{reason}: "):
        _part(collector, "jobs")
    own = _own(collector)
    for each in REASONS:
        assert f'trainwarden_slurm_errors_total{{source="jobs",reason="{each}"}} {float(each == reason)}' in own


def test_jobs_that_cannot_be_read_leave_the_page_and_the_nodes_stay(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1)])
    slurm.nodes([node_22_05("n1")])
    collection = Collection([DeviceGroup(_collector(slurm), 5.0, 10.0)])
    collection.sample_once()
    assert 'trainwarden_collector_success{collector="slurm"} 1.0' in collection.page().decode()
    slurm.script("squeue", "exit 1")
    collection.sample_once()
    page = collection.page().decode()
    assert 'trainwarden_collector_success{collector="slurm"} 0.0' in page
    assert "slurm_job_info" not in page
    assert 'trainwarden_slurm_records{kind="job' not in page
    assert 'slurm_node_state{node="n1",state="mixed"} 1.0' in page


def test_a_run_is_expected_while_its_job_runs_and_while_slurm_can_be_read(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1), job_22_05(2, job_state="PENDING"), job_22_05(3, job_state="FAILED")])
    expected = ExpectedRuns()
    collector = _collector(slurm, expect=partial(expected.put, "slurm"))
    _part(collector, "jobs")
    assert expected.runs() == {"run-1": {"slurm": 1795271886}}
    slurm.script("squeue", "exit 1")
    with pytest.raises(SlurmError):
        _part(collector, "jobs")
    assert expected.runs() == {}


def _groups(slurm: FakeSlurm, *jobs: dict[str, Any], limit: int = 200) -> set[str]:
    slurm.jobs(list(jobs))
    page = _part(_collector(slurm, max_groups=limit), "jobs")
    return {line for line in page.splitlines() if re.match(r"slurm_(partition|account|user|pending)_", line)}


def test_partitions_accounts_and_users_are_added_up_over_the_whole_queue(slurm: FakeSlurm) -> None:
    lines = _groups(
        slurm,
        job_24_05(1, account="vision"),
        job_24_05(2, account="vision", user_name="bob", comment=""),
        job_24_05(3, account="nlp", job_state=["PENDING"], state_reason="Priority", partition="main,big", comment=""),
        job_24_05(4, account="nlp", job_state=["COMPLETED"]),
    )
    assert lines == {
        'slurm_partition_jobs{partition="main",state="running"} 2.0',
        'slurm_partition_jobs{partition="main",state="pending"} 1.0',
        'slurm_partition_jobs{partition="big",state="running"} 0.0',
        'slurm_partition_jobs{partition="big",state="pending"} 1.0',
        'slurm_partition_gpus_allocated{partition="main"} 32.0',
        'slurm_partition_gpus_allocated{partition="big"} 0.0',
        'slurm_account_jobs{account="vision",state="running"} 2.0',
        'slurm_account_jobs{account="vision",state="pending"} 0.0',
        'slurm_account_jobs{account="nlp",state="running"} 0.0',
        'slurm_account_jobs{account="nlp",state="pending"} 1.0',
        'slurm_account_gpus_allocated{account="vision"} 32.0',
        'slurm_account_gpus_allocated{account="nlp"} 0.0',
        'slurm_user_jobs{user="alice",state="running"} 1.0',
        'slurm_user_jobs{user="alice",state="pending"} 1.0',
        'slurm_user_jobs{user="bob",state="running"} 1.0',
        'slurm_user_jobs{user="bob",state="pending"} 0.0',
        'slurm_user_gpus_allocated{user="alice"} 16.0',
        'slurm_user_gpus_allocated{user="bob"} 16.0',
        'slurm_pending_jobs{reason="Priority"} 1.0',
    }


def test_groups_are_bounded_and_the_rest_is_added_up(slurm: FakeSlurm) -> None:
    """The users with the most GPUs are shown: none can push others off the page by many small jobs."""
    small = [
        job_24_05(n, user_name=f"u{n}", job_state=["PENDING"], state_reason=f"R{n % 5}", tres_alloc_str="")
        for n in range(2, 50)
    ]
    lines = _groups(slurm, job_24_05(1), *small, limit=2)
    assert 'slurm_user_jobs{user="alice",state="running"} 1.0' in lines
    assert 'slurm_user_jobs{user="_others",state="pending"} 47.0' in lines
    assert len([line for line in lines if line.startswith("slurm_user_jobs")]) == 6
    assert len([line for line in lines if line.startswith("slurm_pending_jobs")]) == 3


def test_gpus_of_groups_are_absent_where_slurm_shows_none(slurm: FakeSlurm) -> None:
    lines = _groups(slurm, job_22_05(1, gres_detail=[]))
    assert 'slurm_user_jobs{user="alice",state="running"} 1.0' in lines
    assert not [line for line in lines if "gpus" in line]


def test_a_node_that_is_defined_and_not_there_has_no_gpus(slurm: FakeSlurm) -> None:
    slurm.nodes([node_24_05("n1", gres="gpu:4"), node_24_05("n2", gres="gpu:4", state=["FUTURE"])])
    page = _part(_collector(slurm), "nodes")
    assert "slurm_gpus 4.0" in page
    assert 'slurm_nodes{state="future"} 1.0' in page


def test_the_nodes_of_a_job_that_runs_are_exported(slurm: FakeSlurm) -> None:
    slurm.jobs(
        [
            job_22_05(1, nodes="gpu[07-08]"),
            job_24_05(2, nodes="gpu09"),
            job_22_05(3, job_state="PENDING", nodes=""),
            job_22_05(4, job_state="COMPLETED", nodes="gpu10"),
            job_22_05(5, comment="", nodes="gpu11"),
        ]
    )
    collector = _collector(slurm)
    page = _part(collector, "jobs")
    assert [line for line in page.splitlines() if line.startswith("slurm_job_node_info{")] == [
        'slurm_job_node_info{job_id="2",node="gpu09"} 1.0',
        'slurm_job_node_info{job_id="1",node="gpu07"} 1.0',
        'slurm_job_node_info{job_id="1",node="gpu08"} 1.0',
    ]
    assert 'trainwarden_slurm_records{kind="job_nodes",outcome="exported"} 3.0' in _own(collector)


def test_a_list_of_nodes_that_cannot_be_read_costs_no_other_job(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1, nodes="gpu[07"), job_22_05(2, nodes="gpu08")])
    collector = _collector(slurm)
    page = _part(collector, "jobs")
    assert 'slurm_job_node_info{job_id="2",node="gpu08"} 1.0' in page
    assert 'slurm_job_info{run_id="run-1",job_id="1"' in page
    assert 'trainwarden_slurm_records{kind="job_nodes",outcome="unreadable"} 1.0' in _own(collector)


def test_more_nodes_than_the_limit_are_counted_and_left_out(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1, nodes="n[1-30000]", node_count=30000), job_22_05(2, nodes="m[1-5]", node_count=5)])
    collector = _collector(slurm)
    assert _part(collector, "jobs").count("slurm_job_node_info{") == 20_000
    assert 'trainwarden_slurm_records{kind="job_nodes",outcome="dropped"} 10005.0' in _own(collector)
