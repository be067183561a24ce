"""`ray register`: note what Ray does not return of a job, while it can still be seen, for the job's next start."""

from __future__ import annotations

from pathlib import Path

from trainwarden.clients.ray import RayError
from trainwarden.clients.ray_jobs import RayReserved
from trainwarden_remediator.config import RemediatorSettings
from trainwarden_remediator.drivers.ray_access import ray_jobs
from trainwarden_remediator.drivers.ray_templates import RayTemplates, pack
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.incidents.incident import clean

_CANNOT_TELL = 3


def register(
    settings: RemediatorSettings,
    submission_id: str,
    *,
    gpus: float | None,
    cpus: float | None,
    working_dir: Path | None,
    excluded: tuple[str, ...] = (),
) -> int:
    """Write the template of a job's run, and print what it holds; return 3 where Ray gives no answer.

    Args:
        settings: the flags of the service.
        submission_id: of the job.
        gpus: that its entrypoint reserves, where Ray does not show it any more.
        cpus: as `gpus`.
        working_dir: the folder or the zip file that the job was submitted with, of which a copy is kept.
        excluded: patterns of paths in it that are left out.

    Raises:
        ConfigError: the job has no run, or cannot be registered with what was given.
    """
    jobs, templates = ray_jobs(settings), RayTemplates(settings.ray_template_dir)
    if templates.folder is None:
        raise ConfigError(["--ray-template-dir: missing; expected the folder of templates"])
    try:
        found = jobs.some([submission_id])[1][submission_id]
        shown = jobs.reserved(submission_id)
    except RayError as error:
        print(f"Ray's dashboard gives no answer: {clean(str(error), 300)}")
        return _CANNOT_TELL
    if found is None:
        raise ConfigError([f"{submission_id!r}: Ray has no such job"])
    if not found.job.run_id:
        raise ConfigError([f"{submission_id}: its metadata has no trainwarden_run_id: it belongs to no run"])
    if shown is None and gpus is None:
        raise ConfigError([f"{submission_id}: Ray does not show what its entrypoint reserves; expected --num-gpus N"])
    reserved = shown or RayReserved(num_gpus=gpus or 0.0, num_cpus=cpus or 0.0)
    given = (("--num-gpus", gpus, reserved.num_gpus), ("--num-cpus", cpus, reserved.num_cpus))
    if wrong := [f"{flag} {value:g}: Ray shows {real:g}" for flag, value, real in given if value not in (None, real)]:
        raise ConfigError(wrong)
    packages: dict[str, bytes] = {}
    names = found.submission.packages()
    if working_dir is not None:
        uri = str(found.submission.runtime_env.get("working_dir") or "")
        name = next((each for each in names if uri == f"gcs://{each}"), None)
        if name is None:
            raise ConfigError([f"--working-dir: job {submission_id} has no working directory that Ray keeps"])
        packages[name] = working_dir.read_bytes() if working_dir.is_file() else pack(working_dir, excluded)
    path = templates.write(found.job.run_id, reserved, packages)
    amounts = ", ".join(f"{amount:g} {clean(each, 40)}" for each, amount in sorted(reserved.amounts().items()))
    print(f"{path}: the entrypoint of run {found.job.run_id} reserves {amounts or 'nothing'}")
    for name in names:
        kept = "a copy is kept" if name in packages else "no copy: it is kept in Ray while the remediator runs"
        print(f"  package gcs://{name}: {kept}")
    return 0
