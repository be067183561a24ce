"""NVIDIA's GPUs by the metric names and labels of dcgm-exporter, made from the samples of the collectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.gpu import metrics as gpu
from trainwarden_exporter.collectors.gpu.nvml import activity_metrics as activity
from trainwarden_exporter.collectors.gpu.nvml import xid_metrics as xids
from trainwarden_exporter.collectors.gpu_jobs.metrics import SLURM_GPU_JOB_INFO
from trainwarden_exporter.collectors.gpu_pods.metrics import GPU_POD_INFO
from trainwarden_exporter.core.exposition import are_same_objects
from trainwarden_exporter.core.metric import Families, gauge, untyped
from trainwarden_exporter.finetuning.encoded_samples import EncodedSamples
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trainwarden_exporter.collectors.gpu.roster import NodeRoster
    from trainwarden_exporter.core.exposition import Encoded
    from trainwarden_exporter.core.metric import Family, Metric
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.sampling.task import CollectorRunner

INTERVAL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
MIB = 2**20
_OF_POD = ("namespace", "pod", "container")
_LABELS = "gpu UUID pci_bus_id device modelName Hostname DCGM_FI_DRIVER_VERSION namespace pod container hpc_job"
# The collector of the GPUs, and those that know whose they are.
_COLLECTORS = ("nvidia", "gpu_pods", "gpu_jobs")


class DcgmField(NamedTuple):
    """One field of DCGM: the metric with its name, and what it is made of.

    Attributes:
        source: the exporter's own metric.
        factor: to DCGM's unit.
        labels: the samples of `source` that count.
    """

    metric: Metric
    source: Metric
    factor: float = 1.0
    labels: Mapping[str, str] = {}


def _field(
    name: str, unit: str, text: str, source: Metric, factor: float = 1.0, labels: Mapping[str, str] | None = None
) -> DcgmField:
    """Define a field. Those that only rise are untyped: a counter's name would have to end otherwise."""
    kind = untyped if source.kind == "counter" else gauge
    selector = ",".join(f'{key}="{value}"' for key, value in (labels or {}).items())
    example = f"avg by (Hostname) ({name})" if kind is gauge else f"rate({name}[5m])"
    origin = f"{source.name}{{{selector}}}" if selector else source.name
    return DcgmField(kind(name, _LABELS, unit, text, origin, example), source, factor, labels or {})


