"""The example is a real training: it learns, it resumes exactly, and it breaks as real ones do."""

import contextlib
import os
import re
import resource
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from examples.tiny_lm.exchange import RENDEZVOUS_SECONDS, Connection, Hub, Spoke
from examples.tiny_lm.model import SIZE
from tests.cases import cases
from tests.unit.examples.training import Training
from tests.waiting import wait_until
from trainwarden.stack.ports import free_port

pytestmark = pytest.mark.process

KEY = "local:9:0"

_LOSS = re.compile(r"iteration +(\d+)/.*lm loss: (\S+)")


def _losses(out: str) -> dict[int, str]:
    return {int(step): loss for step, loss in _LOSS.findall(out)}


def test_two_ranks_learn_and_the_record_shows_it(training: Training) -> None:
    status, out = training.finish(training.start("--steps", "60", "--log-every", "1", "--checkpoint-every", "25"))
    assert status == 0, out
    losses = {step: float(loss) for step, loss in _losses(out).items()}
    assert losses[1] > 5.0
    assert losses[60] < 3.0
    record = training.record()
    assert (record.state, record.progress.step, record.progress.total_steps) == ("succeeded", 60, 60)
    assert [one.step for one in record.progress.checkpoints] == [60, 50, 25]
    assert {beat.rank: beat.step for beat in record.ranks} == {0: 60, 1: 60}
    assert record.metadata.world_size == 2


def test_a_resumed_training_has_exactly_the_losses_of_one_that_was_never_interrupted(
    training: Training, tmp_path: Path
) -> None:
    options = ("--steps", "40", "--log-every", "1", "--checkpoint-every", "10")
    whole = Training(tmp_path / "whole")
    _, out = whole.finish(whole.start(*options))
    expected = _losses(out)
    broken = training.start(*options, "--step-seconds", "0.15")
    training.reaches(23)
    broken.terminate()
    status, first = training.finish(broken)
    assert status == 128 + signal.SIGTERM
    assert training.record().state == "cancelled"
    status, second = training.finish(training.start(*options))
    assert status == 0, second
    assert "resuming from" in second
    resumed = _losses(second)
    assert 10 < min(resumed) < 40
    assert {**_losses(first), **resumed} == expected
    assert training.record().metadata.attempts[1].resume_step == min(resumed)


def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_one_before(training: Training) -> None:
    training.finish(training.start("--steps", "20", "--checkpoint-every", "10"))
    os.truncate(training.folder / "checkpoints" / "step-000020.npz", 1000)
    status, out = training.finish(training.start("--steps", "30"))
    assert status == 0, out
    assert "step-000020.npz is incomplete" in out
    assert "step-000010.npz after step 10" in out


def test_one_stopped_rank_blocks_the_other_while_its_process_lives_on(training: Training) -> None:
    process = training.start("--steps", "100000", TRAINWARDEN_ATTEMPT_KEY=KEY)
    training.reaches(5)
    os.kill(training.pid(1), signal.SIGSTOP)
    seen: list[tuple[int, float]] = []

    def stands_still_while_alive() -> bool:
        record = training.record()
        seen.append((record.progress.step, record.metadata.last_update))
        steps = {step for step, _ in seen[-100:]}
        beats = {beat for _, beat in seen[-100:]}
        return len(seen) >= 100 and len(steps) == 1 and len(beats) > 1

    wait_until(stands_still_while_alive)
    assert training.record().state == "running"
    process.terminate()
    status, _ = training.finish(process)
    assert status == 128 + signal.SIGTERM
    assert (training.record().state, training.record().error) == ("cancelled", None)


@pytest.mark.nightly
def test_a_reset_connection_is_a_failure_of_communication(training: Training) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as path:
        process = training.start(
            *("--steps", "100000", "--listen", str(port)),
            *("--connect", f"127.0.0.1:{path.getsockname()[1]}"),
        )
        ends = _forward(path, port)
        training.reaches(3)
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):  # the rank may have ended with the other one
                end.shutdown(socket.SHUT_RD)
            end.close()
        status, out = training.finish(process)
    assert status == 1, out
    record = training.record()
    assert (record.state, record.error.error_type, record.error.failure) == ("failed", "communication", "peer_reset")


