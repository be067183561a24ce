"""Follow one job until it ends, and find out whether it stalls."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainwarden.clients.ray import UNDER_WAY, RayError
from trainwarden.clients.ray_jobs import KEEP_SECONDS, PackageKeeper
from trainwarden.ray.head import open_head
from trainwarden.ray.jobs import STALLED, STOPPED, TIMEOUT, UNKNOWN, MonitorResult, find_job, read_log, step_in
from trainwarden.ray.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden.ray.head import RayHead

# How long a job may load and compile before its first step, if the threshold is not longer.
STARTUP_SECONDS = 1800.0
# Answers of Ray that it has no such job, one after the other, until that is believed.
_ABSENT = 3


class JobProgress:
    """What a job's status and step were last, and since when the step has not advanced.

    A reading that fails changes nothing: that the cluster does not answer is no sign that the job stalls. Each reading
    lets Ray keep the packages of the job, which may have to start again.

    Attributes:
        status: as Ray names it, in capitals; UNKNOWN if it was never read.
        step: the highest so far; None before the first.
        steps_per_second: from the step before it to this one, as they were seen; None before the second.
        reached: when `step` was first seen, or the job was first seen running; monotonic seconds. None before.
        read: when the log was last read, monotonic seconds.
        absent: how many answers in a row had no such job.
    """

    def __init__(self, head: RayHead, job_id: str) -> None:
        self.head = head
        self.job_id = job_id
        self.status = UNKNOWN
        self.step: int | None = None
        self.steps_per_second: float | None = None
        self.reached: float | None = None
        self.read = 0.0
        self.absent = 0
        self._packages = PackageKeeper(head.jobs)

    def update(self) -> None:
        """Read status and step."""
        try:
            found = find_job(self.head, self.job_id)
            if found is not None and found.job.state != "succeeded":
                self._packages.keep(found.submission.packages())
        except RayError as error:
            log.warning("job %s: Ray gives no answer: %s", self.job_id, error)
            return
        job = None if found is None else found.job
        self.absent = self.absent + 1 if job is None else 0
        self.status = (job.state.upper() or UNKNOWN) if job is not None else UNKNOWN
        if job is None or job.state == "pending":
            return
        text = read_log(self.head, self.job_id)
        if text is None:
            return
        step = step_in(text)
        now = self.read = time.monotonic()
        if self.reached is None or (step is not None and (self.step is None or step > self.step)):
            if self.reached is not None and self.step is not None and step is not None:
                self.steps_per_second = (step - self.step) / max(now - self.reached, 1e-9)
            self.reached = now
            self.step = step if step is not None else self.step

    def is_stalled(self, threshold: float) -> bool:
        """Return whether it runs and no step was made for `threshold` seconds, or none at all in its time to start."""
        if self.status != "RUNNING" or self.reached is None:
            return False
        allowed = threshold if self.step is not None else max(threshold, STARTUP_SECONDS)
        return self.read - self.reached > allowed


# Of jobs that were asked about before: a second call need not wait as long again.
_known: dict[tuple[str, str | None, str], JobProgress] = {}
_MAX_KNOWN = 256
_lock = threading.Lock()


def detect_stall(
    head_pod: str,
    job_id: str,
    stagnation_threshold: float = 300,
    sample_duration: float | None = None,
    namespace: str | None = None,
) -> bool:
    """Return whether a running job makes no step for `stagnation_threshold` seconds.

    A log does not say when a step was made, so the job is watched: until its step advances (False), or for as long as
    the threshold (True). What an earlier call in this process has seen counts. A cluster that does not answer, a job
    that waits and one that has ended are no stall.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        job_id: submission id.
        stagnation_threshold: seconds; at least half an hour before the first step.
        sample_duration: watch for so many seconds at most, and return False where that is not enough to tell.
        namespace: of the pod; kubectl's own if None.
    """
    key = head_pod, namespace, job_id
    with _lock:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        progress = _known.setdefault(key, JobProgress(open_head(head_pod, namespace), job_id))
    end = time.monotonic() + (float("inf") if sample_duration is None else sample_duration)
    progress.update()
    first = progress.step
    # Without a first step the time to start is for `monitor_job` to wait for.
    patience = time.monotonic() + 1.2 * stagnation_threshold + 1
    while progress.status == "RUNNING" and not progress.is_stalled(stagnation_threshold):
        now = time.monotonic()
        if now >= min(end, patience) or progress.step != first:
            break
        time.sleep(max(0.05, min(5.0, stagnation_threshold / 10, min(end, patience) - now)))
        progress.update()
    return progress.is_stalled(stagnation_threshold)


def monitor_job(
    head_pod: str,
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    stagnation_threshold: float | None = None,
    on_status_change: Callable[[str, str | None], object] | None = None,
    on_stall: Callable[[], object] | None = None,
    namespace: str | None = None,
) -> MonitorResult:
    """Follow a job until it has ended, or for `timeout` seconds.

    Args:
        head_pod: name of the head pod, or `http://…` of the dashboard.
        job_id: submission id, or Ray's own id.
        check_interval: seconds between two readings; 240 at most, within which Ray still has the job's packages.
        timeout: seconds; None for no limit.
        stagnation_threshold: seconds without a step after which it returns STALLED; None for never.
        on_status_change: called with the new status and the one before, None at first.
        on_stall: called before it returns STALLED.
        namespace: of the pod; kubectl's own if None.
    """
    progress = JobProgress(open_head(head_pod, namespace), job_id)
    begun, before = time.monotonic(), None

    def result(status: str) -> MonitorResult:
        return {
            "status": status, "duration": time.monotonic() - begun, "final_step": progress.step, "job_id": job_id,
        }  # fmt: skip

    while True:
        step = progress.step
        progress.update()
        status = progress.status
        if progress.step != step:
            speed = progress.steps_per_second
            log.info("job %s: step %s%s", job_id, progress.step, "" if speed is None else f", {speed:.3g} steps/s")
        if status != before:
            log.info("job %s: %s -> %s", job_id, before, status)
            if on_status_change is not None:
                on_status_change(status, before)
            before = status
        if status in {"SUCCEEDED", "FAILED", STOPPED}:
            return result(status)
        if progress.absent >= _ABSENT:
            log.error("job %s: Ray has no such job", job_id)
            return result(UNKNOWN)
        if stagnation_threshold is not None and progress.is_stalled(stagnation_threshold):
            log.warning("job %s: no step for %g s", job_id, stagnation_threshold)
            if on_stall is not None:
                on_stall()
            return result(STALLED)
        left = float("inf") if timeout is None else begun + timeout - time.monotonic()
        if left <= 0:
            log.warning("job %s: not ended within %g s", job_id, timeout)
            return result(TIMEOUT)
        time.sleep(min(check_interval, left, KEEP_SECONDS))


def start_background_monitor(
    head_pod: str,
    job_id: str,
    check_interval: float = 30,
    callback: Callable[[MonitorResult], object] | None = None,
    namespace: str | None = None,
) -> threading.Thread:
    """Follow a job in a thread, which is started and returned; `callback` gets the result of `monitor_job`."""

    def follow() -> None:
        result = monitor_job(head_pod, job_id, check_interval, namespace=namespace)
        if callback is not None:
            callback(result)

    thread = threading.Thread(target=follow, name=f"monitor-{job_id}", daemon=True)
    thread.start()
    return thread


def stop_job(head: RayHead, job_id: str, seconds: float) -> bool:
    """End a job and wait until nothing of it lives; False if that is not known within `seconds`."""
    deadline = time.monotonic() + seconds
    asked = False
    while True:
        try:
            found = find_job(head, job_id)
            job = None if found is None else found.job
            if job is not None and job.state in UNDER_WAY:
                if not asked:
                    log.info("job %s: %s", job_id, head.jobs.stop(job_id).detail)
                    asked = True
            elif job is not None and head.jobs.living_actors(job) == 0:
                return True
        except RayError as error:
            log.warning("job %s: Ray gives no answer: %s", job_id, error)
        if time.monotonic() >= deadline:
            return False
        time.sleep(1.0)
