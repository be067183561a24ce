"""Writes docs/detection.md: `python -m tests.incidents.document`."""

from __future__ import annotations

import sys

from tests.incidents.incidents import INCIDENTS, Incident

HEAD = """\
# How soon an incident is noticed

Made by `make docs` from tests/incidents; change it there. Each incident is played, sample by sample, through all rules
of the bundle: every alert of its line must fire within the seconds given, counted from the fault, nothing may fire that
its line does not name, and no alert may restart a run that is well. `make test-nightly` plays them twice: in promtool,
which evaluates all groups every 5 s, and all at once in a real Prometheus, in real time, where each group is evaluated
at its own interval. The seconds hold in both. Scrapes are 5 s apart; where devices are scraped every 30 s, what GPUs do
is known up to 25 s later. The stall budget of the run is 30 s in its train phase and 120 s in eval and checkpoint, its
stale threshold 60 s.

Where a run is restarted by its policy, the alert that restarts it must fire within a budget: 30 s for a crash that the
record states, and the stall budget and 30 s for a hang, where three times the 99th percentile of the run's own steps is
a good stall budget. The remediator has that alert at most 1 s later (`group_wait` of its route; people: 2 s). To this
come the delay of the policy, and the time in which the scheduler ends and starts a job.

| incident | must fire, within seconds | may fire beside it | budget | the remediator has it within |
|---|---|---|---|---|
"""
_WAIT_SECONDS = 1  # of the route to the remediator


def document() -> str:
    """Return the page."""
    return HEAD + "".join(map(_row, INCIDENTS))


def _row(incident: Incident) -> str:
    within = ", ".join(f"{alert} {seconds}" for alert, seconds in incident.within.items()) or "nothing"
    also = ", ".join(sorted(incident.also - incident.within.keys()))
    budget = acted = ""
    if incident.acted_on:
        alert, seconds = incident.acted_on
        budget, acted = f"{seconds} s, met", f"{incident.within[alert] + _WAIT_SECONDS} s"
    return f"| {incident.name} | {within} | {also} | {budget} | {acted or 'nothing is restarted'} |\n"


if __name__ == "__main__":
    sys.stdout.write(document())
