"""A real SLURM cluster on this machine, in one folder, run by whoever runs the tests."""

from __future__ import annotations

import os
import pwd
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.session import shared
from tests.slurm.accounting import CLIENTS as ACCOUNTING_CLIENTS
from tests.slurm.accounting import Accounting
from tests.slurm.programs import CLIENTS, Programs
from tests.waiting import wait_until
from trainwarden.stack.ports import free_ports

# Of partition `main`, which is each job's that names none.
NODES = ("n1", "n2", "n3")
# More nodes of the cluster that all tests share: one file of tests each drains, loses or takes them.
DRAINED, COMMANDED, LOST, TAKEN = ("s1", "s2", "s3"), "s4", "s5", ("s6", "s7")
# Nodes that have one job at a time.
ALONE = tuple(f"a{number}" for number in range(1, 13))
SPARE = (*DRAINED, COMMANDED, LOST, *TAKEN, *ALONE)
_SHARED_SETTINGS = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
_SHARED_PARTITIONS = (
    f"spare Nodes={','.join((*DRAINED, COMMANDED, LOST))}",
    f"alone Nodes={','.join(ALONE)} OverSubscribe=EXCLUSIVE",
    f"requeue Nodes={','.join(TAKEN)} PriorityTier=1 PreemptMode=REQUEUE",
    f"cancel Nodes={','.join(TAKEN)} PriorityTier=1 PreemptMode=CANCEL",
    f"urgent Nodes={','.join(TAKEN)} PriorityTier=10 PreemptMode=OFF",
)

# cred_expire is how long a requeued job waits before it may start again: 120 s by default, and any value below 5 is
# read as that default. The CPUs are made up (config_overrides), so that several two-node jobs fit on a small machine.
_CONFIGURATION = """\
ClusterName=trainwarden
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=2
MinJobAge=3600
MessageTimeout=5
JobRequeue=1
GresTypes=gpu
"""


@dataclass(frozen=True)
class Job:
    """What slurmctld says about a job: that is COMPLETING while its processes end. `restarts` counts requeues."""

    job_id: int
    state: str
    reason: str
    restarts: int
    nodes: str


