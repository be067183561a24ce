"""Which nodes of a run have evidence of a defect of their own: by the alerts that name both the run and the node."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient, AlertmanagerError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

# Alerts about hardware of one node. That a node hosts the first rank that failed, or a slow one, is no evidence.
EVIDENCE = frozenset(
    (
        "TrainGpuLost",
        "TrainGpuCountLow",
        "TrainGpuDriverFailed",
        "TrainGpuXidFatal",
        "TrainGpuEccUncorrected",
        "TrainGpuRecoveryWanted",
        "TrainGpuLinkFaulty",
        "TrainEfaDeviceMissing",
        "TrainEfaPortDown",
        "TrainNodeHardwareError",
        "TrainNodeLinkFlapping",
        "TrainSlurmNodeFailed",
    )
)
# What may be handed to a scheduler as the name of a node.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_MAX_SUSPECTS = 16
# What may become a part of a query.
_JOB = re.compile(r"[0-9]{1,20}(_[0-9]{1,20})?")
# A query is part of an address, which servers and proxies limit to some kilobytes.
_MAX_JOBS = 100
_SAME_START_SECONDS = 60.0


@dataclass(frozen=True)
class SuspectNodes:
    """Nodes of a run with the evidence against each; `known`: how many nodes its cluster has, None if unknown."""

    suspects: Mapping[str, str] = field(default_factory=dict)
    known: int | None = None


class NodeSource(Protocol):
    """Reads what is known about the nodes of a run."""

    def of_run(self, run_id: str) -> SuspectNodes | Unknown:
        """Return the suspect nodes of a run; Unknown where the source does not answer."""

    def of_jobs(self, job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        """Return the nodes that each of these jobs had last, as far as they are known."""


class NoNodes:
    """No node is ever suspect."""

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        """Return none."""
        return SuspectNodes()

    def of_jobs(self, _job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        """Return nothing."""
        return {}


class AlertedNodes:
    """Reads suspects from Alertmanager, and the number of nodes from Prometheus.

    Args:
        alertmanagers: to query. What any of them has counts, and one that is away is done without. Silenced alerts
            count as well: a person who silences one knows of the defect.
        prometheus: to query.
        cluster: alerts and series of another one are not used; of every cluster where it is empty.
    """

    def __init__(
        self, alertmanagers: Sequence[AlertmanagerClient], prometheus: PrometheusClient, cluster: str = ""
    ) -> None:
        self._alertmanagers = alertmanagers
        self._prometheus = prometheus
        self._cluster = cluster

    def of_run(self, run_id: str) -> SuspectNodes | Unknown:
        """Return the suspect nodes of a run. `run_id` must be well formed: it becomes part of a query."""
        suspects: dict[str, list[str]] = {}
        clusters: set[str] = set()
        alerts = self._alerts(run_id)
        if isinstance(alerts, Unknown):
            return alerts
        for alert in alerts:
            name, node = alert.labels.get("alertname", ""), alert.labels.get("node", "")
            if (
                self._is_ours(alert.labels)
                and name in EVIDENCE
                and _NODE.fullmatch(node)
                and alert.labels.get("run_id") == run_id
            ):
                clusters.add(alert.labels.get("cluster", ""))
                xid = alert.labels.get("xid")
                suspects.setdefault(node, []).append(clean(f"{name} XID {xid}" if xid else name, 64))
        if not suspects:
            return SuspectNodes()
        known = self._size(clusters - {""})
        if isinstance(known, Unknown):
            return known
        first = sorted(suspects)[:_MAX_SUSPECTS]
        return SuspectNodes({node: ", ".join(sorted(set(suspects[node]))) for node in first}, known)

    def _size(self, clusters: set[str]) -> int | Unknown | None:
        """Return how many nodes the cluster has that the evidence is from; None where that is unknown."""
        try:
            counts = self._prometheus.query("sum by (cluster) (max by (cluster, state) (slurm_nodes))")
        except PrometheusError as error:
            return Unknown(str(error))
        ours = {each.labels.get("cluster", ""): int(each.value) for each in counts if self._is_ours(each.labels)}
        if not self._cluster and clusters:
            ours = {name: count for name, count in ours.items() if name in clusters}
        return next(iter(ours.values())) or None if len(ours) == 1 else None

    def of_jobs(self, job_ids: Collection[str]) -> Mapping[str, Sequence[str]] | Unknown:
        """Return the nodes that each job had last, also where the scheduler shows them no more."""
        ids = sorted({job_id for job_id in job_ids if _JOB.fullmatch(job_id)})[:_MAX_JOBS]
        if not ids:
            return {}
        series = f'slurm_job_node_info{{job_id=~"{"|".join(ids)}"}}'
        seen: dict[str, dict[str, float]] = {}
        try:
            for each in self._prometheus.query(f"max_over_time(timestamp({series})[1h:30s])"):
                job_id, node = each.labels.get("job_id", ""), each.labels.get("node", "")
                if self._is_ours(each.labels) and _NODE.fullmatch(node):
                    of_job = seen.setdefault(job_id, {})
                    of_job[node] = max(each.value, of_job.get(node, 0.0))
        except PrometheusError as error:
            return Unknown(str(error))
        # A job that was requeued had others before: those are older by more than a round of collecting.
        return {
            job_id: sorted(node for node, at in nodes.items() if max(nodes.values()) - at <= _SAME_START_SECONDS)
            for job_id, nodes in seen.items()
        }

    def _alerts(self, run_id: str) -> list[AlertmanagerAlert] | Unknown:
        answers = [_alerts_of(each, run_id) for each in self._alertmanagers]
        known = [answer for answer in answers if not isinstance(answer, Unknown)]
        if not known and isinstance(answers[0], Unknown):
            return answers[0]
        return [alert for answer in known for alert in answer]

    def _is_ours(self, labels: Mapping[str, str]) -> bool:
        return not self._cluster or labels.get("cluster", "") in ("", self._cluster)


def _alerts_of(alertmanager: AlertmanagerClient, run_id: str) -> list[AlertmanagerAlert] | Unknown:
    try:
        return alertmanager.alerts(f'run_id="{run_id}"', 'node=~".+"')
    except AlertmanagerError as error:
        return Unknown(str(error))
