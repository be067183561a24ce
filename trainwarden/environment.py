"""The description of a process's job from environment variables and local files; never from the network.

Only the variables named here are read. None of them holds a secret.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TEXT = 200

_MAX_POLICY = 64
_POLICY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_refused: set[str] = set()

_DMI = "sys/devices/virtual/dmi/id"
_CLOUD_INIT = "var/lib/cloud/data/instance-id"
_HEX = frozenset("0123456789abcdef")
_NAMESPACE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"

_SLURM = {
    "SLURM_JOB_ID": "slurm_job_id",
    "SLURM_JOB_NAME": "slurm_job_name",
    "SLURM_JOB_USER": "slurm_job_user",
    "SLURM_JOB_ACCOUNT": "slurm_job_account",
    "SLURM_JOB_PARTITION": "slurm_job_partition",
    "SLURM_JOB_QOS": "slurm_job_qos",
    "SLURM_JOB_NODELIST": "slurm_job_nodelist",
    "SLURM_JOB_NUM_NODES": "slurm_job_num_nodes",
    "SLURM_JOB_START_TIME": "slurm_job_start_time",
    "SLURM_JOB_END_TIME": "slurm_job_end_time",
    "SLURM_ARRAY_JOB_ID": "slurm_array_job_id",
    "SLURM_ARRAY_TASK_ID": "slurm_array_task_id",
    "SLURM_RESTART_COUNT": "slurm_restart_count",
    "SLURM_CLUSTER_NAME": "slurm_cluster_name",
    "SLURM_STEP_ID": "slurm_step_id",
    "SLURMD_NODENAME": "slurm_node",
}
_RAY = {"RAY_CLUSTER_NAME": "ray_cluster_name"}
_TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "torchrun_run_id",
    "TORCHELASTIC_RESTART_COUNT": "torchrun_restart_count",
    "TORCHELASTIC_MAX_RESTARTS": "torchrun_max_restarts",
}
_NETWORK = {
    "NCCL_NET": "nccl_net",
    "NCCL_NET_PLUGIN": "nccl_net_plugin",
    "NCCL_IB_DISABLE": "nccl_ib_disable",
    "FI_PROVIDER": "fi_provider",
}
_KUBERNETES = {
    "NODE_NAME": "kubernetes_node",
    "JOB_COMPLETION_INDEX": "kubernetes_job_completion_index",
}
_MODAL = {
    "MODAL_TASK_ID": "modal_task_id",
    "MODAL_ENVIRONMENT": "modal_environment",
    "MODAL_CLOUD_PROVIDER": "modal_cloud_provider",
    "MODAL_REGION": "modal_region",
    "MODAL_IMAGE_ID": "modal_image_id",
}


def read_environment(environ: Mapping[str, str] = os.environ, root: str = "/") -> dict[str, str]:
    """Return what is known about the job as `{name: text}`, texts of 1 to 200 characters.

    Args:
        environ: environment variables.
        root: of the file system.
    """
    known = _named(environ, _SLURM if "SLURM_JOB_ID" in environ else {})
    known |= _named(environ, _RAY)
    known |= {"ray_submission_id": ray_submission_id(environ) or ""}
    known |= _named(environ, _TORCHRUN if "TORCHELASTIC_RUN_ID" in environ else {})
    known |= _named(environ, _NETWORK)
    if in_kubernetes(environ):
        known |= _named(environ, _KUBERNETES)
        known["kubernetes_pod"] = pod(environ) or ""
        known["kubernetes_job"] = indexed_job(environ) or ""
        known["kubernetes_namespace"] = environ.get("POD_NAMESPACE") or _line(root, _NAMESPACE)
    known |= _named(environ, _MODAL if "MODAL_TASK_ID" in environ else {})
    instance = ec2_instance_id(root)
    if instance:
        known |= {"ec2_instance_id": instance, "ec2_instance_type": ec2_instance_type(root) or ""}
    return {name: _short(text) for name, text in known.items() if text}


def read_run_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of the run for the services, where set: `signals`, `log_path`, `policy`.

    `signals` names a signal pack, `log_path` is the template of a path, `policy` names a restart policy.
    """
    wishes = {
        "signals": _pack(environ.get("TRAINWARDEN_SIGNALS", "")),
        "log_path": environ.get("TRAINWARDEN_LOG_PATH"),
        "policy": _policy(environ.get("TRAINWARDEN_POLICY", "")),
    }
    return {name: text for name, text in wishes.items() if text}


def _pack(text: str) -> str:
    """Return the name of a signal pack; of a file its whole path, for services run in other folders."""
    return os.path.abspath(text) if "/" in text or text.endswith((".yaml", ".yml")) else text  # noqa: PTH100  # quick


def ec2_instance_id(root: str = "/", dmi: str = _DMI) -> str | None:
    """Return the id of the EC2 instance; None elsewhere, and on older instances that do not publish it locally.

    `dmi` is the folder of what the firmware states, below `root` unless it is absolute.
    """
    if not _is_ec2(root, dmi):
        return None
    tag = _line(root, dmi, "board_asset_tag")
    return tag if tag.startswith("i-") else None


