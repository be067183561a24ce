"""Torchrun over several hosts: an agent on each, with a host name of its own and a folder that all share."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integrations.programs import UNSHARE, Programs
from tests.waiting import wait_until
from trainwarden.record.rank import RankBeat, read_ranks

# Port 0 would differ on each host; a pytest worker has its own.
_PORT = 29600 + int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "0")) or 0)


C10D = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{_PORT}")
# torchrun's default. Its port stays the same.
STATIC = ("--master-addr", "127.0.0.1", "--master-port", str(_PORT))


class Hosts:
    """One torchrun agent for each of `count` hosts, for the run "r".

    Args:
        programs: starts them.
        script: the training.
        count: of the hosts.
        ranks: on each host.
        options: of torchrun.
    """

    def __init__(self, programs: Programs, script: Path, *options: str, count: int = 2, ranks: int = 1) -> None:
        self._programs = programs
        self._size = count * ranks
        shape = ("--nnodes", str(count), "--nproc-per-node", str(ranks), "--local-addr", "127.0.0.1")
        arguments: tuple[str | Path, ...] = ("-m", "torch.distributed.run", *shape, *options, script)
        self.agents = [
            programs.start_on(f"host{number}", *arguments, PET_NODE_RANK=str(number)) for number in range(count)
        ]

    def beats(self) -> dict[int, RankBeat]:
        """The files of all ranks."""
        return {beat.rank: beat for beat in read_ranks(self._programs.folder) if isinstance(beat, RankBeat)}

    def wait_until_training(self) -> dict[int, RankBeat]:
        """Wait until each rank has made a step."""

        def training() -> dict[int, RankBeat] | None:
            beats = self.beats()
            return beats if len(beats) == self._size and all(beat.step for beat in beats.values()) else None

        return wait_until(training, "all ranks train")

    def end_when_one_is_lost(self) -> list[int]:
        """End all agents by SIGTERM once one has ended, as `srun --kill-on-bad-exit` does; return their statuses."""
        wait_until(lambda: any(agent.poll() is not None for agent in self.agents), "an agent ends")
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()
        return self.statuses()

    def statuses(self) -> list[int]:
        """Wait for the ends of all agents, and return their statuses."""
        return [agent.wait(120) for agent in self.agents]


def can_unshare() -> bool:
    """Whether this user may give a process a host name of its own."""
    done = subprocess.run([*UNSHARE, "hostname", "h"], capture_output=True, check=False)
    return done.returncode == 0


needs_hosts = pytest.mark.skipif(not can_unshare(), reason="host names of their own are not allowed here")
