"""What broke first wins; what follows from it explains, what the training survived is no failure."""

from __future__ import annotations

from functools import cache

from tests.cases import cases
from trainwarden.signals.diagnosis import diagnose, diagnose_ranks
from trainwarden.signals.model import Match, Signal, Verdict
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner
from trainwarden.taxonomy import FAILURES

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB"
TIMEOUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=1021, OpType=ALLREDUCE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds"
)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:22676"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()'
XID = "kernel: NVRM: Xid (PCI:0000:07:00): {code}, pid=2441, name=python3"
STOPPED = "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***"
NODE = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***"


@cache
def scanner() -> Scanner:
    return Scanner(load_pack().signals)


def matches_in(*lines: str) -> list[Match]:
    reader = scanner()
    reader.restore({"offset": 0, "line": 1, "skipping": False})
    return reader.feed("\n".join((*lines, "")).encode())


def verdict_of(*lines: str) -> Verdict:
    verdict = diagnose(matches_in(*lines))
    assert verdict is not None
    return verdict


@cases(
    ("lines", "error_type"),
    [
        ([OOM, TIMEOUT.format(rank=0), CLOSED, CHILD, STOPPED], "oom"),
        ([TIMEOUT.format(rank=0), CLOSED, OOM], "oom"),
        ([TRACEBACK, "KeyError: 'x'", TIMEOUT.format(rank=1), CLOSED, CHILD], "exception"),
        (
            [TIMEOUT.format(rank=1), TRACEBACK, "torch.distributed.DistBackendError: NCCL error: x", CHILD],
            "nccl_timeout",
        ),
        ([CLOSED, CHILD, STOPPED.replace("STEP", "srun: x")], "communication"),
        ([XID.format(code=45), XID.format(code=79), XID.format(code=43)], "gpu_hardware"),
        ([XID.format(code=43)], "cuda_error"),
        ([TIMEOUT.format(rank=1), NODE], "node_failure"),
        ([STOPPED, "srun: error: n1: tasks 0-3: Terminated"], "cancelled"),
        ([TRACEBACK, "ValueError: bad", STOPPED], "exception"),
        ([CHILD], "exception"),
        ([TRACEBACK], "exception"),
    ],
)
def test_the_first_root_wins_and_its_consequences_never(lines: list[str], error_type: str) -> None:
    assert verdict_of(*lines).error_type == error_type


def test_in_a_chain_of_exceptions_the_first_known_one_counts() -> None:
    during = "During handling of the above exception, another exception occurred:"
    verdict = verdict_of(
        TRACEBACK, "OSError: [Errno 28] No space left on device", "", during, "", TRACEBACK, "RuntimeError: x"
    )
    assert (verdict.error_type, verdict.evidence[0].line) == ("storage", 4)
    verdict = verdict_of(TRACEBACK, "KeyError: 'x'", "", during, "", TRACEBACK, OOM)
    assert verdict.error_type == "oom"


def test_the_verdict_has_all_that_the_taxonomy_and_the_lines_hold() -> None:
    verdict = verdict_of("step 1", OOM, "", TIMEOUT.format(rank=0), CLOSED, CLOSED)
    known = FAILURES["cuda_oom"]
    assert verdict.failure == "cuda_oom"
    assert (verdict.subsystem, verdict.severity, verdict.fault, verdict.action, verdict.hint) == (
        known.subsystem, known.severity, known.fault, known.action, known.hint,
    )  # fmt: skip
    assert verdict.fields == {"allocation_size": "2.00 GiB", "gpu": "3"}
    assert [(match.line, match.text) for match in verdict.evidence[:1]] == [(2, OOM)]
    others = {match.signal.name: match.line for match in verdict.also}
    assert (others["nccl_watchdog_timeout"], others["gloo_peer_closed"]) == (4, 5)


def test_a_collectives_name_and_number_are_reported() -> None:
    fields = verdict_of(TIMEOUT.format(rank=5)).fields
    assert (fields["SeqNum"], fields["op"], fields["timeout_ms"]) == ("1021", "ALLREDUCE", "600000")


def test_a_failure_that_training_survives_is_none() -> None:
    matches = matches_in(TRACEBACK, OOM)
    after = matches[-1].offset + len(OOM)
    assert diagnose(matches, progress=[after + 10, after + 20, after + 30]) is None
    assert diagnose(matches, progress=[0, 5, after + 10, after + 20]) is not None


def test_a_failure_after_one_that_was_survived_is_reported_alone() -> None:
    matches = matches_in(OOM, TRACEBACK, "OSError: [Errno 28] No space left on device")
    between = matches[-1].offset - 1
    verdict = diagnose(matches, progress=[between - 2, between - 1, between])
    assert verdict is not None
    assert verdict.error_type == "storage"


RESTART = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group"


def test_what_the_launcher_mends_by_itself_is_none_until_it_gives_up() -> None:
    assert diagnose(matches_in(OOM, RESTART)) is None
    assert verdict_of(OOM, RESTART, CHILD).error_type == "oom"
    assert verdict_of(OOM, RESTART, TRACEBACK, "ValueError: bad").error_type == "exception"
    assert verdict_of(OOM, RESTART.replace("2/3", "0/3")).error_type == "oom"


def test_an_exception_in_a_finalizer_ends_no_run_but_hides_nothing_else() -> None:
    noise = ("Exception ignored in: <function x.__del__ at 0x7f>", TRACEBACK, "OSError: [Errno 9] Bad file descriptor")
    assert diagnose(matches_in(*noise)) is None
    assert verdict_of(*noise, TRACEBACK, "ValueError: bad").fields["exception"] == "ValueError"
    assert verdict_of(*noise[:2], "KeyboardInterrupt").error_type == "cancelled"
    assert verdict_of(TRACEBACK, "KeyError: 'x'", *noise).fields["exception"] == "KeyError"


def test_nothing_matched_is_nothing_failed() -> None:
    assert diagnose([]) is None
    assert diagnose_ranks([[], []]) is None


def test_of_many_ranks_the_one_with_the_root_is_named_whatever_the_others_print() -> None:
    ranks = [matches_in(TIMEOUT.format(rank=0)), matches_in(CLOSED, CHILD), matches_in(OOM, CHILD)]
    verdict = diagnose_ranks(ranks)
    assert verdict is not None
    assert verdict.error_type == "oom"
    assert {"nccl_watchdog_timeout", "gloo_peer_closed"} <= {match.signal.name for match in verdict.also}


def test_of_two_ranks_with_symptoms_the_earlier_is_named() -> None:
    later = matches_in("2026-01-01 10:30:00,100 " + TIMEOUT.format(rank=0))
    earlier = matches_in(
        "2026-01-01T10:00:00.5 RuntimeError: Timed out initializing process group in store based barrier"
    )
    verdict = diagnose_ranks([later, earlier])
    assert verdict is not None
    assert verdict.error_type == "distributed_timeout"


def test_a_users_own_error_type_needs_no_entry_in_the_taxonomy() -> None:
    own = Signal("own", "x", error_type="moon_phase", severity="critical")
    verdict = diagnose([Match(own, 0, 1, "x")])
    assert verdict is not None
    assert (verdict.failure, verdict.error_type, verdict.severity, verdict.action) == (
        None,
        "moon_phase",
        "critical",
        "stop",
    )
