"""What the tools around a training print when they fail, by slug of the taxonomy."""

# Regular expressions, any case. The first match wins: the specific stand before the general.
PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cuda_oom", (
        r"(CUDA|HIP|NPU|XPU) out of memory",
        r"CUDA error: out of memory",
        r"Failed to CUDA calloc",
        r"cudaErrorMemoryAllocation",
    )),
    ("shm_exhausted", (
        r"insufficient shared memory",
        r"unable to (open|allocate) shared memory",
        r"Bus error.{0,80}shared memory",
    )),
    ("host_oom", (
        r"cannot allocate memory",
        r"unable to allocate [\d.]+ [KMGT]iB",
        r"DefaultCPUAllocator: .{0,40}memory",
        r"killed due to the node running low on memory",
    )),
    ("gpu_ecc", (
        r"uncorrectable (NVLink|ECC) error",
        r"uncorrectable ECC",
    )),
    ("gpu_lost", (
        r"fallen off the bus",
        r"GPU is lost",
    )),
    ("cuda_illegal_access", (
        r"illegal memory access",
        r"Memory access fault by GPU",
    )),
    ("device_assert", (r"device-side assert",)),
    ("cuda_launch_failure", (
        r"unspecified launch failure",
        r"hipErrorLaunchFailure",
    )),
    ("driver_setup", (
        r"driver/library version mismatch",
        r"CUDA driver version is insufficient",
        r"Found no NVIDIA driver",
        r"no CUDA-capable device",
        r"No CUDA GPUs are available",
    )),
    ("nccl_watchdog_timeout", (
        r"Watchdog caught collective operation timeout",
        r"watchdog got stuck",
        r"Heartbeat monitor timed out",
    )),
    ("nccl_remote_closed", (
        r"socketProgress: Connection closed",
        r"remote process exited or there was a network error",
    )),
    ("nccl_usage", (
        r"ncclInvalid(Usage|Argument)",
        r"Mismatched NCCL version",
        r"NCCL.{0,200}invalid usage",
    )),
    ("nccl_system", (
        r"\bncclSystemError",
        r"\bncclInternalError",
        r"\bncclUnhandledCudaError",
        r"\bncclRemoteError",
        r"[NR]CCL (error|failure)",
        r"unhandled (system|cuda) error",
    )),
    ("cuda_error", (
        r"\b(CUDA|HIP) error\b",
        r"CUBLAS_STATUS_(?!SUCCESS)",
        r"CUDNN_STATUS_(?!SUCCESS)",
    )),
    ("rendezvous", (
        r"rendezvous",
        r"EADDRINUSE",
        r"address already in use",
        r"failed to (connect|listen).{0,80}(master|TCPStore)",
    )),
    ("store_timeout", (
        r"(store|gloo|barrier|process group|init_process_group).{0,120}(timed? ?out)",
        r"wait timeout after",
    )),
    ("peer_reset", (
        r"connection (was )?(reset|closed|lost|aborted)",
        r"broken pipe",
        r"closed the connection",
        r"peer .{0,40}(closed|gone|went away)",
    )),
    ("peer_timeout", (r"(connection|socket|peer|recv|send).{0,60}timed out",)),
    ("ckpt_mismatch", (
        r"size mismatch for",
        r"Global shape mismatch",
        r"(missing|unexpected) key\(?s?\)?.{0,40}(state_dict|shard)",
        r"Saved FP8 metadata does not match",
    )),
    ("ckpt_save_failure", (
        r"PytorchStreamWriter failed",
        r"(saving|writing) (the )?checkpoint.{0,40}failed",
        r"failed to (save|write) .{0,40}checkpoint",
    )),
    ("ckpt_corrupt", (
        r"PytorchStreamReader failed",
        r"failed reading zip archive",
        r"not a zip file",
        r"Ran out of input",
        r"pickle data was truncated",
        r"MetadataIncompleteBuffer",
        r"checkpoint.{0,80}(corrupt|damaged|truncated|incomplete)",
    )),
    ("storage_quota", (
        r"no space left on device",
        r"disk quota exceeded",
    )),
    ("storage_io", (
        r"stale file handle",
        r"input/output error",
    )),
    ("data_worker_died", (r"DataLoader worker.{0,80}(exited|killed|died)",)),
    ("data_corrupt", (
        r"mmap length is greater than file size",
        r"cannot reshape array of size",
    )),
    ("numeric", (
        r"\b(loss|grad\w*|norm)\b.{0,60}\b(nan(?! iterations)|inf|infinite|infinity|non-?finite|not finite)\b",
        r"(nan|inf|non-?finite)( value)?s? (in|for|found in) .{0,40}(loss|grad)",
        r"loss scale already at minimum",
    )),
    ("hub_auth", (
        r"\b(401|403) Client Error",
        r"Unauthorized",
        r"gated repo",
    )),
    ("hub_network", (
        r"Max retries exceeded",
        r"Name or service not known",
        r"Temporary failure in name resolution",
        r"CERTIFICATE_VERIFY_FAILED",
        r"HTTP ?Error 5\d\d",
    )),
    ("model_creation", (
        r"unrecognized (model|configuration class)",
        r"does not recognize this architecture",
        r"is not a valid model identifier",
    )),
    ("config_error", (
        r"unrecognized arguments?",
        r"is not divisible by",
        r"must be divisible by",
        r"mutually exclusive",
        r"invalid configuration",
    )),
)  # fmt: skip