FIELDS = (
    _field("DCGM_FI_DEV_GPU_UTIL", "percent", "Utilisation.", gpu.GPU_UTILIZATION_RATIO, 100),
    _field("DCGM_FI_DEV_MEM_COPY_UTIL", "percent", "Utilisation of the memory.", gpu.GPU_MEMORY_BUSY_RATIO, 100),
    _field("DCGM_FI_DEV_SM_CLOCK", "megahertz", "Clock of the SMs.", gpu.GPU_CLOCK_HERTZ, 1e-6, {"domain": "sm"}),
    _field("DCGM_FI_DEV_MEM_CLOCK", "megahertz", "Clock of memory.", gpu.GPU_CLOCK_HERTZ, 1e-6, {"domain": "memory"}),
    _field(
        "DCGM_FI_DEV_GPU_TEMP", "degrees Celsius", "Temperature.", gpu.GPU_TEMPERATURE_CELSIUS, 1, {"sensor": "gpu"}
    ),
    _field(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "degrees Celsius",
        "Temperature of the memory.",
        gpu.GPU_TEMPERATURE_CELSIUS,
        1,
        {"sensor": "memory"},
    ),
    _field("DCGM_FI_DEV_POWER_USAGE", "watts", "Power.", gpu.GPU_POWER_WATTS),
    _field("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "watts", "Limit of power.", gpu.GPU_POWER_LIMIT_WATTS),
    _field(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "millijoules",
        "Energy since the driver was loaded.",
        gpu.GPU_ENERGY_JOULES_TOTAL,
        1000,
    ),
    _field("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "", "Transfers repeated on PCI.", gpu.GPU_PCIE_REPLAYS_TOTAL),
    _field("DCGM_FI_DEV_FB_USED", "MiB", "Memory in use.", gpu.GPU_MEMORY_USED_BYTES, 1 / MIB),
    _field("DCGM_FI_DEV_FB_RESERVED", "MiB", "Memory of the driver.", gpu.GPU_MEMORY_RESERVED_BYTES, 1 / MIB),
    _field(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "", "Corrected errors.", gpu.GPU_ECC_ERRORS_TOTAL, 1, {"kind": "corrected"}
    ),
    _field(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "", "Uncorrected errors.", gpu.GPU_ECC_ERRORS_TOTAL, 1, {"kind": "uncorrected"}
    ),
    _field(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "",
        "Corrected errors since the GPU was made.",
        gpu.GPU_ECC_LIFETIME_ERRORS_TOTAL,
        1,
        {"kind": "corrected"},
    ),
    _field(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "",
        "Uncorrected errors since the GPU was made.",
        gpu.GPU_ECC_LIFETIME_ERRORS_TOTAL,
        1,
        {"kind": "uncorrected"},
    ),
    _field(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "rows",
        "Rows replaced after corrected errors.",
        gpu.GPU_REMAPPED_ROWS,
        1,
        {"cause": "corrected"},
    ),
    _field(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "rows",
        "Rows replaced after uncorrected errors.",
        gpu.GPU_REMAPPED_ROWS,
        1,
        {"cause": "uncorrected"},
    ),
    _field("DCGM_FI_DEV_ROW_REMAP_FAILURE", "0/1", "A row could not be replaced.", gpu.GPU_ROW_REMAP_FAILURE),
    _field("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0..1", "Engine with work on it.", activity.GPU_GRAPHICS_ACTIVE_RATIO),
    _field("DCGM_FI_PROF_SM_ACTIVE", "0..1", "Multiprocessors that were busy.", activity.GPU_SM_ACTIVE_RATIO),
    _field("DCGM_FI_PROF_SM_OCCUPANCY", "0..1", "Warps that were active.", activity.GPU_SM_OCCUPANCY_RATIO),
    _field("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0..1", "Tensor cores at work.", activity.GPU_TENSOR_ACTIVE_RATIO),
    _field("DCGM_FI_PROF_DRAM_ACTIVE", "0..1", "Bandwidth of memory in use.", activity.GPU_MEMORY_BANDWIDTH_RATIO),
    *(
        _field(
            f"DCGM_FI_PROF_PIPE_{pipe.upper()}_ACTIVE",
            "0..1",
            f"Units of {pipe} at work.",
            activity.GPU_PIPE_ACTIVE_RATIO,
            1,
            {"pipe": pipe},
        )
        for pipe in ("fp64", "fp32", "fp16")
    ),
    *(
        _field(
            f"DCGM_FI_PROF_{bus}_{direction.upper()}_BYTES",
            "bytes per second",
            f"Traffic on {bus}, {direction}.",
            source,
            1,
            {"direction": direction},
        )
        for bus, source in (
            ("PCIE", activity.GPU_PCIE_BYTES_PER_SECOND),
            ("NVLINK", activity.GPU_NVLINK_BYTES_PER_SECOND),
        )
        for direction in ("tx", "rx")
    ),
)
FB_FREE = gauge(
    "DCGM_FI_DEV_FB_FREE",
    _LABELS,
    "MiB",
    "Memory that is free.",
    "gpu_memory_size_bytes - gpu_memory_used_bytes - gpu_memory_reserved_bytes",
    "min by (Hostname) (DCGM_FI_DEV_FB_FREE)",
)
XID_ERRORS = gauge(
    "DCGM_FI_DEV_XID_ERRORS",
    _LABELS,
    "",
    "Code of the last XID error, 0 before the first.",
    "gpu_xid_last_timestamp_seconds",
    "DCGM_FI_DEV_XID_ERRORS > 0",
)
METRICS = {metric.name: metric for metric in (*(field.metric for field in FIELDS), FB_FREE, XID_ERRORS)}
_SOURCES = frozenset(
    {
        GPU_POD_INFO,
        SLURM_GPU_JOB_INFO,
        gpu.GPU_INFO,
        gpu.GPU_UP,
        gpu.GPU_MEMORY_SIZE_BYTES,
        xids.GPU_XID_LAST_TIMESTAMP_SECONDS,
        *(field.source for field in FIELDS),
    }
)


class DcgmView:
    """Exports the ready samples of `runners` by other names.

    Args:
        runners: the collectors.
        host: this node's name.
        roster: NVIDIA's GPUs, for the numbers of their device files.
    """

    name = "dcgm"

    def __init__(self, runners: Sequence[CollectorRunner], host: str, roster: NodeRoster) -> None:
        self._runners = runners
        self._host = host
        self._roster = roster
        self._last: tuple[list[Encoded], list[Family]] = ([], [])

    def collect(self) -> Iterable[Family]:
        """Return the families of all GPUs that are on the page."""
        encoded = [one for runner in self._runners if runner.name in _COLLECTORS for one, _ in runner.ready()]
        known, families = self._last
        if are_same_objects(encoded, known):
            return families
        families = self._families(EncodedSamples(encoded, _SOURCES))
        self._last = (encoded, families)
        return families

    def _families(self, samples: EncodedSamples) -> list[Family]:
        families = Families()
        labels = self._labels(samples)
        for field in FIELDS:
            for index, value in _values(samples, field.source, field.labels):
                if index in labels:
                    families.add(field.metric, value * field.factor, **labels[index])
        size, used, reserved = (
            dict(_values(samples, metric))
            for metric in (gpu.GPU_MEMORY_SIZE_BYTES, gpu.GPU_MEMORY_USED_BYTES, gpu.GPU_MEMORY_RESERVED_BYTES)
        )
        last = {index: (0.0, "0") for index, up in _values(samples, gpu.GPU_UP) if up}
        for found, when in samples.of(xids.GPU_XID_LAST_TIMESTAMP_SECONDS):
            index = found.get("gpu", "")
            last[index] = max(last.get(index, (0.0, "0")), (when, found.get("xid", "0")))
        for index, own in labels.items():
            if index in used:
                families.add(FB_FREE, (size[index] - used[index] - reserved.get(index, 0)) / MIB, **own)
            if index in last:
                families.add(XID_ERRORS, float(last[index][1]), **own)
        return families.collected()

    def _labels(self, samples: EncodedSamples) -> dict[str, dict[str, str]]:
        """Return DCGM's labels of each GPU by its label here."""
        pods, jobs = _owners(samples, GPU_POD_INFO, _OF_POD), _owners(samples, SLURM_GPU_JOB_INFO, ("job_id",))
        minors = {str(each.index): each.minor for each in self._roster.gpus}
        found = {}
        for info, _ in samples.of(gpu.GPU_INFO):
            index, uuid = info.get("gpu", ""), info.get("uuid", "")
            pod, (job,) = pods.get(uuid, ("", "", "")), jobs.get(uuid, ("",))
            domain, _, place = info.get("pci_bus_id", "").partition(":")
            minor = minors.get(index)
            found[index] = {
                "gpu": index,
                "UUID": uuid,
                "pci_bus_id": f"{domain.zfill(8)}:{place}".upper(),
                "device": f"nvidia{index if minor is None else minor}",
                "modelName": info.get("model", ""),
                "Hostname": self._host,
                "DCGM_FI_DRIVER_VERSION": info.get("driver", ""),
                **dict(zip(_OF_POD, pod, strict=True)),
                "hpc_job": job,
            }
        return found


def create(runners: Sequence[CollectorRunner], node: Node, roster: NodeRoster) -> Sampler:
    """Return the sampler of the view."""
    return Sampler(single_task(DcgmView(runners, node.host, roster), INTERVAL_SECONDS, TIMEOUT_SECONDS))


def _owners(samples: EncodedSamples, metric: Metric, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the labels `names` of the one pod or job of each GPU, by its UUID; leave out GPUs that several use."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for labels, _ in samples.of(metric):
        if (uuid := labels.get("uuid", "")) and not labels.get("mig_uuid"):
            found.setdefault(uuid, set()).add(tuple(labels.get(name, "") for name in names))
    return {uuid: owners.pop() for uuid, owners in found.items() if len(owners) == 1}


def _values(
    samples: EncodedSamples, metric: Metric, wanted: Mapping[str, str] | None = None
) -> Iterator[tuple[str, float]]:
    """Yield the values of a metric by the label `gpu`, of the samples with the labels that are wanted."""
    for labels, value in samples.of(metric):
        if all(labels.get(key) == text for key, text in (wanted or {}).items()):
            yield labels.get("gpu", ""), value
