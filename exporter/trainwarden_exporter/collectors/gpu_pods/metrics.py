"""The metrics of this collector."""

from trainwarden_exporter.core.metric import gauge

GPU_POD_INFO = gauge(
    "gpu_pod_info",
    "gpu uuid mig_uuid namespace pod container",
    "1",
    "A container of a pod has this GPU or instance of it. Of an instance alone, `gpu` and `uuid` are on gpu_mig_info.",
    "`List` of the kubelet's socket pod-resources",
    "gpu_pod_info * on (instance, gpu, uuid) group_left () gpu_power_watts",
)
TRAINWARDEN_GPU_PODS_UNMATCHED = gauge(
    "trainwarden_gpu_pods_unmatched",
    "",
    "devices",
    "GPUs of pods in the kubelet's last answer that are none of this node's GPUs as the exporter sees them.",
    "the exporter",
    "trainwarden_gpu_pods_unmatched > 0",
)
TRAINWARDEN_GPU_PODS_DROPPED = gauge(
    "trainwarden_gpu_pods_dropped",
    "",
    "series",
    "Series of `gpu_pod_info` that were left out, because there may be no more than 1,024.",
    "the exporter",
    "trainwarden_gpu_pods_dropped > 0",
)
