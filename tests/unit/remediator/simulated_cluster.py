"""The truth of a simulation about one run's job: its states, what calls and people do to it, and each of its starts.

The log of starts is the oracle: it does not know what the remediator believes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainwarden_remediator.drivers.driver import CallOutcome, JobState, ScheduledJob, Shape

RUN, JOB = "run-1", "17"
DOUBT_SECONDS = 60.0
ENDING_TICKS = 3


class FakeClock:
    """Both clocks; a test moves them, and only the wall clock jumps."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.jump = 0.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.elapsed + self.jump

    def monotonic(self) -> float:
        return self.elapsed


@dataclass
class Start:
    """One start that really happened: the generation that it replaced, when that had begun, and whose call it was.

    `replaced` is how that generation had ended: "crash", "stall" where it was ended while it ran, or "late" where that
    was by a call that took effect late. `step` is the highest that the run had reached.
    """

    generation: int
    ours: bool
    began: float | None = None
    replaced: str = ""
    step: float = 0.0


@dataclass
class Submission:
    """A job that the remediator has submitted, until it starts; `replaces` is the number of the one before."""

    job_id: str
    token: str
    replaces: int
    began: float | None
    excluded: set[str]
    state: JobState = JobState.HELD


@dataclass(frozen=True)
class Jobs:
    """Which job of a run is the present one, and which there are beside it."""

    job_id: str
    submission: str | None
    excluded: set[str]
    before: dict[str, ScheduledJob]
    submissions: dict[str, Submission]

    def copy(self) -> Jobs:
        """Return the same, to be kept when that changes."""
        submissions = {each: replace(job, excluded=set(job.excluded)) for each, job in self.submissions.items()}
        return replace(self, excluded=set(self.excluded), before=dict(self.before), submissions=submissions)


