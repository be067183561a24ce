"""Runs and attempts have names that cannot be mistaken, and cannot escape their folder."""

import os
from typing import Any

import pytest

from trainwarden.identity import (
    AttemptKey,
    InvalidAttemptKey,
    InvalidRunId,
    check_run_id,
    current_attempt_key,
    local_rank,
    process_start_ticks,
    rank,
    world_size,
)


@pytest.mark.parametrize("run_id", ["a", "llama-3.1_8B", "0", "x" * 128, "a.b"])
def test_ordinary_names_are_run_ids(run_id: Any) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "run_id", ["", "a/b", "..", "a..b", ".hidden", "-x", "a b", "a\n", "a\x00", "é", "x" * 129, None, 7]
)
def test_a_name_that_could_leave_the_folder_or_confuse_a_reader_is_refused_and_shown(run_id: Any) -> None:
    with pytest.raises(InvalidRunId) as refusal:
        check_run_id(run_id)
    assert repr(run_id)[:60] in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["slurm:12345:0", "local:123-456:7", "slurm:12_3:2", "ray:raysubmit_x1:0"])
def test_a_key_reads_back_as_it_is_written(text: str) -> None:
    assert str(AttemptKey.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "slurm", "slurm:1", "slurm:1:", "slurm::0", "slurm:1:-1", "slurm:1:x", "a b:1:0", "slurm:1/2:0", "slurm:1:²"],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidAttemptKey):
        AttemptKey.parse(text)


def test_a_launchers_key_wins_over_the_scheduler() -> None:
    environ = {"TRAINWARDEN_ATTEMPT_KEY": "local:7:3", "SLURM_JOB_ID": "99"}
    assert str(current_attempt_key(environ)) == "local:7:3"


def test_a_slurm_requeue_keeps_the_job_and_raises_the_generation() -> None:
    first = current_attempt_key({"SLURM_JOB_ID": "99"})
    second = current_attempt_key({"SLURM_JOB_ID": "99", "SLURM_RESTART_COUNT": "1"})
    assert (str(first), str(second)) == ("slurm:99:0", "slurm:99:1")
    assert first.same_job(second)


def test_a_lone_process_is_named_by_itself_and_ranks_by_their_common_parent() -> None:
    own, parent = os.getpid(), os.getppid()
    assert str(current_attempt_key({})) == f"local:{own}-{process_start_ticks(own)}:0"
    assert str(current_attempt_key({"WORLD_SIZE": "2"})) == f"local:{parent}-{process_start_ticks(parent)}:0"


def test_an_unusable_key_from_a_launcher_names_its_variable() -> None:
    with pytest.raises(InvalidAttemptKey, match=r"TRAINWARDEN_ATTEMPT_KEY: 'nonsense'"):
        current_attempt_key({"TRAINWARDEN_ATTEMPT_KEY": "nonsense"})


def test_the_rank_comes_from_torchrun_before_srun() -> None:
    assert (rank({"RANK": "3", "SLURM_PROCID": "5"}), rank({"SLURM_PROCID": "5"}), rank({})) == (3, 5, 0)
    assert (world_size({"SLURM_NTASKS": "4"}), world_size({})) == (4, None)


def test_the_local_rank_is_the_rank_where_a_launcher_says_no_more() -> None:
    assert rank({"LOCAL_RANK": "1", "NODE_RANK": "0"}) == 1
    assert rank({"LOCAL_RANK": "1", "RANK": "5"}) == 5


def test_ranks_of_one_ray_job_share_its_submission_even_inside_slurm() -> None:
    environ = {"RAY_JOB_SUBMISSION_ID": "my job/1", "SLURM_JOB_ID": "9"}
    assert str(current_attempt_key(environ)) == "ray:my-job-1:0"


def test_pods_of_an_indexed_job_that_meet_share_its_key_and_are_ranks() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-3", "JOB_COMPLETION_INDEX": "3"}
    meeting = {**environ, "MASTER_ADDR": "train-0.svc"}
    assert (str(current_attempt_key(meeting)), rank(meeting)) == ("kubernetes:train:0", 3)
    eight = {**meeting, "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "2"}
    assert rank(eight) == 26
    assert rank({**eight, "RANK": "5"}) == 5


def test_pods_of_an_indexed_job_that_do_not_meet_are_trainings_of_their_own() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "sweep-3", "JOB_COMPLETION_INDEX": "3"}
    assert rank(environ) == 0
    assert str(current_attempt_key(environ)).startswith("kubernetes:sweep-3:")


def test_each_process_of_one_pod_is_a_start_of_its_own_and_later_ones_count_higher() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "notebook"}
    alone, ranks = current_attempt_key(environ), current_attempt_key({**environ, "WORLD_SIZE": "2"})
    assert (alone.job_id, alone.same_job(ranks)) == ("notebook", True)
    assert alone.generation >= ranks.generation > 0


def test_ranks_of_torchrun_on_several_hosts_share_their_rendezvous() -> None:
    here = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "r1"}
    assert str(current_attempt_key(here)) == "torchrun:r1:0"
    assert current_attempt_key({**here, "TORCHELASTIC_RESTART_COUNT": "2"}) == current_attempt_key(here)
    # Nobody named it: that is what torchrun itself says then.
    assert current_attempt_key({**here, "TORCHELASTIC_RUN_ID": "none"}).scheduler == "local"


def test_ranks_of_torchrun_on_one_host_are_named_by_their_launcher() -> None:
    environ = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "100"}
    assert current_attempt_key(environ) == current_attempt_key({"WORLD_SIZE": "8"})


def test_the_local_rank_is_the_launchers() -> None:
    said = [{"LOCAL_RANK": "1"}, {"SLURM_LOCALID": "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, {}]
    assert [local_rank(environ) for environ in said] == [1, 2, 3, None]


def test_open_mpi_says_rank_and_size() -> None:
    environ = {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8"}
    assert (rank(environ), world_size(environ)) == (6, 8)
