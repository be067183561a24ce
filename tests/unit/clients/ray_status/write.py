"""Write what `ray status` prints of one and the same cluster, by the formatters of the Ray that is installed.

usage, in an environment of its own for each version: python write.py [FOLDER]

It writes `MINOR-v1.txt` and `MINOR-v2.txt`, of both autoscalers. The files were made so; they are not edited.
"""

import datetime as dt
import sys
from pathlib import Path

import ray
from ray.autoscaler._private.autoscaler import AutoscalerSummary
from ray.autoscaler._private.load_metrics import LoadMetricsSummary
from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
from ray.autoscaler._private.util import format_info_string
from ray.autoscaler.v2 import schema
from ray.autoscaler.v2.utils import ClusterStatusFormatter

_GIB = 2**30
_GROUP = (({"GPU": 5.0}, 2), ({"CPU": 1.0}, 1))
_GROUPS = 2
_REQUESTED: "tuple[dict[str, float], int]" = ({"GPU": 64}, 2)
_TIME = dt.datetime(2026, 11, 22, 16, 10, 35, 121521)  # noqa: DTZ001  # as Ray gives it
_GROUPED = "_group_89f8e1a9c4d0a7a3f1c8aa0e3a2b01000000"
_TASKS = ({"CPU": 1.0, "GPU": 16.0}, 1), ({"GPU": 1.0}, 1), ({f"GPU{_GROUPED}": 1.0}, 2)


def first() -> str:
    """Return the text of the first autoscaler."""
    usage = {
        "CPU": (2.0, 4.0),
        f"CPU{_GROUPED}": (0.0, 2.0),
        "GPU": (4.0, 4.0),
        f"GPU{_GROUPED}": (0.0, 2.0),
        "accelerator_type:H100": (0.0, 1.0),
        "memory": (0.0, 22.0 * _GIB),
        "object_store_memory": (0.0, 8.0 * _GIB),
    }
    load = LoadMetricsSummary(
        usage=usage,
        resource_demand=list(_TASKS),
        pg_demand=[({"bundles": list(_GROUP), "strategy": "PACK"}, _GROUPS)],
        request_demand=[_REQUESTED],
        node_types=[],
    )
    summary = AutoscalerSummary(
        active_nodes={"node_6698c3b9": 1},
        idle_nodes={},
        pending_nodes=[],
        pending_launches={},
        failed_nodes=[],
        node_availability_summary=NodeAvailabilitySummary({}),
    )
    return str(format_info_string(load, summary, time=_TIME))


def second() -> str:
    """Return the text of the second autoscaler."""

    def counted(bundles: "tuple[tuple[dict[str, float], int], ...]") -> "list[schema.ResourceRequestByCount]":
        return [schema.ResourceRequestByCount(bundle, count) for bundle, count in bundles]

    usage = [
        schema.ResourceUsage("CPU", 4.0, 2.0),
        schema.ResourceUsage(f"CPU{_GROUPED}", 2.0, 0.0),
        schema.ResourceUsage("GPU", 4.0, 4.0),
        schema.ResourceUsage(f"GPU{_GROUPED}", 2.0, 0.0),
        schema.ResourceUsage("accelerator_type:H100", 1.0, 0.0),
        schema.ResourceUsage("memory", 22.0 * _GIB, 0.0),
        schema.ResourceUsage("object_store_memory", 8.0 * _GIB, 0.0),
    ]
    node = schema.NodeInfo(
        instance_type_name="p5.48xlarge",
        ray_node_type_name="worker",
        instance_id="i-1",
        ip_address="10.0.0.1",
        node_status="RUNNING",
        node_id="6698c3b9",
        resource_usage=schema.NodeUsage(usage, 0),
    )
    group = schema.PlacementGroupResourceDemand(counted(_GROUP), "abc:PACK|PENDING")
    demands = schema.ResourceDemandSummary(
        placement_group_demand=[group] * _GROUPS,
        ray_task_actor_demand=[schema.RayTaskActorDemand(counted((each,))) for each in _TASKS],
        cluster_constraint_demand=[schema.ClusterConstraintDemand(counted((_REQUESTED,)))],
    )
    status = schema.ClusterStatus(
        active_nodes=[node],
        cluster_resource_usage=usage,
        resource_demands=demands,
        stats=schema.Stats(gcs_request_time_s=0.1, request_ts_s=1795363835),
    )
    return str(ClusterStatusFormatter.format(status))


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    minor = ".".join(ray.__version__.split(".")[:2])
    (folder / f"{minor}-v1.txt").write_text(first() + "\n", encoding="utf-8")
    (folder / f"{minor}-v2.txt").write_text(second() + "\n", encoding="utf-8")
