"""Why a job of Ray is left alone, or would not come back as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from trainwarden.clients.kubernetes import KubernetesError, RayJobResource
from trainwarden.clients.ray import LABELS_VERSION, RayJob, is_older
from trainwarden.clients.ray_jobs import RayJobs, RayReserved, SubmittedJob
from trainwarden_remediator.drivers.ray_submission import environment_objection
from trainwarden_remediator.drivers.ray_templates import RayTemplates, equal, shown
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.incidents.incident import clean

# What Ray's dashboard shows a browser instead of a value.
_MASKED = "<redacted>"
_RESOURCES_SECONDS = 60.0


class RayObjections:
    """Looks for objections, for all snapshots of a driver: what it keeps never changes, or may be some minutes old.

    Args:
        jobs: of the cluster.
        templates: what Ray does not return of them.
        resources: as `RayDriver` has it.
    """

    def __init__(
        self, jobs: RayJobs, templates: RayTemplates, resources: Callable[[], Mapping[str, RayJobResource]] | None
    ) -> None:
        self._api = jobs
        self._templates = templates
        self._list_resources = resources
        self._lock = threading.Lock()
        self._reserved: dict[str, RayReserved] = {}
        self._resources: tuple[float, Mapping[str, RayJobResource] | Unknown] | None = None

    def of(self, found: SubmittedJob, version: str) -> list[str] | Unknown:
        """Return all that speaks against a restart, of one that may be needed; unknown where something may.

        `version` is that of Ray.
        """
        if found.job.state not in ("running", "failed"):
            return []
        of_kubernetes = self._of_kubernetes(found.job)
        if isinstance(of_kubernetes, Unknown):
            return of_kubernetes
        has_failed = found.job.state == "failed"
        objections = (
            of_kubernetes,
            self._of_train(found.job),
            environment_objection(found) if has_failed else None,
            self._not_as_it_was(found, version),
            self._missing(found) if has_failed else None,
        )
        return [each for each in objections if each]

    def _of_kubernetes(self, job: RayJob) -> str | Unknown | None:
        """Return why a job that KubeRay has submitted is left: it would submit it again as well, or end the cluster."""
        if self._list_resources is None:
            return None
        with self._lock:
            now = time.monotonic()
            if self._resources is None or now - self._resources[0] > _RESOURCES_SECONDS:
                try:
                    self._resources = (now, self._list_resources())
                except KubernetesError as error:
                    self._resources = (now, Unknown(clean(str(error), 300)))
            listed = self._resources[1]
        if isinstance(listed, Unknown):
            return Unknown(f"whether a RayJob restarts job {job.submission_id} itself is unknown: {listed.reason}")
        owner = listed.get(job.submission_id)
        if owner is None:
            return None
        return (
            f"job {job.submission_id} is of RayJob {clean(owner.name, 80)}, which restarts it itself "
            f"(backoffLimit {owner.backoff_limit}) and takes its end for that of the RayJob: submit it to a RayCluster"
        )

    def _of_train(self, job: RayJob) -> str | None:
        """Return why a job that has failed is left: Ray Train has restarted its workers as often as it was to."""
        if job.state != "failed":
            return None
        train = self._api.train(job)
        if train is None:
            return None
        try:
            template = self._templates.of(job.run_id)
        except ConfigError as error:
            return clean(str(error), 400)
        retries = train.max_failures
        if retries is None and template is not None:
            retries = template.ray_train_max_failures
        if retries is None:
            return (
                f"Ray Train runs job {job.submission_id}, how often it restarts its workers is unknown: set "
                "RAY_TRAIN_ENABLE_STATE_TRACKING=1 in its environment, or note it (trainwarden-remediator ray register "
                f"{job.submission_id} --train-max-failures N)"
            )
        if retries == 0:
            return None
        often = "without end" if retries < 0 else f"{retries} times"
        return (
            f"Ray Train restarts the workers of job {job.submission_id} itself, {often} (max_failures), and it has "
            "failed: restarts upon restarts would multiply; set max_failures=0"
        )

    def to_submission(self, found: SubmittedJob, version: str) -> str | None:
        """Return why the job would not come back as it was; lets Ray keep its packages."""
        return self._not_as_it_was(found, version) or self._missing(found)

    def _not_as_it_was(self, found: SubmittedJob, version: str) -> str | None:
        job, variables = found.job, found.submission.runtime_env.get("env_vars")
        if isinstance(variables, dict) and _MASKED in variables.values():
            return f"job {job.submission_id}: the dashboard masks its environment: the job would come back without"
        if job.submission_id not in self._reserved:
            reserved = self._api.reserved(job.submission_id)
            if reserved is not None:
                self._reserved[job.submission_id] = reserved
        reserved = self._reserved.get(job.submission_id)
        try:
            template = self._templates.of(job.run_id)
        except ConfigError as error:
            return clean(str(error), 400)
        if template is not None and template.reserved.label_selector and is_older(version, LABELS_VERSION):
            return (
                f"{self._templates.path(job.run_id)} has an entrypoint_label_selector, which Ray "
                f"{clean(version, 40)} does not take: remove it"
            )
        again = f"register it (trainwarden-remediator ray register {job.submission_id})"
        without = "which Ray's job API does not return: it would come back without"
        if template is None and reserved is None:
            return f"whether the entrypoint of job {job.submission_id} reserves GPUs is not known, {without}: {again}"
        if template is None:
            amounts = shown(reserved)
            return (
                f"the entrypoint of job {job.submission_id} reserves {amounts}, {without}: {again}" if amounts else None
            )
        if reserved is not None and not equal(template.reserved, reserved):
            return (
                f"the entrypoint of job {job.submission_id} reserves {shown(reserved) or 'nothing'}, and by "
                f"{self._templates.path(job.run_id)} {shown(template.reserved) or 'nothing'}: {again}"
            )
        return None

    def _missing(self, found: SubmittedJob) -> str | None:
        """Return which package is gone that has no copy; lets Ray keep the others."""
        try:
            template = self._templates.of(found.job.run_id)
        except ConfigError as error:
            return clean(str(error), 400)
        for name in found.submission.packages():
            if template is not None and template.copy_of(name) is not None:
                continue
            if not self._api.keep_package(name):
                return (
                    f"Ray has deleted the package gcs://{name} of job {found.job.submission_id} after its end, and "
                    "there is no copy: submit it again by hand, and register it with --working-dir"
                )
        return None