@dataclass
class Cluster:
    """The truth about one run's job, and those that come after it. `violations` collects what must never happen."""

    two_phase: bool
    clock: FakeClock
    job_id: str = JOB
    run_id: str = RUN
    nodes: tuple[str, ...] = ("n1",)
    state: JobState = JobState.RUNNING
    generation: int = 0
    ending: int = 0
    started: float | None = 0.0
    after_ending: JobState = JobState.HELD
    held_by_requeue: bool = True
    user: int | None = None
    excluded: set[str] = field(default_factory=set)
    hold_of: str | None = None
    hold_of_generation: int | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    over: bool = False
    starts: list[Start] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    late: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    # The incidents whose calls to end an attempt have not taken effect yet.
    to_come: list[str] = field(default_factory=list)
    ended_by: str = ""
    # Whether it has run since its last start was given.
    ran: bool = True
    # It makes no step although it runs, or makes one each second, whatever its record says.
    hangs: bool = True
    steps: bool = False
    progress_after_start: bool = True
    fails_after_start: bool = False
    queues_after_start: bool = False
    dies_unheard: bool = False
    given_away: bool = False
    lost: bool = False
    # A person holds it as soon as it is in this state.
    to_be_held: JobState | None = None
    past: list[tuple[tuple[JobState, int, int, float | None], Jobs]] = field(default_factory=list)
    attempt: int = 0
    attempt_key: str = ""
    run_state: str = "running"
    step: float = 40.0
    high_water: float = 40.0
    shape: Shape | None = None
    submission: str | None = None
    # Jobs by their ids: those that were the present one before, those that are to be, and the order of all starts,
    # those included that the scheduler has forgotten.
    before: dict[str, ScheduledJob] = field(default_factory=dict)
    submissions: dict[str, Submission] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    stopped: float | None = None
    # The incidents whose new job was released by a call whose answer the remediator has lived to note, until it dies:
    # else a hold that a person has laid since cannot be told from that of the submission.
    accepted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"
        self.order.append(self.job_id)

    def ids(self) -> list[str]:
        """All jobs of the run that the scheduler lists."""
        if self.lost:
            return []
        return [*self.before, self.job_id, *self.submissions]

    def stop(self, job_id: str, *, late: bool = False) -> None:
        """What `scancel` does: of a job that is not there any more, nothing."""
        if self.given_away:
            self._touch_another("ended", late=late)
        elif job_id == self.job_id and self.state is JobState.RUNNING:
            self.ended_by = "late" if late else "stall"
            self.state, self.ending, self.after_ending = JobState.ENDING, ENDING_TICKS, JobState.CANCELLED

    def submit(self, token: str, replaced: str, job_id: str = "") -> str:
        """What `sbatch --hold` does; with an id, what a scheduler does that has no holds, and takes each id once."""
        if job_id and job_id in self.ids():
            return job_id
        made = job_id or f"{self.order[0]}{len(self.ids())}"
        self.submissions[made] = Submission(made, token, self.order.index(replaced), self.started, set(self.excluded))
        if job_id:
            self._begin_job(self.submissions[made])
        return made

    def release_job(self, job_id: str, *, late: bool = False) -> None:
        """What `release` does to a job that was submitted."""
        job = self.submissions.get(job_id)
        if job is not None and job.state is JobState.HELD:
            self._begin_job(job)
        elif job_id == self.job_id and self.state is JobState.HELD and not late:
            self.violations.append("a person's hold was released")

    def discard_job(self, job_id: str) -> None:
        """What `scancel --state=PENDING` does to a job that was submitted."""
        job = self.submissions.get(job_id)
        if job is not None and job.state is JobState.HELD:
            job.state = JobState.CANCELLED

    def _begin_job(self, job: Submission) -> None:
        """A job that was submitted becomes the present one."""
        if self.over:
            self.violations.append("S4: a job that was over was started")
        if self.state in (JobState.RUNNING, JobState.ENDING):
            self.violations.append("S2: a job was started beside one that lives")
        failure = "crash" if self.state is JobState.FAILED else self.ended_by
        self.starts.append(Start(job.replaces, True, job.began, failure, self.high_water))
        self.ran = False
        del self.submissions[job.job_id]
        self.before[self.job_id] = self.shown(self.job_id)
        self.order.append(job.job_id)
        self.job_id, self.submission, self.excluded, self.generation = job.job_id, job.token, job.excluded, 0
        self._enter_first_state()

    def shown(self, job_id: str) -> ScheduledJob:
        """One job as the scheduler shows it."""
        if job_id in self.before:
            return self.before[job_id]
        if job_id in self.submissions:
            job = self.submissions[job_id]
            avoided = tuple(sorted(job.excluded))
            return ScheduledJob(
                job_id,
                self.run_id,
                0,
                job.state,
                job.state.value,
                user=self.user,
                excluded_nodes=avoided,
                shape=self.shape,
                submission=job.token,
            )
        return ScheduledJob(
            job_id,
            "somebody-elses" if self.given_away else self.run_id,
            self.generation,
            self.state,
            self.state.value,
            None,
            dict(self.tokens),
            self.state is JobState.HELD and self.held_by_requeue,
            self.user,
            self.hold_of if self.hold_of_generation == self.generation - 1 else None,
            tuple(sorted(self.excluded)),
            nodes=self.nodes if self.state is JobState.RUNNING else (),
            started=self.started,
            shape=self.shape,
            submission=self.submission,
        )

    def tick(self) -> None:
        """Let a second pass on the cluster."""
        due = [call for when, call in self.late if when <= self.clock.elapsed]
        self.late = [(when, call) for when, call in self.late if when > self.clock.elapsed]
        for call in due:
            call()
        if self.state is JobState.ENDING:
            self.ending -= 1
            if self.ending <= 0:
                self.state = self.after_ending
                if self.after_ending is JobState.RUNNING:
                    self._runs()
        if self.steps and self.state is JobState.RUNNING:
            self.step = self.high_water = self.high_water + 1
        if self.to_be_held is self.state:
            self.user_hold()
            self.to_be_held = None
        self.past = [*self.past[-9:], (self.save(), self.jobs())]

    def requeue_hold(self, generation: int, *, ended: bool, late: bool = False) -> None:
        """What `requeuehold` does to the job as it is, whatever the caller had in mind.

        One that takes effect late finds another start where the scheduler has requeued the job meanwhile, or a job that
        its user has given up: no caller can prevent that, and must make up for it. So it is with one that an answer of
        the scheduler has led to which was old itself.
        """
        if self.given_away:
            self._touch_another("ended", late=late)
        elif self.state in (JobState.RUNNING, JobState.FAILED) and (ended or self.state is JobState.RUNNING):
            self.held_by_requeue = True
            if self.generation != generation and not late:
                self.violations.append(f"S3: generation {self.generation} was ended because of {generation}")
            failure = "stall" if self.state is JobState.RUNNING else "crash"
            self._end(JobState.HELD, "late" if late else failure)
        elif ended and self.over and not late:
            self.violations.append("S4: a job that was over was requeued")

    def lose(self) -> None:
        """The scheduler begins again without any job of the run; their processes are gone, and no call comes late."""
        self.lost, self.over, self.state = True, True, JobState.CANCELLED
        self.late.clear()

    def give_away(self) -> None:
        """The scheduler has lost the job, and gives its id to one of somebody else."""
        self.given_away, self.over = True, True
        self.state, self.generation, self.started = JobState.RUNNING, 0, self.clock.elapsed

    def _touch_another(self, what: str, *, late: bool) -> None:
        if not late:
            self.violations.append(f"S3: a job of somebody else was {what}")

    def save(self) -> tuple[JobState, int, int, float | None]:
        """What the scheduler has written down of the job."""
        return self.state, self.generation, self.ending, self.started

    def jobs(self) -> Jobs:
        """What the scheduler has written down of all jobs of the run."""
        return Jobs(self.job_id, self.submission, self.excluded, self.before, self.submissions).copy()

    def forget(self, saved: tuple[JobState, int, int, float | None], jobs: Jobs | None = None) -> None:
        """The scheduler was killed, and begins again with what it had written down; processes of the job are gone.

        `jobs` are those that it has written down, where it has forgotten some, whose ids it gives again.
        """
        self.state, self.generation, self.ending, self.started = saved
        if jobs is not None:
            known = jobs.copy()
            self.job_id, self.submission, self.excluded = known.job_id, known.submission, known.excluded
            self.before, self.submissions = known.before, known.submissions

    def user_hold(self) -> None:
        """A person holds the job: its user while it waits, an administrator also where it is held already."""
        if self.state in (JobState.HELD, JobState.WAITING):
            self.state, self.held_by_requeue = JobState.HELD, False

    def release(self, *, late: bool = False) -> None:
        """What `release` does; one that takes effect late may find an end or a hold that was not there at the call."""
        if self.given_away:
            self._touch_another("released", late=late)
            return
        if self.state is JobState.HELD and not self.held_by_requeue and not late:
            self.violations.append("a person's hold was released")
        if self.state is JobState.ENDING and self.after_ending is JobState.HELD and not late:
            self.violations.append("S2: released while the old start was still ending")
        if self.state is JobState.HELD:
            self._begin(ours=True)

    def launcher_restart(self, token: str, expected: int, *, late: bool = False) -> CallOutcome:
        """What the launcher does: end and start, once per token and only from the generation that was seen.

        `late` is a call that takes effect when it is no longer in doubt: the restart may have been withdrawn by then.
        """
        if self.given_away:
            self._touch_another("restarted", late=False)
        if token in self.tokens:
            return CallOutcome.ACCEPTED
        if self.over or self.generation != expected or self.state is JobState.ENDING:
            return CallOutcome.UNCLEAR
        self.tokens[token] = self.generation + 1
        failure = "late" if late else "stall" if self.state is JobState.RUNNING else "crash"
        self.starts.append(Start(self.generation, True, self.started, failure, self.high_water))
        self._end(JobState.RUNNING, failure)
        return CallOutcome.ACCEPTED

    def requeue_by_slurm(self) -> None:
        """A node died: the scheduler starts the job again by itself, unless it must not be requeued."""
        if self.state is JobState.RUNNING and not self._gives_new_job:
            self.starts.append(Start(self.generation, False, self.started))
            self._end(JobState.RUNNING)

    def get_its_turn(self) -> None:
        """Its turn in the queue comes."""
        if self.state is JobState.WAITING:
            self.state = JobState.RUNNING
            self._runs()

    def cancel(self) -> None:
        """Its user ends it for good; one whose job a call has just ended, or may have, has nothing to end."""
        called = self.stopped is not None and self.clock.elapsed - self.stopped <= DOUBT_SECONDS + ENDING_TICKS
        if self._gives_new_job and (called or self.state in (JobState.ENDING, JobState.CANCELLED)):
            return
        if not self.over:
            for job in self.submissions.values():
                job.state = JobState.CANCELLED
            self.over = True
            self.state = JobState.CANCELLED
            self.run_state = "cancelled"

    def complete(self) -> None:
        """The training finishes."""
        if self.state is JobState.RUNNING:
            self.over = True
            self.state = JobState.COMPLETED
            self.run_state = "succeeded"

    def crash(self) -> None:
        """Fail the training, and write that to its record."""
        if self.state is JobState.RUNNING:
            self.state = JobState.FAILED
            self.run_state = "failed"

    @property
    def _gives_new_job(self) -> bool:
        return self.shape is not None and self.shape.gives_new_job

    def write_error(self) -> None:
        """The training writes that it has failed, and goes on."""
        if self.state is JobState.RUNNING:
            self.run_state, self.steps = "failed", True

    @property
    def stalls(self) -> bool:
        """Whether it has made no step since its start, or none any more."""
        return self.hangs and not self.steps and self.step <= self.high_water

    def hang(self) -> None:
        """The training runs, and makes no step any more."""
        self.hangs, self.steps = True, False

    def _end(self, then: JobState, by: str = "") -> None:
        self.ended_by = by
        self.generation += 1
        self.state = JobState.ENDING
        self.ending = ENDING_TICKS
        self.after_ending = then

    def _begin(self, *, ours: bool) -> None:
        if self.over:
            self.violations.append("S4: a job that was over was started")
        start = Start(self.generation - 1, ours, self.started, self.ended_by, self.high_water)
        if self.ran or start not in self.starts:  # else it waited in the queue, and was held and released there
            self.starts.append(start)
        self.ran = False
        self._enter_first_state()

    def _enter_first_state(self) -> None:
        """Put a job that was started in its first state: queued, dead at once, or running."""
        if self.queues_after_start:
            self.state = JobState.WAITING
        elif self.dies_unheard:
            self.state = JobState.FAILED
        else:
            self.state = JobState.RUNNING
            self._runs()

    def _runs(self) -> None:
        self.ran = True
        self.started = self.clock.elapsed
        self.attempt += 1
        self.attempt_key = f"sim:{self.job_id}:{self.generation}"
        self.run_state = "running"
        self.hangs, self.steps = not self.progress_after_start, False
        self.step = self.high_water + 1 if self.progress_after_start else self.high_water - 5
        self.high_water = max(self.high_water, self.step)
        if self.fails_after_start:
            self.crash()
