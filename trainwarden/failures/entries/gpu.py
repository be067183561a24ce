"""What runs out, breaks or is computed wrongly on the GPUs, and in the memory of their host."""

from trainwarden.failures.failure import Failure

_STOP, _AGAIN = False, True

MEMORY: tuple[Failure, ...] = (
    Failure(
        "cuda_oom", "oom", "memory", "cuda", "configuration",
        "critical", "stop", _STOP,
        "The GPU's memory is exhausted. Lower the batch size per device or the sequence length, accumulate gradients "
        "instead, turn on activation checkpointing, or shard the model and optimizer further.",
    ),
    Failure(
        "gpu_oom_leftover", "oom", "memory", "cuda", "unknown",
        "critical", "restart", _AGAIN,
        "The GPU was full before the training had allocated much, most often by a process of an earlier job. Find it "
        "with `nvidia-smi` or `fuser -v /dev/nvidia*`, end it, and start again once the memory is free.",
    ),
    Failure(
        "host_oom", "host_oom", "memory", "memory", "configuration",
        "critical", "stop", _STOP,
        "The host's memory is exhausted. Lower the batch size, the sequence length or the number of data-loading "
        "workers, load the data set by memory map, or ask the scheduler for more memory.",
    ),
    Failure(
        "ray_host_oom", "host_oom", "memory", "memory", "configuration",
        "critical", "stop", _STOP,
        "Ray ended workers because their node ran low on memory. Give each task more (`memory=`, `num_cpus=`), run "
        "fewer at once, or lower the object store's share; RAY_memory_usage_threshold sets where Ray begins to kill.",
    ),
    Failure(
        "shm_exhausted", "host_oom", "memory", "memory", "configuration",
        "critical", "stop", _STOP,
        "Shared memory (/dev/shm) is exhausted. Give the container a larger one (`--shm-size`, a `medium: Memory` "
        "volume) or use fewer data-loading workers.",
    ),
)  # fmt: skip

GPU: tuple[Failure, ...] = (
    Failure(
        "cuda_illegal_access", "cuda_error", "training", "cuda", "unknown",
        "critical", "check_node", _AGAIN,
        "A kernel touched memory it must not. If it is always the same GPU suspect the GPU, otherwise the kernel; "
        "CUDA_LAUNCH_BLOCKING=1 shows which.",
    ),
    Failure(
        "device_assert", "cuda_error", "training", "cuda", "user",
        "critical", "stop", _STOP,
        "A check inside a GPU kernel failed, most often a token or label index out of range. Look at the batch and the"
        " vocabulary size; CUDA_LAUNCH_BLOCKING=1 shows the line.",
    ),
    Failure(
        "cuda_launch_failure", "cuda_error", "training", "cuda", "hardware",
        "critical", "check_node", _AGAIN,
        "A GPU kernel could not be run to its end. If it repeats on one node, test that node's GPUs and driver.",
    ),
    Failure(
        "cuda_error", "cuda_error", "training", "cuda", "unknown",
        "critical", "restart", _AGAIN,
        "The GPU runtime or one of its libraries reported an error. If it repeats on one node, test that node's GPUs "
        "and driver; if it repeats at the same line everywhere, look at the shapes and types of that call.",
    ),
    Failure(
        "rocm_fault", "cuda_error", "training", "gpu", "user",
        "critical", "check_node", _AGAIN,
        "A kernel on an AMD GPU touched memory it must not. If it is always the same GPU suspect the GPU, otherwise "
        "the kernel; AMD_SERIALIZE_KERNEL=3 and AMD_LOG_LEVEL=3 show which.",
    ),
    Failure(
        "gpu_ecc", "gpu_hardware", "training", "gpu", "hardware",
        "critical", "exclude_node", _AGAIN,
        "The GPU found memory errors that it cannot correct. Keep the node out, and reset or replace the GPU.",
    ),
    Failure(
        "gpu_lost", "gpu_hardware", "training", "gpu", "hardware",
        "critical", "exclude_node", _AGAIN,
        "A GPU no longer answers. Keep the node out and reboot it; if it comes back, have it replaced.",
    ),
    Failure(
        "nvlink", "gpu_hardware", "network", "gpu", "hardware",
        "critical", "check_node", _AGAIN,
        "A link between GPUs reported errors. Look at `nvidia-smi nvlink -e` and the fabric manager's log on that "
        "node; keep it out if the counters rise again.",
    ),
    Failure(
        "amdgpu_reset", "gpu_hardware", "training", "gpu", "hardware",
        "critical", "check_node", _AGAIN,
        "The kernel reset an AMD GPU, which loses what was in its memory. Look at `dmesg` for what hung before it; "
        "keep the node out if it happens again.",
    ),
    Failure(
        "sdc_suspect", "gpu_hardware", "training", "gpu", "hardware",
        "fatal", "check_node", _STOP,
        "Repeating a step gave another result: some GPU computes wrongly. Test all nodes of the job before it goes on.",
    ),
    Failure(
        "gsp", "driver", "training", "driver", "hardware",
        "critical", "exclude_node", _AGAIN,
        "The firmware on the GPU (GSP) stopped answering the driver. Keep the node out, reset the GPU or reboot; if "
        "many nodes show it, update driver and firmware.",
    ),
    Failure(
        "driver_setup", "driver", "training", "driver", "configuration",
        "critical", "exclude_node", _AGAIN,
        "The GPU driver, a kernel module or the fabric manager is absent or does not match its libraries. Compare "
        "`nvidia-smi` (`rocm-smi`) with the image on that node, and see that the job was given a GPU.",
    ),
)  # fmt: skip
