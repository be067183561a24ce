"""What GPUs, memory and collectives make tools print when a training fails, as (type, message, slug)."""

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.14 GiB of which 1 GiB is free. "
XID = "NVRM: Xid (PCI:0000:0f:00): {}, pid=2503421, name=python3, Ch 00000008"
NCCL = "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, {}, NCCL version 2.20.5\n"

GPU = [
    ("RuntimeError", "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity)", "cuda_oom"),
    (
        "RuntimeError",
        "HIP out of memory. Tried to allocate 278.00 MiB. GPU 0 has a total capacity of 63.98",
        "cuda_oom",
    ),
    ("RuntimeError", "NPU out of memory. Tried to allocate 1.66 GiB (NPU 2; 60.96 GiB total capacity)", "cuda_oom"),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuda_oom"),
    ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", "cuda_oom"),
    ("RuntimeError", NCCL.format("unhandled cuda error") + "Last error:\nCuda failure 2 'out of memory'", "cuda_oom"),
    (
        "RuntimeError",
        OOM + "Process 4021 has 70.50 GiB memory in use. Including non-PyTorch memory, this process has 7.10 GiB "
        "memory in use. Of the allocated memory 5.90 GiB is allocated by PyTorch",
        "gpu_oom_leftover",
    ),
    (
        # In a container the one process that is listed is this one, by a number that it does not know itself by.
        "RuntimeError",
        OOM + "Process 88421 has 77.92 GiB memory in use. Of the allocated memory 75.10 GiB is allocated by PyTorch",
        "cuda_oom",
    ),
    (
        "RuntimeError",
        OOM + "Including non-PyTorch memory, this process has 76.10 GiB memory in use. Process 4021 has 1.10 GiB "
        "memory in use.",
        "cuda_oom",
    ),
    ("RuntimeError", "CUDA driver error: out of memory", "cuda_oom"),
    ("RuntimeError", "CUDA driver error: invalid device context", "cuda_error"),
    ("RuntimeError", "Triton Error [CUDA]: out of memory", "cuda_oom"),
    ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered", "cuda_illegal_access"),
    ("RuntimeError", "Triton Error [HIP]:  Code: 1, Message: invalid argument", "cuda_error"),
    ("RuntimeError", "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable", "gpu_ecc"),
    ("RuntimeError", "Socket Timeout", "store_timeout"),
    (
        "RuntimeError",
        "[3] retrieving ncclUniqueId from [0]: store->get('0') got error: Socket Timeout",
        "store_timeout",
    ),
    ("RuntimeError", "[3] Failed to CUDA calloc async 4 bytes", "gpu_oom_leftover"),
    ("RuntimeError", "CUDA error: an illegal memory access was encountered\nCUDA kernel", "cuda_illegal_access"),
    ("RuntimeError", "CUDA error: device-side assert triggered\nCUDA kernel errors might be", "device_assert"),
    ("AcceleratorError", "CUDA error: unspecified launch failure", "cuda_launch_failure"),
    ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered", "gpu_ecc"),
    ("RuntimeError", "CUDA error: uncorrectable NVLink error detected during the execution", "nvlink"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "cuda_error"),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`", "cuda_error"),
    ("RuntimeError", "HIP error: operation not permitted when stream is capturing", "cuda_error"),
    ("RuntimeError", "GET was unable to find an engine to execute this computation", "cuda_error"),
    ("RuntimeError", "CUDA error: no kernel image is available for execution on the device", "compile_toolchain"),
    ("RuntimeError", "HIP error: invalid device function", "compile_toolchain"),
    ("RuntimeError", "CUDA error: invalid device ordinal\nGPU device may be out of range", "config_error"),
    ("RuntimeError", "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "driver_setup"),
    ("AssertionError", "Torch not compiled with CUDA enabled", "config_error"),
    ("RuntimeError", "No HIP GPUs are available", "driver_setup"),
    (
        "RuntimeError",
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "driver_setup",
    ),
    ("ImportError", "libcuda.so.1: cannot open shared object file: No such file or directory", "driver_setup"),
    ("RuntimeError", "Failed to initialize NVML: Driver/library version mismatch", "driver_setup"),
    (
        "RuntimeError",
        (
            "Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f. Reason: Page not present or "
            "supervisor privilege."
        ),
        "rocm_fault",
    ),
    ("RuntimeError", "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: the agent attempted to access", "rocm_fault"),
    ("str", "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", "amdgpu_reset"),
    ("str", XID.format(79) + "GPU has fallen off the bus.", "gpu_lost"),
    ("str", XID.format(48), "gpu_ecc"),
    ("str", XID.format(94), "gpu_ecc"),
    ("str", XID.format(119) + " Timeout after 6s of waiting for RPC response from GPU0 GSP!", "gsp"),
    ("str", XID.format(74), "nvlink"),
    ("str", XID.format(13) + " Graphics SM Warp Exception", "cuda_illegal_access"),
    ("RuntimeError", "Error building extension 'fused_adam': [1/3] c++ -MMD", "compile_toolchain"),
    (
        "OSError",
        "CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "compile_toolchain",
    ),
    ("AssertionError", "fp8e4nv data type is not supported on CUDA arch < 89", "compile_toolchain"),
    ("RuntimeError", "out of resource: shared memory, Required: 180224, Hardware limit: 101376.", "compile_toolchain"),
]

MEMORY = [
    ("RuntimeError", "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you", "host_oom"),
    ("RuntimeError", "DataLoader worker (pid 3484358) is killed by signal: Killed. ", "host_oom"),
    ("RuntimeError", "std::bad_alloc", "host_oom"),
    ("str", "slurmstepd: error: Detected 1 oom_kill event in StepId=5402229.batch. Some of the step tasks", "host_oom"),
    (
        "RuntimeError",
        (
            "DataLoader worker (pid 61) is killed by signal: Bus error. It is possible that dataloader's workers are "
            "out of shared memory. Please try to raise your shared memory limit."
        ),
        "shm_exhausted",
    ),
    ("RuntimeError", "unable to open shared memory object </torch_1_2> in read-write mode", "shm_exhausted"),
    ("RuntimeError", "Error while creating shared memory segment /dev/shm/nccl-ab12 (size 9637888)", "shm_exhausted"),
    ("RuntimeError", "Task was killed due to the node running low on memory.", "ray_host_oom"),
    ("RuntimeError", "2 worker(s) were killed due to the node running low on memory", "ray_host_oom"),
]

DISTRIBUTED = [
    (
        "DistBackendError",
        (
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8898, OpType=ALLREDUCE, "
            "Timeout(ms)=600000) ran for 600236 milliseconds before timing out."
        ),
        "nccl_watchdog_timeout",
    ),
    ("RuntimeError", "[PG 0 Rank 25] Heartbeat monitor timed out! Process will be terminated", "nccl_watchdog_stuck"),
    ("DistBackendError", NCCL.format("unhandled system error (run with NCCL_DEBUG=INFO)"), "nccl_system"),
    ("DistBackendError", NCCL.format("internal error") + "ncclInternalError: Internal check failed.", "nccl_system"),
    (
        "DistBackendError",
        NCCL.format("remote process exited or there was a network error")
        + "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\nNET/IB : Got completion from peer 10.0.0.2<50000> with status=12 opcode=0 vendor err 129",
        "nccl_net_ib",
    ),
    (
        "DistBackendError",
        NCCL.format("unhandled system error") + "Last error:\nsocketProgress: Connection closed by remote peer n2<5>",
        "nccl_remote_closed",
    ),
    ("DistBackendError", NCCL.format("invalid usage") + "ncclInvalidUsage: Duplicate GPU detected", "nccl_usage"),
    ("RuntimeError", "Mismatched NCCL version detected : NCCL version 2.18.3 and 2.20.5", "nccl_usage"),
    ("RuntimeError", "NET/IB : mlx5_2:1 async fatal event: local catastrophic error", "nccl_async_fatal"),
    ("RuntimeError", "transport/net_ib.cc:94 NCCL WARN Call to ibv_modify_qp failed with error 22", "nccl_net_ib"),
    ("RuntimeError", "NET/OFI Request completed with error. RC: 5. prov_errno: 9", "efa_fabric"),
    (
        "RuntimeError",
        (
            "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint("
            "OpType=ALLGATHER), but Rank 1 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE)"
        ),
        "deadlock",
    ),
    (
        "DistNetworkError",
        "The client socket has timed out after 600000ms while trying to connect to (n, 2)",
        "rendezvous",
    ),
    (
        "DistNetworkError",
        (
            "The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, "
            "name: EADDRINUSE, message: address already in use"
        ),
        "rendezvous",
    ),
    (
        "RuntimeError",
        "The IPv6 network addresses of (node1, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "rendezvous",
    ),
    ("RuntimeError", "Gloo connectFullMesh failed with [../third_party/gloo/pair.cc] no error", "peer_timeout"),
    ("DistStoreError", "Timed out after 601 seconds waiting for clients. 3/4 clients joined.", "store_timeout"),
    ("RuntimeError", "Timed out initializing process group in store based barrier on rank: 0", "store_timeout"),
    ("DistBackendError", "wait timeout after 300000ms, keys: /default_pg/0//cpu//0", "store_timeout"),
    ("RuntimeError", "Rank 3 failed to pass monitoredBarrier in 30000 ms", "store_timeout"),
    (
        "RuntimeError",
        (
            "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for "
            "recv operation to complete"
        ),
        "store_timeout",
    ),
    ("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:22676", "peer_reset"),
    ("DistNetworkError", "failed to recv, got 0 bytes", "peer_reset"),
]
