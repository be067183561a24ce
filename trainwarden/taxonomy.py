"""The only list of failures: slug → error_type → category, and what each asks for.

A slug names one way to fail; its error_type is the label that alerts and policies use. `trainwarden.classify` finds the
entry for an exception or an exit status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CATEGORIES = (
    "data_loading",
    "model_creation",
    "training",
    "memory",
    "checkpoint",
    "network",
    "configuration",
    "unknown",
)
FAULTS = ("hardware", "network", "user", "configuration", "scheduler", "unknown")
SEVERITIES = ("warning", "error", "critical", "fatal")
# What is to be done next: by the remediator where it says restart, by a person where it says stop.
ACTIONS = ("stop", "restart", "check_node", "exclude_node", "roll_back", "wait")


@dataclass(frozen=True)
class Failure:
    """One way to fail. `retryable`: the same job, started again, may well succeed."""

    slug: str
    error_type: str
    category: str
    subsystem: str
    fault: str
    severity: str
    action: str
    retryable: bool
    hint: str


def _entries() -> tuple[Failure, ...]:
    stop, again = False, True
    return (
        # memory
        Failure(
            "cuda_oom", "oom", "memory", "cuda", "configuration",
            "critical", "stop", stop,
            "The GPU's memory is exhausted. Lower the batch size per device or the sequence length, accumulate "
            "gradients instead, turn on activation checkpointing, or shard the model and optimizer further.",
        ),
        Failure(
            "host_oom", "host_oom", "memory", "memory", "configuration",
            "critical", "stop", stop,
            "The host's memory is exhausted. Lower the batch size, the sequence length or the number of data-"
            "loading workers, load the data set by memory map, or ask the scheduler for more memory.",
        ),
        Failure(
            "shm_exhausted", "host_oom", "memory", "memory", "configuration",
            "critical", "stop", stop,
            "Shared memory (/dev/shm) is exhausted. Give the container a larger one or use fewer data-loading "
            "workers.",
        ),
        # GPU
        Failure(
            "cuda_illegal_access", "cuda_error", "training", "cuda", "unknown",
            "critical", "check_node", again,
            "A kernel touched memory it must not. If it is always the same GPU suspect the GPU, otherwise the "
            "kernel; CUDA_LAUNCH_BLOCKING=1 shows which.",
        ),
        Failure(
            "device_assert", "cuda_error", "training", "cuda", "user",
            "critical", "stop", stop,
            "A check inside a GPU kernel failed, most often a token or label index out of range. Look at the batch "
            "and the vocabulary size; CUDA_LAUNCH_BLOCKING=1 shows the line.",
        ),
        Failure(
            "cuda_launch_failure", "cuda_error", "training", "cuda", "hardware",
            "critical", "check_node", again,
            "A GPU kernel could not be run to its end. If it repeats on one node, test that node's GPUs and driver.",
        ),
        Failure(
            "cuda_error", "cuda_error", "training", "cuda", "unknown",
            "critical", "restart", again,
            "The GPU runtime reported an error. If it repeats on one node, test that node's GPUs and driver.",
        ),
        Failure(
            "gpu_ecc", "gpu_hardware", "training", "gpu", "hardware",
            "critical", "exclude_node", again,
            "The GPU found memory errors that it cannot correct. Keep the node out, and reset or replace the GPU.",
        ),
        Failure(
            "gpu_lost", "gpu_hardware", "training", "gpu", "hardware",
            "critical", "exclude_node", again,
            "A GPU no longer answers. Keep the node out and reboot it; if it comes back, have it replaced.",
        ),
        Failure(
            "sdc_suspect", "gpu_hardware", "training", "gpu", "hardware",
            "fatal", "check_node", stop,
            "Repeating a step gave another result: some GPU computes wrongly. Test all nodes of the job before it "
            "goes on.",
        ),
        Failure(
            "driver", "driver", "training", "driver", "configuration",
            "critical", "exclude_node", again,
            "The GPU driver is absent, or does not match its libraries. Compare `nvidia-smi` with the image on that "
            "node.",
        ),
        # distributed
        Failure(
            "nccl_timeout", "nccl_timeout", "network", "distributed", "unknown",
            "critical", "restart", again,
            "A collective did not end in time. The rank that is missing or slowest is the cause: look at its log "
            "first.",
        ),
        Failure(
            "nccl_remote_closed", "nccl", "network", "distributed", "unknown",
            "error", "restart", again,
            "Another rank went away in the middle of a collective. The cause is in the log of the rank that ended "
            "first.",
        ),
        Failure(
            "nccl_usage", "nccl", "configuration", "distributed", "user",
            "critical", "stop", stop,
            "A collective was called wrongly, or the ranks run different NCCL versions. Compare the images and the "
            "shapes.",
        ),
        Failure(
            "nccl_error", "nccl", "network", "distributed", "unknown",
            "critical", "restart", again,
            "NCCL failed. Run with NCCL_DEBUG=WARN; the line before the error names the device or the interface.",
        ),
        Failure(
            "rendezvous", "distributed_timeout", "network", "launcher", "unknown",
            "error", "restart", again,
            "The ranks did not find each other. Check MASTER_ADDR and MASTER_PORT, that the port is free, and that "
            "every node started.",
        ),
        Failure(
            "store_timeout", "distributed_timeout", "network", "distributed", "unknown",
            "error", "restart", again,
            "A rank waited too long for the others. Find the rank that did not arrive; raise the timeout if it was "
            "slow.",
        ),
        Failure(
            "peer_reset", "communication", "network", "distributed", "network",
            "error", "restart", again,
            "The connection to another rank broke. See whether that rank ended first; otherwise look at the network "
            "between the two nodes.",
        ),
        Failure(
            "peer_timeout", "communication", "network", "distributed", "network",
            "error", "restart", again,
            "Another rank did not answer in time. See whether it hangs, and look at the network between the two "
            "nodes.",
        ),
        Failure(
            "hub_network", "auth_network", "network", "network", "network",
            "error", "restart", again,
            "A download failed. Check name resolution and proxies, or fetch the files before the job starts.",
        ),
        Failure(
            "hub_auth", "auth_network", "network", "network", "configuration",
            "error", "stop", stop,
            "A server refused the credentials. Check the token and that it may read this model or data set.",
        ),
        # storage and checkpoints
        Failure(
            "storage_full", "storage", "checkpoint", "storage", "configuration",
            "critical", "stop", stop,
            "The disk or the quota is full. Free space, remove old checkpoints, or write them elsewhere.",
        ),
        Failure(
            "storage_io", "storage", "checkpoint", "storage", "hardware",
            "error", "restart", again,
            "The file system failed to read or write. Look at the mount and at the storage system before many jobs "
            "retry.",
        ),
        Failure(
            "storage_permission", "storage", "configuration", "storage", "configuration",
            "error", "stop", stop,
            "A file may not be read or written. Check its owner, its mode and whether the mount is read-only.",
        ),
        Failure(
            "storage_missing", "storage", "configuration", "storage", "configuration",
            "error", "stop", stop,
            "A file or folder is not there. Check the path, and that the node has the file system mounted.",
        ),
        Failure(
            "checkpoint_corrupt", "checkpoint", "checkpoint", "checkpoint", "unknown",
            "critical", "roll_back", again,
            "The checkpoint is damaged or was not written to its end. Resume from the one before.",
        ),
        Failure(
            "checkpoint_missing", "checkpoint", "checkpoint", "checkpoint", "configuration",
            "error", "roll_back", stop,
            "The checkpoint to resume from is not there. Check the path, or resume from the one before.",
        ),
        Failure(
            "checkpoint_mismatch", "checkpoint", "checkpoint", "checkpoint", "configuration",
            "error", "stop", stop,
            "The checkpoint does not fit this model. Compare model size, vocabulary and parallel layout with the "
            "run that saved it.",
        ),
        Failure(
            "checkpoint_save_failed", "checkpoint", "checkpoint", "checkpoint", "unknown",
            "error", "restart", again,
            "A checkpoint could not be written. Check space and quota where it is saved, then start again.",
        ),
        # data
        Failure(
            "data_corrupt", "data_loading", "data_loading", "data", "user",
            "error", "stop", stop,
            "The data set cannot be read as what it should be. Verify its files, or build them again.",
        ),
        Failure(
            "data_worker_died", "data_loading", "data_loading", "data", "unknown",
            "error", "restart", again,
            "A data-loading worker died. Look for an out-of-memory kill on that host; try fewer workers.",
        ),
        # the program
        Failure(
            "numerical_instability", "numerical_instability", "training", "model", "unknown",
            "critical", "roll_back", stop,
            "Loss or gradients became NaN or infinite. Look at the learning rate, the data batch of that step, the "
            "gradient norm before it and the loss scale; if only one rank shows it, suspect its GPU.",
        ),
        Failure(
            "rerun_to_disambiguate", "numerical_instability", "training", "model", "unknown",
            "error", "restart", again,
            "The training asked to be run again from its checkpoint, to tell a bad GPU from a bad batch.",
        ),
        Failure(
            "config_error", "configuration", "configuration", "user", "configuration",
            "error", "stop", stop,
            "The settings do not fit together, or something is not installed. Read the message; a restart changes "
            "nothing.",
        ),
        Failure(
            "model_creation", "model_creation", "model_creation", "model", "user",
            "error", "stop", stop,
            "The model could not be built. Check its name, its configuration and the library's version.",
        ),
        Failure(
            "user_exception", "exception", "training", "user", "user",
            "error", "stop", stop,
            "The training script raised an exception. The traceback shows the line.",
        ),
        Failure(
            "nonzero_exit", "exception", "unknown", "user", "unknown",
            "error", "stop", stop,
            "The training ended with an error status and left no other evidence. Read the end of its log.",
        ),
        Failure(
            "launcher_stop", "exception", "unknown", "launcher", "user",
            "critical", "stop", stop,
            "The training or its launcher asked not to be started again (exit status 93). Read the end of its log.",
        ),
        # processes and schedulers
        Failure(
            "crash_signal", "exception", "unknown", "process", "unknown",
            "critical", "restart", again,
            "The process crashed in native code. If it is one rank, note its node; if all ranks, suspect the image "
            "or an extension. PYTHONFAULTHANDLER=1 shows where.",
        ),
        Failure(
            "killed", "unknown", "unknown", "process", "unknown",
            "critical", "restart", again,
            "The process was killed from outside. Look for an out-of-memory kill in the kernel's log, and at the "
            "scheduler.",
        ),
        Failure(
            "cancelled", "cancelled", "unknown", "scheduler", "scheduler",
            "warning", "stop", stop,
            "The run was ended on request. Start it again if that was not meant.",
        ),
        Failure(
            "stall", "hang", "training", "distributed", "unknown",
            "critical", "restart", again,
            "The run is alive and does not advance. Dump the stacks of its ranks; the one outside the collective is "
            "the cause.",
        ),
        Failure(
            "heartbeat_lost", "hang", "unknown", "monitoring", "unknown",
            "critical", "restart", again,
            "Nothing was heard of the run. See whether its processes, its node and its file system still live.",
        ),
    )  # fmt: skip


FAILURES: Mapping[str, Failure] = MappingProxyType({failure.slug: failure for failure in _entries()})
ERROR_TYPES = frozenset(failure.error_type for failure in FAILURES.values())
