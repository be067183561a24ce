"""The collectors, in the order in which they are created and stand on the page."""

from __future__ import annotations

from trainwarden_exporter.collectors.clock import SPEC as CLOCK
from trainwarden_exporter.collectors.gpu.spec import AMD_SPEC as AMD
from trainwarden_exporter.collectors.gpu.spec import NVIDIA_SPEC as NVIDIA
from trainwarden_exporter.collectors.gpu_jobs.collector import SPEC as GPU_JOBS
from trainwarden_exporter.collectors.gpu_pods.spec import SPEC as GPU_PODS
from trainwarden_exporter.collectors.kernel.collector import SPEC as KERNEL
from trainwarden_exporter.collectors.logs.spec import SPEC as LOGS
from trainwarden_exporter.collectors.process import SPEC as PROCESS
from trainwarden_exporter.collectors.ray.spec import SPEC as RAY
from trainwarden_exporter.collectors.rdma.efa import SPEC as EFA
from trainwarden_exporter.collectors.rdma.infiniband import SPEC as INFINIBAND
from trainwarden_exporter.collectors.runs.spec import SPEC as RUNS
from trainwarden_exporter.collectors.s3.spec import SPEC as S3
from trainwarden_exporter.collectors.slurm.spec import SPEC as SLURM
from trainwarden_exporter.collectors.transport.spec import SPEC as TRANSPORT

__all__ = ["AMD", "NVIDIA", "SPECS"]

SPECS = (
    S3,
    RUNS,
    LOGS,
    TRANSPORT,
    NVIDIA,
    AMD,
    GPU_JOBS,
    GPU_PODS,
    EFA,
    INFINIBAND,
    KERNEL,
    CLOCK,
    SLURM,
    RAY,
    PROCESS,
)
