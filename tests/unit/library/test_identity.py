"""Runs and attempts have names that cannot be mistaken, and cannot escape their folder."""

import os
from typing import Any

import pytest

from tests.cases import cases
from trainwarden.identity import (
    AttemptKey,
    InvalidAttemptKey,
    InvalidRunId,
    check_run_id,
    current_attempt_key,
    host_name,
    local_rank,
    process_start_ticks,
    rank,
    unnamed_start,
    world_size,
)


@cases("run_id", ["a", "llama-3.1_8B", "0", "x" * 128, "a.b"])
def test_ordinary_names_are_run_ids(run_id: Any) -> None:
    assert check_run_id(run_id) == run_id


@cases("run_id", ["", "a/b", "..", "a..b", ".hidden", "-x", "a b", "a\n", "a\x00", "é", "x" * 129, None, 7])
def test_a_name_that_could_leave_the_folder_or_confuse_a_reader_is_refused_and_shown(run_id: Any) -> None:
    with pytest.raises(InvalidRunId) as refusal:
        check_run_id(run_id)
    assert repr(run_id)[:60] in str(refusal.value)
    assert "\n" not in str(refusal.value)


@cases("text", ["slurm:12345:0", "local:123-456:7", "slurm:12_3:2", "ray:raysubmit_x1:0"])
def test_a_key_reads_back_as_it_is_written(text: str) -> None:
    assert str(AttemptKey.parse(text)) == text


@cases(
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


def test_the_local_rank_is_the_rank_where_a_launcher_sets_no_other() -> None:
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


def test_each_container_of_modal_and_each_process_in_it_is_a_start_of_its_own() -> None:
    own, parent = os.getpid(), os.getppid()
    alone = current_attempt_key({"MODAL_TASK_ID": "ta-01JX"})
    assert str(alone) == f"modal:ta-01JX:{process_start_ticks(own)}"
    ranks = current_attempt_key({"MODAL_TASK_ID": "ta-01JX", "WORLD_SIZE": "2"})
    assert str(ranks) == f"modal:ta-01JX:{process_start_ticks(parent)}"
    assert alone.same_job(ranks) and alone.generation >= ranks.generation > 0
    assert not alone.same_job(current_attempt_key({"MODAL_TASK_ID": "ta-02ZZ"}))


def test_containers_of_modal_that_train_together_share_their_rendezvous() -> None:
    container = {"MODAL_TASK_ID": "ta-1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    assert str(current_attempt_key({**container, "TORCHELASTIC_RUN_ID": "r1"})) == "torchrun:r1:0"
    alone = current_attempt_key(container)
    assert alone.scheduler == "modal" and "TRAINWARDEN_ATTEMPT_KEY" in (unnamed_start(alone, container) or "")


def test_containers_of_modal_are_hosts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their host names are all `modal`: a pid of one would be looked for in another."""
    monkeypatch.delenv("MODAL_TASK_ID", raising=False)
    assert host_name() == os.uname().nodename
    monkeypatch.setenv("MODAL_TASK_ID", "ta-01/JX")
    assert host_name() == "ta-01-JX"


def test_ranks_of_torchrun_on_several_hosts_share_their_rendezvous() -> None:
    here = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "r1"}
    assert str(current_attempt_key(here)) == "torchrun:r1:0"
    assert current_attempt_key({**here, "TORCHELASTIC_RESTART_COUNT": "2"}) == current_attempt_key(here)
    # torchrun's default: then the address is what the hosts have in common.
    unnamed = {**here, "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}
    key = current_attempt_key(unnamed)
    assert str(key) == "torchrun:10.0.0.1-29400:0"
    assert "--rdzv-id" in (unnamed_start(key, unnamed) or "")
    chosen = {**unnamed, "MASTER_PORT": "41234"}
    assert unnamed_start(current_attempt_key(chosen), chosen) is None
    assert unnamed_start(current_attempt_key(here), here) is None


@cases(
    ("environ", "key", "is_warned_of"),
    [
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "PALS_APID": "5f1c-0a"}, "pals:5f1c-0a:0", False),
        (
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-n1-77@1"},
            "mpi:prterun-n1-77-1:0",
            False,
        ),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "PBS_JOBID": "17.head"}, "pbs:17.head:0", False),
        ({"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}, "rendezvous:n1-1:0", True),
        ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_JOB_ID": "f2abc"}, "flux:f2abc:0", False),
    ],
)
def test_ranks_of_an_mpi_launcher_on_several_hosts_share_what_names_their_start(
    environ: dict[str, str], key: str, is_warned_of: bool
) -> None:
    found = current_attempt_key(environ)
    assert (str(found), unnamed_start(found, environ) is not None) == (key, is_warned_of)


def test_ranks_on_several_hosts_whose_start_has_no_name_are_warned_of() -> None:
    environ = {"PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}
    key = current_attempt_key(environ)
    assert key.scheduler == "local" and "TRAINWARDEN_ATTEMPT_KEY" in (unnamed_start(key, environ) or "")
    given = {**environ, "TRAINWARDEN_ATTEMPT_KEY": "local:1:0"}
    assert unnamed_start(current_attempt_key(given), given) is None
    assert unnamed_start(key, {"PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}) is None


def test_processes_that_a_training_starts_as_its_ranks_share_their_parent() -> None:
    assert current_attempt_key({}, ranks=2) == current_attempt_key({"WORLD_SIZE": "2"})
    assert current_attempt_key({}, ranks=1) == current_attempt_key({})


def test_ranks_of_torchrun_on_one_host_are_named_by_their_launcher() -> None:
    environ = {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "100"}
    assert current_attempt_key(environ) == current_attempt_key({"WORLD_SIZE": "8"})


def test_the_local_rank_is_the_launchers() -> None:
    said = [{"LOCAL_RANK": "1"}, {"SLURM_LOCALID": "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, {}]
    assert [local_rank(environ) for environ in said] == [1, 2, 3, None]


@cases(
    "environ",
    [
        {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
        {"MV2_COMM_WORLD_RANK": "6", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "2"},
        {"PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALRANKID": "2"},
        {"PMI_SIZE": "8", "PALS_RANKID": "6", "PALS_LOCAL_RANKID": "2"},
        {"JSM_NAMESPACE_RANK": "6", "JSM_NAMESPACE_SIZE": "8", "JSM_NAMESPACE_LOCAL_RANK": "2"},
        {"FLUX_TASK_RANK": "6", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "2"},
        {"SLURM_PROCID": "6", "SLURM_NTASKS": "8", "SLURM_LOCALID": "2"},
    ],
)
def test_launchers_state_rank_size_and_local_rank(environ: dict[str, str]) -> None:
    assert (rank(environ), world_size(environ), local_rank(environ)) == (6, 8, 2)


def test_mpi_within_a_slurm_job_states_the_rank_and_not_slurm() -> None:
    daemon = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    environ = {**daemon, "OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
    assert (rank(environ), world_size(environ), local_rank(environ)) == (6, 8, 2)
