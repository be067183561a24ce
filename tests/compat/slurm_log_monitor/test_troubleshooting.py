"""What the page advises where restarts or stalls are not as they should be, and that it helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import restarts, restarts_in_all

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Troubleshooting")

POLICY = "class_name: SelectiveRestartPolicy\nmax_retries: 4\ndefault_action: restart\n"
SILENT = """\
class_name: SlurmLogMonitor
inactivity_threshold_seconds: {seconds}
log_signals: []
"""


def test_a_job_that_keeps_restarting_check_policy_shows_whether_max_retries_is_set(user: User) -> None:
    for text, shown in ((POLICY, 4), (POLICY.replace("max_retries: 4\n", ""), 3)):
        mine = user.file("mine.yaml", text)
        status, said = user.check_policy(mine)
        assert status == 0
        assert f"crash: SelectiveRestartPolicy, at most {shown}" in said.splitlines()
        assert restarts_in_all(mine, "crash", "license") == shown


def test_a_job_that_keeps_restarting_a_misspelt_max_retries_is_refused_with_its_line(user: User) -> None:
    status, said = user.check_policy(user.file("mine.yaml", POLICY.replace("max_retries", "max_retry")))
    assert status == 2
    assert "mine.yaml: line 2: max_retry: unknown key, expected max_retries?" in said


def test_a_job_that_keeps_restarting_stops_once_its_error_is_excluded(user: User) -> None:
    log = "license server refused: no seats\n"
    signals = "log_signals: [{name: seats, pattern: license server refused, state: {class_name: CrashState}, "
    mine = user.file("signals.yaml", signals + "metadata: {error_type: license}}]\n")
    kind = user.scan(log, mine)["error_type"]
    before, after = (
        user.file("before.yaml", POLICY),
        user.file("after.yaml", f"{POLICY}exclude_error_types: [{kind}]\n"),
    )
    assert [restarts(policy, "crash", kind) for policy in (before, after)] == [True, False]


def test_a_job_that_keeps_restarting_the_classification_of_its_log_is_explained(user: User) -> None:
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity of 79 GiB\n"
    )
    found = user.replay(oom, "megatron_transient")
    assert (found["error_type"], found["now"]) == ("oom", "none")
    assert found["reason"] == "the error type oom is excluded by policy megatron_transient: a restart would not help"


def test_a_job_that_is_not_restarted_may_have_a_mode_without_a_policy(user: User) -> None:
    """CrashState, StalledState and TimeoutState are the modes crash, stall and timeout of a policy."""
    modes = ("crash", "stall", "timeout")
    for mode in modes:
        mine = user.file(
            "mine.yaml", f"policies: [{{mode: {mode}, implementation: {{class_name: AlwaysRestartPolicy}}}}]\n"
        )
        assert [each for each in modes if restarts(mine, each, "hang")] == [mode]


def test_a_job_that_is_not_restarted_the_reason_names_its_error_type_as_the_policy_does_not_list_it(user: User) -> None:
    mine = user.file("mine.yaml", "class_name: SelectiveRestartPolicy\nrestart_on_error_types: [nccl_timeout]\n")
    found = user.replay("nid001:211:318 [3] NCCL ERROR socket setup failed on eth0\n", mine)
    assert found["now"] == "none"
    assert found["reason"] == "policy mine does not list the error type nccl: it does not restart by default"


def test_a_job_that_is_not_restarted_a_misspelt_error_type_is_refused_and_the_right_one_named(user: User) -> None:
    mine = user.file("mine.yaml", "class_name: SelectiveRestartPolicy\nrestart_on_error_types: [nccl_timout]\n")
    status, said = user.check_policy(mine)
    assert status == 2
    assert "'nccl_timout': did you mean 'nccl_timeout'?" in said


def test_a_job_that_is_not_restarted_default_action_restart_is_a_catch_all(user: User) -> None:
    stop, catch_all = user.file("stop.yaml", POLICY.replace(": restart", ": stop")), user.file("all.yaml", POLICY)
    kinds = ("license", "unknown", None)
    assert [[restarts(policy, "crash", kind) for kind in kinds] for policy in (stop, catch_all)] == [
        [False] * 3,
        [True] * 3,
    ]


@pytest.mark.process
def test_a_false_stall_an_increased_inactivity_threshold_is_the_one_in_force(user: User) -> None:
    for seconds in (900, 7200):
        page = user.exported(user.file("mine.yaml", SILENT.format(seconds=seconds)), "nothing\n")
        assert page.value("training_log_silence_threshold_seconds", run_id="llama") == seconds


@pytest.mark.process
def test_a_false_stall_the_page_shows_the_last_iteration_and_when_the_log_was_written(user: User) -> None:
    log = "".join(f" iteration {step:8d}/  500000 | lm loss: 2.61E+00 |\n" for step in (2001, 2002))
    page = user.exported("megatron_basic", log)
    written = (user.folder / "logs/llama.out").stat().st_mtime
    assert page.value("training_step", run_id="llama") == 2002
    last = page.value("training_log_last_write_timestamp_seconds", run_id="llama")
    assert last == pytest.approx(written, abs=0.01)