class Cluster:
    """A cluster that runs: what a user of it can do. It may be shared: jobs have names of their own.

    `bin` holds the client commands; nothing need be set to use them.

    Args:
        folder: of all its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self._configuration = folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """This process' environment, with the client commands first on PATH and no trace of another cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SRUN"))}
        return kept | {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """A client command's output. Raises RuntimeError with what it said where it fails."""
        done = subprocess.run(
            command,
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def submit(
        self,
        script: Path,
        *arguments: str,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a batch script, with more variables in its environment; the id of its job."""
        command = ["sbatch", "--parsable", *options, str(script), *arguments]
        return int(self.run(*command, environment=environment).split(";")[0])

    def job(self, job_id: int) -> Job | None:
        """A job as slurmctld sees it now; None when it knows none of this id, or gives no answer."""
        with suppress(RuntimeError):
            shown = self.run("scontrol", "show", "job", "--oneliner", str(job_id))
            for line in shown.splitlines():  # of an array, one for each task
                values = dict(word.partition("=")[::2] for word in line.split())
                if values["JobId"] == str(job_id):
                    nodes = values["NodeList"].replace("(null)", "")
                    return Job(job_id, values["JobState"], values["Reason"], int(values["Restarts"]), nodes)
        return None

    def in_state(self, job_id: int, *states: str) -> Callable[[], Job | None]:
        """A condition for `wait_until`: the job, once it is in one of `states`."""

        def probe() -> Job | None:
            job = self.job(job_id)
            return job if job and job.state in states else None

        return probe

    def kill_job(self, job_id: int) -> None:
        """SIGKILL all processes of a job, and the slurmstepd of its node with them, as a node that loses its power.

        All are stopped first, so that none can report the end of another.
        """
        mark = f"SLURM_JOB_ID={job_id}".encode()
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                variables = environ.read_bytes().split(b"\0")
                if mark in variables and f"SLURM_CONF={self._configuration}".encode() in variables:
                    found.add(int(environ.parent.name))
        # slurmstepd writes its title over its environment.
        parents = {parent for pid in found if (parent := _parent(pid, "slurmstepd")) is not None}
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (*parents, *found):
                with suppress(OSError):
                    os.kill(pid, sent)

    def logs(self, lines: int = 15) -> str:
        """The ends of all logs of the cluster."""
        parts = []
        for file in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.err")]):
            tail = file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {file.name}", *tail]))
        return "\n".join(parts)


class OwnCluster(Cluster):
    """slurmctld, slurmd and munged as children of this process; all that they write is under `folder`.

    Args:
        programs: of SLURM.
        folder: of all its files.
        settings: of slurm.conf, beside or in place of those that each cluster has.
        partitions: more than `main`, each as in slurm.conf: all nodes are in those that name none.
        accounting: slurmdbd with its database; None for a cluster without.
        files: more of them beside slurm.conf, by name.
        spare: nodes that `main` does not have.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        partitions: Sequence[str] = (),
        accounting: Accounting | None = None,
        files: Mapping[str, str] | None = None,
        spare: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._programs = programs
        self._settings = dict(settings or {})
        self._partitions = partitions
        self.accounting = accounting
        self._files = dict(files or {})
        self._nodes = (*NODES, *spare)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def slurmctld(self) -> int:
        """The controller's process id."""
        return self._daemons["slurmctld"].pid

    def start(self) -> None:
        """Start the daemons and wait until all nodes are idle. A failure shows their logs."""
        self._write_files()
        at, conf = self.folder, str(self._configuration)
        files = [f"--{option}-file={at}/munge.{option}" for option in ("key", "log", "pid", "seed")]
        self._spawn("munged", "munged", "--foreground", "--force", f"--socket={at}/munge.sock", *files)
        wait_until((at / "munge.sock").exists, "munged listens")
        if self.accounting is not None:
            self.accounting.start(self)
        self._spawn("slurmctld", "slurmctld", "-D", "-c", "-f", conf)
        for node in self._nodes:
            self.start_node(node)
        wait_until(self._idle, lambda: f"idle nodes\n{self.logs()}")

    def kill_slurmctld(self) -> None:
        """SIGKILL the controller: what it has not saved yet, up to some seconds of changes, is forgotten."""
        self.kill("slurmctld")

    def start_slurmctld(self) -> None:
        """Start the controller again, from what it has saved, and wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self._configuration))
        wait_until(self._answers, lambda: f"slurmctld answers\n{self.logs()}")

    def kill(self, name: str) -> None:
        """SIGKILL a daemon; that of a node has its node's name."""
        self._daemons[name].kill()
        self._daemons[name].wait()

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        stepd = str(self._programs.path("slurmstepd"))
        self._spawn(name, "slurmd", "-D", "-f", str(self._configuration), "-N", name, "-d", stepd)

    def stop(self) -> None:
        """End every job and daemon; afterwards no process of this cluster is left."""
        # munged last: without it the others try for seconds to say that they end.
        for process in reversed(self._daemons.values()):
            process.send_signal(signal.SIGCONT)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        wait_until(lambda: not self._kill_all(), "the end of the cluster's last process", timeout=60)
        for process in self._daemons.values():
            process.wait()

    @property
    def _marks(self) -> dict[str, str]:
        # No other cluster has this SLURM_CONF, and all that is ever started by this one inherits it.
        return {"SLURM_CONF": str(self._configuration), "LD_LIBRARY_PATH": self._programs.libraries}

    def _kill_all(self) -> bool:
        """SIGKILL what is left (job steps outlive slurmd by design); whether there was anything."""
        mark = f"SLURM_CONF={self._configuration}".encode()
        found = False
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it ended meanwhile, or is another user's
                if mark in environ.read_bytes().split(b"\0"):
                    found = True
                    os.kill(int(environ.parent.name), signal.SIGKILL)
        return found

    def _answers(self) -> bool:
        with suppress(RuntimeError):
            return "is UP" in self.run("scontrol", "ping")
        return False

    def _idle(self) -> bool:
        dead = [name for name, process in self._daemons.items() if process.poll() is not None]
        if dead:
            raise RuntimeError(f"{', '.join(dead)} ended at once\n{self.logs()}")
        with suppress(RuntimeError):  # slurmctld does not listen yet
            # A line for each node and partition.
            states = self.run("sinfo", "--noheader", "--Node", "--format=%T").split()
            return len(states) >= len(self._nodes) and set(states) == {"idle"}
        return False

    def spawn(self, name: str, programs: Programs, program: str, *arguments: str) -> None:
        """Start a daemon that ends with the cluster."""
        with (self.folder / f"{name}.err").open("wb") as log:
            self._daemons[name] = subprocess.Popen(
                # SLURM goes by the name: called slurmctld-wlm, slurmctld keeps no connection to slurmdbd, and crashes.
                [program, *arguments],
                executable=programs.path(program),
                env=self.environment | self._marks | {"LD_LIBRARY_PATH": programs.libraries},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _spawn(self, name: str, program: str, *arguments: str) -> None:
        self.spawn(name, self._programs, program, *arguments)

    def _write_files(self) -> None:
        for name in ("state", "bin", *self._nodes):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        host = socket.gethostname().split(".")[0]
        port, *node_ports = free_ports(1 + len(self._nodes))
        at, user = self.folder, pwd.getpwuid(os.getuid()).pw_name
        text = _CONFIGURATION.format(host=host, port=port, user=user, folder=at, plugins=self._programs.plugins)
        settings = self._settings | dict(self.accounting.settings(at) if self.accounting else {})
        kept = [line for line in text.splitlines() if line.partition("=")[0] not in settings]
        text = "\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n"
        for node, node_port in zip(self._nodes, node_ports, strict=True):
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=64\n"
        text += f"PartitionName=main Nodes={','.join(NODES)} Default=YES State=UP MaxTime=60\n"
        for each in self._partitions:
            text += f"PartitionName={each} {'' if 'Nodes=' in each else 'Nodes=ALL '}State=UP MaxTime=60\n"
        self._configuration.write_text(text, encoding="utf-8")
        for name, text in self._files.items():
            (at / name).write_text(text, encoding="utf-8")
        marks = " ".join(shlex.quote(f"{name}={value}") for name, value in self._marks.items())
        for name in (*CLIENTS, *(ACCOUNTING_CLIENTS if self.accounting else ())):
            script = self.bin / name
            program = shlex.quote(str(self._programs.path(name)))
            script.write_text(f'#!/bin/sh\nexec env {marks} {program} "$@"\n', encoding="utf-8")
            script.chmod(0o755)


@contextmanager
def running_cluster(
    programs: Programs,
    settings: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
    accounting: Accounting | None = None,
    files: Mapping[str, str] | None = None,
) -> Iterator[OwnCluster]:
    """A started cluster in a folder of its own; stopped, and its folder removed, however the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # not pytest's: a UNIX socket's path has at most 107 bytes
    cluster = OwnCluster(programs, folder, settings, partitions, accounting, files)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


_of_the_session: list[OwnCluster] = []


def shared_cluster(programs: Programs) -> Cluster:
    """The one cluster of all workers of the session, which ends it. No test may stop or change its daemons."""

    def start(folder: Path) -> None:
        cluster = OwnCluster(programs, folder, _SHARED_SETTINGS, _SHARED_PARTITIONS, spare=SPARE)
        _of_the_session.append(cluster)  # else its daemons would be reported as forgotten children
        cluster.start()

    return Cluster(shared("slurm", start))


def _parent(pid: int, name: str) -> int | None:
    """The parent of a process, if that runs a program whose name begins so: Debian appends one."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        parent = int(status.rpartition(")")[2].split()[1])
        if Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").startswith(name):
            return parent
    return None
