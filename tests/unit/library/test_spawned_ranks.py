"""Ranks that multiprocessing starts, as `torch.multiprocessing.spawn` does: no launcher sets their rank."""

import pytest

import trainwarden
from tests.cases import cases
from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

pytestmark = pytest.mark.process

_MODULE = """
import multiprocessing, os, signal, sys, time, trainwarden

def train(rank, ranks, how):
    run = trainwarden.run("r", rank=rank, world_size=ranks)
    for step in range(1, 4):
        run.step(step)
    if rank == 1:
        exec(how)

def wrapped(*arguments):
    # As torch.multiprocessing does it.
    try:
        train(*arguments)
    except Exception:
        sys.exit(1)

def main(method, how):
    context = multiprocessing.get_context(method)
    ranks = [context.Process(target=wrapped, args=(rank, 2, how)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    print([rank.exitcode for rank in ranks])
"""


@pytest.fixture
def spawning(script: Script) -> Script:
    script.runs.mkdir(exist_ok=True)
    (script.runs / "spawning.py").write_text(_MODULE)
    return script


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize(
    ("how", "codes", "error"),
    [
        ("pass", [0, 0], None),
        ("raise ValueError('bad batch')", [0, 1], "bad batch"),
        pytest.param("sys.exit(5)", [0, 5], "exit status 5", marks=pytest.mark.nightly),
    ],
)
def test_each_process_is_the_rank_that_it_was_given(
    spawning: Script, method: str, how: str, codes: list[int], error: str | None
) -> None:
    done = spawning.run(
        f"""
        import spawning
        spawning.main({method!r}, {how!r})
        """,
        PYTHONPATH=f"{spawning.runs}:{trainwarden.__path__[0]}/..",
    )
    assert done.stdout == f"{codes}\n", done.stderr
    record = read_snapshot(spawning.folder)
    beats = {beat.rank: (beat.step, beat.status) for beat in record.ranks}
    assert beats == {0: (3, beats[0][1]), 1: (3, "failed" if error else "succeeded")}
    assert len({beat.attempt_key for beat in record.ranks}) == 1
    assert record.metadata.world_size == 2
    assert (record.error and (record.error.rank, record.error.message)) == (error and (1, error))


def test_a_killed_rank_is_seen_by_the_other(script: Script) -> None:
    script.run(
        """
        import os, signal, time, multiprocessing, trainwarden
        def train(rank):
            with trainwarden.run("r", rank=rank, world_size=2) as run:
                run.step(1)
                ready.wait()
                time.sleep(60)
        context = multiprocessing.get_context("fork")
        ready = context.Barrier(3)
        ranks = [context.Process(target=train, args=(rank,)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        ready.wait()
        ranks[1].kill()
        ranks[1].join()
        ranks[0].terminate()
        ranks[0].join()
        """
    )
    record = read_snapshot(script.folder)
    assert (record.state, record.error.failure) == ("failed", "killed")


@cases(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0), (1, None), ("1", 2), (True, 2)])
def test_a_rank_that_cannot_be_is_refused(rank: object, world_size: object) -> None:
    with pytest.raises(trainwarden.RunRefused, match=r"0 <= rank < world_size"):
        trainwarden.run("r", rank=rank, world_size=world_size)  # type: ignore[arg-type]


def test_ranks_without_a_number_get_an_error_that_names_the_argument(script: Script) -> None:
    done = script.run(
        """
        import multiprocessing, trainwarden
        def train(ready, done):
            try:
                with trainwarden.run("r"):
                    ready.set()
                    done.wait()
            except trainwarden.RunRefused as error:
                print(error, flush=True)
                done.set()
        context = multiprocessing.get_context("fork")
        ready, done = context.Event(), context.Event()
        ranks = [context.Process(target=train, args=(ready, done)) for _ in range(2)]
        ranks[0].start()
        ready.wait()
        ranks[1].start()
        for rank in ranks:
            rank.join()
        """
    )
    assert "pass run(rank=…, world_size=…)" in done.stdout
    assert read_snapshot(script.folder).state == "succeeded"
