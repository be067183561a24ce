"""What Prometheus and Alertmanager show of the clusters of a simulation: what is, or for a while what was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tests.unit.remediator.simulated_cluster import Cluster, FakeClock
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.observe.evidence import Evidence, ReportedRun
from trainwarden_remediator.observe.world import Firing

# When a run that is at work is reported to have halted.
HALTED = 1_799_980_000.0


class ReportedRuns:
    """An AlertSource, and a RunSource.

    Args:
        clock: of the simulation.
        clusters: one for each run.
    """

    def __init__(self, clock: FakeClock, clusters: Sequence[Cluster]) -> None:
        self.clock = clock
        self.clusters = clusters
        self.asked: str | None = None
        self.prometheus_down = False
        self.alertmanager_down = False
        self.silenced = False
        self.silenced_runs: set[str] = set()
        self._old_alerts: list[Alert] = []
        self._old_runs: dict[str, Evidence] = {}
        self._old_until = 0.0
        self.cluster_name = ""
        # Runs that fail in another cluster, under the same names; their alerts reach this remediator, too.
        self.foreign: set[str] = set()
        # Runs whose tensor cores work, whatever their records say.
        self.at_work: set[str] = set()
        self.alive: float | None = None
        self.stall_budget: float | None = None
        self.checkpoint_step: float | None = None
        self.figures: dict[str, float] = {}
        self._firing_since: dict[tuple[str, str, int], float] = {}

    def alerts_now(self) -> list[Alert]:
        """What Prometheus' rules would fire: a failed run, or one that runs without passing its high-water mark."""
        return [alert for cluster in self.clusters for alert in self._alerts_of(cluster)]

    def alerts_of_others(self) -> list[Alert]:
        """Alerts of another cluster about runs, jobs and attempts of the same names."""
        labels = {"alertname": "TrainRunFailed", "failure_mode": "crash", "remediate": "true", "scheduler": "sim"}
        of_runs = [(each, {"run_id": each.run_id, "job_id": each.job_id}) for each in self.clusters]
        return [
            Alert({**labels, **names, "attempt": str(each.attempt), "cluster": "another"}, 1_800_000_000.0)
            for each, names in of_runs
            if each.run_id in self.foreign
        ]

    def see_what_was(self, seconds: float, *, runs: bool = True) -> None:
        """Let Prometheus show for a while what is now: it scrapes and evaluates its rules only every now and then.

        Without `runs` alerts alone are old, as rules are evaluated after a scrape.
        """
        if not self._alerts_are_old:
            self._old_alerts = self.alerts_now()
            if runs:
                self._old_runs = {each.run_id: self.run(each.run_id) for each in self.clusters}
            self._old_until = self.clock.elapsed + seconds

    @property
    def _alerts_are_old(self) -> bool:
        if self.clock.elapsed >= self._old_until:
            self._old_runs.clear()
        return self.clock.elapsed < self._old_until

    @property
    def is_behind(self) -> bool:
        """Whether Prometheus shows runs as they were."""
        return self._alerts_are_old and bool(self._old_runs)

    def new_alerts(self) -> None:
        """Let what fires next be news: its alert had ended, or Prometheus was started again."""
        self._firing_since.clear()

    def catch_up(self) -> None:
        """Let Prometheus show what is."""
        self._old_until = 0.0

    def _alerts_of(self, cluster: Cluster) -> list[Alert]:
        if cluster.run_state == "failed":
            name, mode = "TrainRunFailed", "crash"
        elif cluster.run_state == "running" and cluster.stalls:
            name, mode = "TrainRunStalled", "stall"
        else:
            return []
        # By the record, which a start that has not begun does not change.
        _, job_id, _ = cluster.attempt_key.split(":")
        since = self._firing_since.setdefault((cluster.run_id, name, cluster.attempt), self.clock.now())
        labels = {
            "alertname": name,
            "run_id": cluster.run_id,
            "job_id": job_id,
            "attempt": str(cluster.attempt),
            "scheduler": "sim",
            "failure_mode": mode,
            "remediate": "true",
        }
        return [Alert(labels, since).in_cluster(self.cluster_name)]

    def firing(self) -> Firing:
        """The AlertSource."""
        if self.alertmanager_down:
            return Unknown("Alertmanager is down")
        if self.silenced:
            return []
        shown = self._old_alerts if self._alerts_are_old else self.alerts_now()
        found = [each for each in shown if each.run_id not in self.silenced_runs]
        return [*found, *self.alerts_of_others()]

    def run(self, run_id: str) -> Evidence:
        """One run as Prometheus shows it."""
        if self.prometheus_down:
            return Unknown("Prometheus is down")
        if self.is_behind:
            return self._old_runs[run_id]
        [cluster] = [each for each in self.clusters if each.run_id == run_id]
        now = (cluster.attempt_key, cluster.run_state, cluster.step, cluster.high_water)
        found = ReportedRun(
            run_id,
            cluster.attempt,
            *now,
            policy=self.asked,
            alive=self.alive,
            stall_budget=self.stall_budget,
            checkpoint_step=self.checkpoint_step,
            cluster=self.cluster_name,
            figures=dict(self.figures),
        )
        if run_id not in self.at_work:
            return found
        vitals = {"run:gpu_units_active:avg": 0.9}
        return replace(found, vitals=vitals, started=HALTED - 9000, stepped=HALTED, failed=HALTED)

    def runs(self, run_ids: Collection[str]) -> dict[str, Evidence]:
        """The RunSource."""
        return {run_id: self.run(run_id) for run_id in run_ids}