def ec2_instance_type(root: str = "/", dmi: str = _DMI) -> str | None:
    """Return the type of the EC2 instance; None elsewhere. `dmi` as for `ec2_instance_id`."""
    return (_line(root, dmi, "product_name") or None) if _is_ec2(root, dmi) else None


def instance_id(environ: Mapping[str, str] = os.environ, root: str = "/", dmi: str = _DMI) -> str | None:
    """Return the cloud's id of this machine, from a variable or what cloud-init and the firmware left; never asked for.

    None where none of them has one, as on most machines outside of clouds. `dmi` as for `ec2_instance_id`.
    """
    for name in ("TRAINWARDEN_INSTANCE_ID", "EC2_INSTANCE_ID", "INSTANCE_ID"):
        given = environ.get(name, "").strip()
        # Other tools use the last name as well.
        if given and (name.startswith("TRAINWARDEN_") or _is_instance_id(given)):
            return _short(given)
    left = _line(root, _CLOUD_INIT)
    return ec2_instance_id(root, dmi) or (left if _is_instance_id(left) else None)


def _is_ec2(root: str, dmi: str) -> bool:
    return "Amazon" in _line(root, dmi, "sys_vendor")


def _is_instance_id(text: str) -> bool:
    """Return whether a text is the id of an instance in a cloud; cloud-init also writes names such as `nocloud`."""
    letters = text.replace("-", "").lower()
    is_hex = bool(letters) and _HEX.issuperset(letters.removeprefix("i"))
    is_ec2 = text.startswith("i-") and is_hex and 8 <= len(letters) - 1 <= 32
    is_number = text.isascii() and text.isdigit() and 15 <= len(text) <= 20
    is_uuid = is_hex and len(letters) == 32 and text.count("-") == 4
    return is_ec2 or is_number or is_uuid


def in_kubernetes(environ: Mapping[str, str]) -> bool:
    """Whether the process runs in a pod."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def pod(environ: Mapping[str, str]) -> str | None:
    """Return the pod's name; its host name where the manifest does not set `POD_NAME`."""
    return environ.get("POD_NAME") or environ.get("HOSTNAME") or None


def indexed_job(environ: Mapping[str, str]) -> str | None:
    """Return the name of the Indexed Job of this pod, from its host name; None elsewhere."""
    index, host = environ.get("JOB_COMPLETION_INDEX", ""), environ.get("HOSTNAME", "")
    job, dash, last = host.rpartition("-")
    return job if in_kubernetes(environ) and dash and index and last == index else None


def ray_submission_id(environ: Mapping[str, str]) -> str | None:
    """Return the id under which the job was submitted to Ray: from a driver's variables, or from a worker's runtime."""
    if given := environ.get("RAY_JOB_SUBMISSION_ID"):
        return given
    metadata = _ray_job_metadata(environ)
    found = metadata.get("job_submission_id") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) and found else None


def ray_worker_job(environ: Mapping[str, str]) -> str | None:
    """Return a name for the job of a Ray worker without submission: its number in the cluster and its namespace."""
    context = _ray_context(environ)
    try:
        # The variables of a worker that was started before its job name no job.
        return f"{context.get_job_id()}-{context.namespace}" if context else None
    except Exception:  # noqa: BLE001  # a library of the user may raise anything
        return None


def _ray_job_metadata(environ: Mapping[str, str]) -> Any:
    if document := environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR"):
        import json  # noqa: PLC0415  # only a driver of Ray needs it

        try:
            # Read the metadata alone: the document also holds the job's own variables.
            return json.loads(document).get("metadata")
        except (ValueError, AttributeError, RecursionError):
            return None
    context = _ray_context(environ)
    try:
        return dict(context.worker.core_worker.get_job_config().metadata) if context else None
    except Exception:  # noqa: BLE001  # as above
        return None


def _ray_context(environ: Mapping[str, str]) -> Any:
    """Return the runtime context of a Ray worker, if Ray is imported already."""
    ray = sys.modules.get("ray") if "RAY_RAYLET_PID" in environ else None
    try:
        return ray.get_runtime_context() if ray else None
    except Exception:  # noqa: BLE001  # as above
        return None


def _policy(name: str) -> str:
    """Return the name of a restart policy; empty if it is invalid, with one warning for the process."""
    if not name or (len(name) <= _MAX_POLICY and _POLICY_LETTERS.issuperset(name)):
        return name
    if name not in _refused:
        import logging  # noqa: PLC0415  # only an invalid name needs it

        _refused.add(name)
        logging.getLogger("trainwarden").warning(
            "TRAINWARDEN_POLICY: %.80r: expected a name of 1 to %d of a-z, 0-9, _ and -; it is not recorded",
            name,
            _MAX_POLICY,
        )
    return ""


def _named(environ: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: environ.get(variable, "") for variable, name in names.items()}


def _line(*path: str) -> str:
    try:
        with open(os.path.join(*path), "rb") as file:  # noqa: PTH118, PTH123  # pathlib is slow to import
            return file.readline(4 * MAX_TEXT).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _short(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= MAX_TEXT else printable[: MAX_TEXT - 1] + "…"
