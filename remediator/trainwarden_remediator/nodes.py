"""Which nodes of a run have evidence of a defect of their own: by the alerts that name both the run and the node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient, AlertmanagerError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incident import clean

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


@dataclass(frozen=True)
class SuspectNodes:
    """Nodes of a run with the evidence against each; `known`: how many nodes its cluster has, None if unknown."""

    suspects: Mapping[str, str] = field(default_factory=dict)
    known: int | None = None


class NodeSource(Protocol):
    """Reads what is known about the nodes of a run."""

    def of_run(self, run_id: str) -> SuspectNodes | Unknown:
        """Return the suspect nodes of a run; Unknown where the source does not answer."""


class NoNodes:
    """No node is ever suspect."""

    def of_run(self, _run_id: str) -> SuspectNodes | Unknown:
        """Return none."""
        return SuspectNodes()


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
                xid = alert.labels.get("xid")
                suspects.setdefault(node, []).append(clean(f"{name} XID {xid}" if xid else name, 64))
        if not suspects:
            return SuspectNodes()
        try:
            counts = self._prometheus.query("sum by (cluster) (max by (cluster, state) (slurm_nodes))")
            known = int(sum(each.value for each in counts if self._is_ours(each.labels)))
        except PrometheusError as error:
            return Unknown(str(error))
        first = sorted(suspects)[:_MAX_SUSPECTS]
        return SuspectNodes({node: ", ".join(sorted(set(suspects[node]))) for node in first}, known or None)

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