def _forward(path: socket.socket, port: int) -> list[socket.socket]:
    """Carry bytes between rank 1, which comes to `path`, and rank 0 at `port`."""
    near, _ = path.accept()
    far = socket.socket()
    wait_until(lambda: far.connect_ex(("127.0.0.1", port)) == 0)

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            return

    for pair in ((near, far), (far, near)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
    return [near, far]


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_killed_rank_fails_the_run_whichever_it_is(training: Training, rank: int) -> None:
    process = training.start("--steps", "100000")
    training.reaches(3)
    os.kill(training.pid(rank), signal.SIGKILL)
    status, out = training.finish(process)
    assert status == (137 if rank == 0 else status)
    assert status != 0, out
    assert training.record().state == "failed"
    assert training.record().error.rank == 1 - rank


@pytest.mark.nightly
def test_numpys_memory_error_is_out_of_memory_with_what_to_change(training: Training) -> None:
    process = training.start("--steps", "100000", MALLOC_MMAP_THRESHOLD_="65536")
    training.reaches(3)
    pid = training.pid(0)
    # The least of the readings over some steps is one between two of them. A little above it the stack can grow, and no
    # array be made. While it trains on, on a busy machine, there was no such reading yet.
    spaces: list[int] = []
    data: list[int] = []
    until = 20

    def has_none() -> bool:
        nonlocal until
        with contextlib.suppress(OSError):  # it has ended
            for _ in range(200):
                pages = Path(f"/proc/{pid}/statm").read_text().split()
                spaces.append(int(pages[0]))
                data.append(int(pages[5]))
            if training.record().progress.step >= until and min(spaces):
                for kind, readings in ((resource.RLIMIT_AS, spaces), (resource.RLIMIT_DATA, data)):
                    limit = min(readings) * resource.getpagesize() + 384 * 1024
                    resource.prlimit(pid, kind, (limit, resource.RLIM_INFINITY))
                until += 20
        return process.poll() is not None

    wait_until(has_none)
    status, out = training.finish(process)
    assert status == 1
    assert "_ArrayMemoryError" in out
    error = training.record().error
    assert (error.rank, error.error_type, error.exception_type) == (0, "host_oom", "MemoryError")
    assert "batch size" in error.hint


def test_a_nan_on_the_wire_ends_the_training_by_name(training: Training) -> None:
    port = free_port()
    environment = {"RANK": "0", "WORLD_SIZE": "2", "TRAINWARDEN_ATTEMPT_KEY": KEY}
    process = training.start("--steps", "50", "--listen", str(port), **environment)
    peer = _peer(port)
    for step in range(1, 6):
        values = np.zeros(SIZE + 1, np.float32)
        values[0] = np.nan if step == 5 else 5.0
        peer.send(values, step)
        peer.receive(SIZE + 1, step)
    status, out = training.finish(process)
    peer.close()
    assert status == 1
    assert "FloatingPointError: loss is NaN at step 5" in out
    record = training.record()
    assert (record.error.error_type, record.progress.step, record.progress.nonfinite) == ("numerical_instability", 5, 1)
    assert "learning rate" in record.error.hint


def _peer(port: int) -> Connection:
    """This process as rank 1."""
    connected = socket.socket()
    wait_until(lambda: connected.connect_ex(("127.0.0.1", port)) == 0)
    connection = Connection(connected)
    connection.send(np.ones(1, np.float32), 0)
    connection.receive(1, 0)
    return connection


def test_ranks_that_srun_starts_find_each_other_and_their_common_attempt(training: Training) -> None:
    port = free_port()
    job = {"SLURM_JOB_ID": "55", "SLURM_NTASKS": "2", "SLURM_RESTART_COUNT": "1"}
    options = ("--steps", "3", "--address", f"127.0.0.1:{port}")
    ranks = [training.start(*options, SLURM_PROCID=str(rank), **job) for rank in (1, 0)]
    for process in ranks:
        status, out = training.finish(process)
        assert status == 0, out
    record = training.record()
    assert (record.metadata.attempt_key, record.metadata.world_size) == ("slurm:55:1", 2)
    assert {beat.rank for beat in record.ranks} == {0, 1}


def test_ranks_at_different_steps_do_not_train_on() -> None:
    """One resumed from another checkpoint than the other."""
    address = ("127.0.0.1", free_port())
    failures: list[Exception] = []

    def hub() -> None:
        try:
            Hub(address, 2, 20)
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=hub)
    thread.start()
    with pytest.MonkeyPatch.context() as patched:
        # For rank 1 the time is over once rank 0 has refused it.
        clock = SimpleNamespace(monotonic=lambda: 2 * RENDEZVOUS_SECONDS * len(failures), sleep=time.sleep)
        patched.setattr("examples.tiny_lm.exchange.time", clock)
        with pytest.raises(TimeoutError):
            Spoke(address, 1, 10)
    thread.join()
    assert "is at step 10, this rank is at step 20" in str(failures[0])


@cases("options", [["--steps", "0"], ["--steps", "x"], ["--connect", "nowhere"], ["--batch", "-1"]])
def test_options_that_mean_nothing_are_status_2(training: Training, options: list[str]) -> None:
    status, out = training.finish(training.start(*options))
    assert status == 2
    assert options[0] in out
