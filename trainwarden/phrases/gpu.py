"""What is printed by what GPUs, their drivers and the memory beside them."""

from trainwarden.phrases.phrase import Phrases

GPU: Phrases = (
    ("ray_host_oom", (
        "due to the node running low on memory",
        "killed due to memory pressure (oom)",
        "object store is full",
    )),
    ("shm_exhausted", (
        "insufficient shared memory",
        "out of shared memory",
        "unable to open shared memory object",
        "unable to allocate shared memory",
        ("shared memory", "bus error.{0,80}shared memory"),
        ("/dev/shm",  # noqa: S108  # a text to be found
         ("(no space left|failed to extend|error while (creating|attaching to) shared memory).{0,80}/dev/shm")),
    )),
    ("cuda_oom", (
        ("out of memory", r"\b(cuda|hip|npu|xpu|mps backend|gpu|cuda error:|hip error:) out of memory"),
        ("out of memory", r"\bcuda failure[ \d]{0,8}'out of memory'"),
        ("out of memory", "resource_exhausted.{0,20}out of memory"),
        "cuda_error_out_of_memory",
        "cudaerrormemoryallocation",
        "hiperroroutofmemory",
        "cublas_status_alloc_failed",
        "cudnn_status_alloc_failed",
        "cumemalloc failed: out of memory",
    )),
    ("gpu_oom_leftover", (
        "failed to cuda calloc",
        "failed to cuda host alloc",
    )),
    ("host_oom", (
        "cannot allocate memory",
        "can't allocate memory",
        "std::bad_alloc",
        ("unable to allocate", r"unable to allocate [\d.]+ ?[kmgtp]i?b"),
        "failed to allocate memory from",
        ("oom", r"\bdetected \d+ oom[-_]kill event|\boom[-_]kill:|\boom killed\b|\boomkilled\b|\boom_reaper: reaped"),
        "out of memory: killed process",
        "exceeded job memory limit",
        ("memory limit", "exceeded (step |job )?memory limit"),
        ("dataloader worker", "dataloader worker.{0,40}killed by signal: killed"),
        ("out of memory", r"srun: error: .{0,80}task \d.{0,20}out of memory"),
    )),
    ("gpu_ecc", (
        "uncorrectable ecc error",
        "double bit ecc error",
        ("xid", r"\bxid \([^)]{1,60}\): (48|63|64|94|95)\b"),
    )),
    ("gpu_lost", (
        "fallen off the bus",
        "gpu is lost",
        ("xid", r"\bxid \([^)]{1,60}\): 79\b"),
    )),
    ("nvlink", (
        ("nvlink", "uncorrectable nvlink error|nvlink.{0,40}(fatal|uncorrectable) error"),
        ("xid", r"\bxid \([^)]{1,60}\): (74|14[4-9]|150)\b"),
    )),
    ("gsp", (
        ("xid", r"\bxid \([^)]{1,60}\): (62|119|120)\b"),
    )),
    ("amdgpu_reset", (
        "vram is lost due to gpu reset",
        ("amdgpu", r"\bamdgpu\b.{0,60}\bgpu reset begin"),
    )),
    ("rocm_fault", (
        "memory access fault by gpu",
        "hsa_status_error_memory_aperture_violation",
        "hsa_status_error_memory_fault",
    )),
    ("cuda_illegal_access", (
        "illegal memory access",
        "cuda_error_illegal_address",
        "misaligned address",
        ("xid", r"\bxid \([^)]{1,60}\): (13|31)\b"),
    )),
    ("device_assert", (
        "device-side assert",
    )),
    ("compile_toolchain", (
        "no kernel image is available for execution",
        "hip error: invalid device function",
        "error building extension",
        "cuda_home environment variable is not set",
        "unable to jit load the",
        "ninja is required to load c++ extensions",
        ("torch was compiled with", "installed cuda version .{0,40}does not match the version torch was compiled with"),
        ("out of resource", "out of resources?: shared memory, required"),
        ("triton", r"\btriton.{0,40}(compilationerror|ptxas)|\bptxas (fatal|error)"),
        ("raised:", r"\bbackend='\w{1,20}' raised:"),
        ("not supported on", r"(data type|fp8\w{0,8}) is not supported on (cuda )?arch"),
        "failed to find c compiler",
    )),
    ("config_error", (
        "cuda error: invalid device ordinal",
        "hip error: invalid device ordinal",
    )),
    ("cuda_launch_failure", (
        "unspecified launch failure",
        "the launch timed out and was terminated",
        "hiperrorlaunchfailure",
        "cuda_error_launch_failed",
    )),
    ("driver_setup", (
        "driver/library version mismatch",
        "cuda driver version is insufficient",
        "found no nvidia driver",
        "nvidia driver on your system is too old",
        "no cuda-capable device",
        ("gpus are available", r"\bno (cuda|hip) gpus are available"),
        "unexpected error from cudagetdevicecount",
        "due to an incorrectly set up environment",
        "all cuda-capable devices are busy or unavailable",
        ("not compiled with cuda", "torch (was )?not compiled with cuda"),
        ("libcuda.so", r"libcuda\.so(\.1)?: cannot open shared object"),
        "nvidia-smi has failed",
        "error 802: system not yet initialized",
        "error 803: system has unsupported display driver",
    )),
)  # fmt: skip
