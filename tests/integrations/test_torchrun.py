"""Plain PyTorch, alone and as several ranks under torchrun."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.programs import ROOT, Programs, torchrun
from tests.unit.library.looking import read_metadata, read_progress, read_rank, read_snapshot
from trainwarden import cli

EXAMPLE = ROOT / "examples/pytorch/train.py"
# The example, in which something happens to rank 1 in the first round, after step 4.
_ACCIDENT = """
    import os, signal
    from examples.pytorch import train
    one_step = train.train_one_step
    def accident(step, *others):
        if step == 5 and os.environ["RANK"] == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            {what}
        return one_step(step, *others)
    train.train_one_step = accident
    train.main()
"""


def sentinel(programs: Programs) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((programs.folder / "_error").read_text())
    return said


def test_both_ranks_beat_under_one_key_and_the_record_names_torchrun(programs: Programs) -> None:
    done = programs.torchrun(2, EXAMPLE, "--steps", "20", "--checkpoint-every", "10")
    assert done.returncode == 0, done.stdout
    said, progress = read_metadata(programs.folder), read_progress(programs.folder)
    assert (said.status, said.world_size, progress.step, progress.total_steps) == ("succeeded", 2, 20, 20)
    beats = [read_rank(programs.folder, rank) for rank in (0, 1)]
    assert [(beat.step, beat.status, beat.attempt_key) for beat in beats] == [(20, "succeeded", said.attempt_key)] * 2
    environment = json.loads((programs.folder / "metadata.json").read_text())["environment"]
    assert environment["torchrun_restart_count"] == "0"
    assert [one.step for one in progress.checkpoints] == [20, 10]


def test_the_rank_that_raises_is_named_and_not_the_cascade(programs: Programs) -> None:
    script = programs.script(_ACCIDENT.format(what='raise ValueError("bad batch on this rank")'))
    done = programs.torchrun(2, script, "--steps", "20")
    assert done.returncode != 0 and "ChildFailedError" in done.stdout
    said = sentinel(programs)
    assert (said["rank"], said["exception_type"], said["message"]) == (1, "ValueError", "bad batch on this rank")
    assert read_snapshot(programs.folder).state == "failed"


def test_a_killed_rank_is_no_success_and_no_wish_of_a_user(programs: Programs) -> None:
    script = programs.script(_ACCIDENT.format(what="os.kill(os.getpid(), signal.SIGKILL)"))
    done = programs.torchrun(2, script, "--steps", "20")
    assert done.returncode != 0
    record = read_snapshot(programs.folder)
    assert record.state == "failed"
    # Rank 0 either saw its connection break, or got SIGTERM of torchrun and found rank 1 gone, whichever came first.
    assert (sentinel(programs)["rank"], sentinel(programs)["failure"]) in {(1, "killed"), (0, "peer_reset")}


def test_a_start_after_a_failure_is_a_new_attempt_that_resumes(programs: Programs) -> None:
    broken = programs.script(_ACCIDENT.format(what='raise ValueError("bad batch")'))
    options = ("--steps", "8", "--checkpoint-every", "2")
    assert programs.torchrun(2, broken, *options).returncode != 0
    done = programs.torchrun(2, EXAMPLE, *options)
    assert done.returncode == 0, done.stdout
    said, progress = read_metadata(programs.folder), read_progress(programs.folder)
    assert [(one.attempt, one.resume_step) for one in said.attempts] == [(0, 1), (1, 5)]
    assert (said.status, progress.step, progress.steps_completed) == ("succeeded", 8, 8)


def test_the_commands_show_a_job_of_torchrun(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.torchrun(2, EXAMPLE, "--steps", "20", "--checkpoint-every", "10").returncode == 0
    place = ("--runs-dir", str(programs.runs))
    assert cli.main(["status", "r", "--once", *place]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("r  SUCCEEDED")
    assert "20/20" in shown
    assert cli.main(["compare", "r", *place]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["r", "0", "SUCCEEDED"]
    page = programs.runs.parent / "r.html"
    assert cli.main(["report", "r", "-o", str(page), *place]) == 0
    assert "The run has succeeded" in page.read_text(encoding="utf-8")


def test_a_restart_by_torchrun_itself_is_the_same_attempt(programs: Programs) -> None:
    # Without collectives: Gloo itself does not always find its peers again after such a restart.
    script = programs.script("""
        import os, trainwarden
        is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        with trainwarden.run(total_steps=8) as run:
            for step in range(1 if is_first else 4, 9):
                run.step(step)
                if is_first and step == 5 and run.rank == 1:
                    raise ValueError("bad batch")
                while is_first and step == 5:
                    pass
    """)
    done = programs.run(*torchrun(2, "--max-restarts", "1"), script)
    assert done.returncode == 0, done.stdout
    said, progress = read_metadata(programs.folder), read_progress(programs.folder)
    assert (said.status, said.attempt, len(said.attempts), progress.step) == ("succeeded", 0, 1, 8)
    assert read_snapshot(programs.folder).state == "succeeded"
    assert json.loads((programs.folder / "metadata.json").read_text())["environment"]["torchrun_restart_count"] == "1"


@pytest.mark.parametrize("ranks", [1, 2])
def test_workers_that_load_data_do_not_disturb(programs: Programs, ranks: int) -> None:
    arguments = (EXAMPLE, "--steps", "40", "--workers", "2")
    done = programs.torchrun(ranks, *arguments) if ranks > 1 else programs.run(*arguments)
    assert done.returncode == 0, done.stdout
    assert (read_metadata(programs.folder).status, read_progress(programs.folder).step) == ("succeeded", 40)
    assert [beat.rank for beat in read_snapshot(programs.folder).ranks] == list(range(ranks))
    assert len(list((programs.folder / "ranks").glob("*.json"))) == 1


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_worker_that_fails_is_the_failure_of_the_run_and_no_end_of_its_own(programs: Programs, how: str) -> None:
    script = programs.script("""
        import sys, torch, trainwarden
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index):
                trainwarden.step(1000 + index)
                if index == 6: raise ValueError("row 6 is damaged")
                return index
        if __name__ == "__main__":
            with trainwarden.run():
                loader = torch.utils.data.DataLoader(
                    Data(), num_workers=1, multiprocessing_context=sys.argv[1], prefetch_factor=1)
                for step, _ in enumerate(loader, 1):
                    trainwarden.step(step)
    """)
    assert programs.run(script, how).returncode == 1
    record = read_snapshot(programs.folder)
    assert (record.state, record.progress.step, record.metadata.pid) == ("failed", 6, record.ranks[0].pid)
    assert (sentinel(programs)["rank"], sentinel(programs)["exception_type"]) == (0, "ValueError")
    assert "row 6 is damaged" in sentinel(programs)["message"]


_SAVES = """
    import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, trainwarden
    from torch.distributed.tensor import Shard, distribute_tensor
    with trainwarden.run() as run:
        last = run.resume_checkpoint(wait_seconds=float(sys.argv[2]))
        print(f"rank {run.rank} resumes from {last}", flush=True)
        dist.init_process_group("gloo")
        step = int(last.rpartition("_")[2]) + 1 if last else 1
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        weight = distribute_tensor(torch.full((64, 64), float(step)), mesh, (Shard(0),))
        dcp.save({"weight": weight}, checkpoint_id=f"{sys.argv[1]}/step_{step}")
        run.checkpoint_saved(f"{sys.argv[1]}/step_{step}", step)
        dist.barrier()
        dist.destroy_process_group()
