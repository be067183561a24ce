"""Collector `gpu_pods`: which pod and container each GPU of this node was given to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from trainwarden.redaction import name_text
from trainwarden_exporter.collectors.gpu_pods import metrics
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.collectors.gpu_jobs.gpus import GpuSearch, NodeGpu, NodeGpus
    from trainwarden_exporter.collectors.gpu_pods.pod_resources import PodDevice, PodResources
    from trainwarden_exporter.core.metric import Family

MAX_SERIES = 1024
NAME_BYTES = 253
_RESOURCE = re.compile(r"(?P<vendor>nvidia|amd)\.com/(?P<gpu>gpu|mig-)?.*", re.DOTALL)
# Drivers of Dynamic Resource Allocation.
_CLAIM_DRIVERS = frozenset(("gpu.nvidia.com", "gpu.amd.com"))
_CLAIMED = re.compile(r"gpu-(\d{1,3})", re.ASCII)
# Of the plugin of GKE: nvidia0, nvidia0/gi1, nvidia0/vgpu2.
_MINOR = re.compile(r"nvidia(\d{1,3})(?:/[\w/]{1,32})?", re.ASCII)
# The second form, of drivers before 470, names the GPU of which the instance is a part.
_MIG = re.compile(r"MIG-(?:[0-9A-Fa-f-]{36}|(GPU-[0-9A-Fa-f-]{36})/\d{1,3}/\d{1,3})", re.ASCII)


class _Place(NamedTuple):
    gpu: NodeGpu | None
    mig_uuid: str = ""


class GpuPodsCollector:
    """Joins the GPUs with pods, by the devices that the kubelet gave to containers.

    Args:
        gpus: finds the GPUs of the node.
        kubelet: lists the devices.
    """

    name = "gpu_pods"

    def __init__(self, gpus: GpuSearch, kubelet: PodResources) -> None:
        self._gpus = gpus
        self._kubelet = kubelet

    def collect(self) -> Iterable[Family]:
        """Return which containers have each GPU; raises `KubeletError`."""
        families, gpus = Families(), self._gpus.find()
        found: set[tuple[str, ...]] = set()  # replicas of one GPU in one container are one
        unmatched = 0
        for device in self._kubelet.devices():
            resource = _RESOURCE.fullmatch(device.resource)
            claimed = device.resource in _CLAIM_DRIVERS
            if resource is not None:
                place = _place(device.device_id, resource["vendor"], gpus)
            elif claimed:
                place = _claimed_place(device, gpus)
            else:
                continue
            if place is None:
                unmatched += claimed or (resource is not None and resource["gpu"] is not None)
            else:
                found.add(_labels(place, device))
        for labels in sorted(found)[:MAX_SERIES]:
            families.add(metrics.GPU_POD_INFO, 1, **dict(zip(metrics.GPU_POD_INFO.label_names, labels, strict=True)))
        families.add(metrics.TRAINWARDEN_GPU_PODS_UNMATCHED, unmatched)
        families.add(metrics.TRAINWARDEN_GPU_PODS_DROPPED, max(0, len(found) - MAX_SERIES))
        return families.collected()


def _place(device_id: str, vendor: str, gpus: NodeGpus) -> _Place | None:
    """Return the GPU of a device id, or the instance; None where the node has none of that id."""
    if vendor == "amd":
        gpu = gpus.by_bus(device_id)
        return _Place(gpu) if gpu else None
    device_id = device_id.partition("::")[0]  # GPU-…::3 is its fourth replica: time slicing, MPS
    if mig := _MIG.fullmatch(device_id):
        return _Place(gpus.by_uuid(mig[1]) if mig[1] else None, device_id)
    minor = _MINOR.fullmatch(device_id)
    gpu = gpus.by_minor(int(minor[1])) if minor else gpus.by_uuid(device_id)
    return _Place(gpu) if gpu else None


def _claimed_place(device: PodDevice, gpus: NodeGpus) -> _Place | None:
    """Return the GPU of a device of a claim; None where its name leaves open which one that is.

    NVIDIA's driver names a GPU by the number of its device file, and an instance by its shape, which is no UUID.
    """
    number = _CLAIMED.fullmatch(device.device_id) if device.resource == "gpu.nvidia.com" else None
    gpu = gpus.by_minor(int(number[1])) if number else None
    return _Place(gpu) if gpu is not None and gpu.minor is not None else None


def _labels(place: _Place, device: PodDevice) -> tuple[str, ...]:
    gpu = (str(place.gpu.index), place.gpu.uuid) if place.gpu else ("", "")
    names = (name_text(each, NAME_BYTES) for each in (device.namespace, device.pod, device.container))
    return (*gpu, place.mig_uuid, *names)