"""


def _on_its_own_host(programs: Programs, script: Path, checkpoints: Path, view: Path) -> Path:
    """A program that torchrun starts for each rank: for rank 1 on a host "b" that sees `view` instead."""
    run = shlex.join([sys.executable, str(script)])
    bind = f"hostname b && mount --bind {shlex.quote(str(view))} {shlex.quote(str(checkpoints))}"
    path = programs.runs.parent / "start.sh"
    path.write_text(
        f'#!/bin/sh\n[ "$RANK" = 0 ] || exec unshare -mu sh -c \'{bind} && exec {run} "$@"\' sh "$@"\nexec {run} "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_ranks_under_torchrun_never_resume_from_different_checkpoints(programs: Programs, tmp_path: Path) -> None:
    try:
        subprocess.run(["unshare", "-mu", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the permission to unshare mounts")
    script, checkpoints, view = programs.script(_SAVES), tmp_path / "checkpoints", tmp_path / "view"
    for last in ("None", checkpoints / "step_1"):
        done = programs.torchrun(2, script, checkpoints, "60")
        assert done.returncode == 0, done.stdout
        assert all(f"rank {rank} resumes from {last}\n" in done.stdout for rank in (0, 1)), done.stdout
    # The host of rank 1 has not seen the newest one yet.
    shutil.copytree(checkpoints / "step_1", view / "step_1")
    start = _on_its_own_host(programs, script, checkpoints, view)
    done = programs.run(*torchrun(2, "--no-python"), start, checkpoints, "20")
    assert done.returncode != 0
    assert f"rank 0 resumes from {checkpoints / 'step_2'}\n" in done.stdout
    assert "rank 1 resumes" not in done.stdout
    assert f"chose checkpoint {checkpoints / 'step_2'}, of step 2," in done.stdout
    assert "rank 1 on b does not see it after 20 s: it is not there" in done.stdout
    assert (sentinel(programs)["rank"], sentinel(programs)["exception_type"]) == (1, "RunRefused")
    shutil.copytree(checkpoints / "step_2", view / "step_2")
    done = programs.run(*torchrun(2, "--no-python"), start, checkpoints, "60")
    assert all(f"rank {rank} resumes from {checkpoints / 'step_2'}\n" in done.stdout for rank in (0, 1)), done.stdout


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_each_process_of_torch_multiprocessing_is_the_rank_that_it_was_given(programs: Programs, method: str) -> None:
    script = programs.script("""
        import os, sys, torch, torch.distributed, torch.multiprocessing, trainwarden
        def train(rank, size):
            torch.distributed.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=size)
            run = trainwarden.run("r", total_steps=9, rank=rank, world_size=size)
            for step in range(1, 10):
                torch.distributed.all_reduce(torch.ones(1))
                run.step(step)
                if step == 5 and rank == 1:
                    raise ValueError("bad batch on this rank")
        if __name__ == "__main__":
            torch.multiprocessing.start_processes(train, (2,), nprocs=2, start_method=sys.argv[1])
    """)
    meeting = f"file://{programs.runs.parent}/meeting"
    assert programs.run(script, method, meeting).returncode == 1
    record = read_snapshot(programs.folder)
    assert (record.state, record.error.rank, record.error.exception_type) == ("failed", 1, "ValueError")
    assert record.error.message == "bad batch on this rank"
    assert {beat.rank: beat.step for beat in record.ranks} == {0: 5, 1: 5}
    assert len({beat.attempt_key for beat in record.ranks}) == 1


def test_a_segmentation_fault_under_torchelastics_record_is_a_failure(programs: Programs) -> None:
    """It enables faulthandler before the run begins."""
    script = programs.script("""
        import ctypes, trainwarden
        from torch.distributed.elastic.multiprocessing.errors import record

        def train_one_step():
            ctypes.string_at(0)

        @record
        def main():
            with trainwarden.run() as run:
                run.step(1)
                train_one_step()

        main()
    """)
    done = programs.torchrun(1, script)
    assert done.returncode == 1
    found = read_snapshot(programs.folder)
    assert (found.state, found.error.failure) == ("failed", "crash_signal"), done.stdout
    assert "train_one_step" in found.error.traceback
