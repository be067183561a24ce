"""Writes docs/detection.md: `python -m tests.incidents.document`."""

from __future__ import annotations

import sys

from tests.incidents.incidents import INCIDENTS, Incident

HEAD = """\
# How soon an incident is noticed

Made by `make docs` from tests/incidents; change it there. Each incident is played, sample by sample, through all rules
of the bundle in Prometheus' own engine: every alert of its line must fire within the seconds given, counted from the
fault, nothing may fire that its line does not name, and no alert may restart a run that is well. Scrapes and
evaluations are 5 s apart; the stall budget of the run is 30 s in its train phase and 120 s in eval and checkpoint, its
stale threshold 60 s. The group of TrainRunFailed, TrainRunTimedOut, TrainRunStalled and TrainRunSucceeded is evaluated
every 5 s; the alerts of the other groups may come later by the interval of theirs, 15 s to 2 min.

To this comes what lies between an alert and an action: at most 1 s in Alertmanager (`group_wait` of the route to the
remediator; 2 s to people), the delay of the policy, and the time in which the scheduler ends and starts a job. The
budgets that these times are held against: 30 s for a crash that the record states, and the stall budget and 30 s for a
hang, where three times the 99th percentile of the run's own steps is a good budget.

| incident | must fire, within seconds | may fire beside it | restarted |
|---|---|---|---|
"""


def document() -> str:
    """Return the page."""
    return HEAD + "".join(map(_row, INCIDENTS))


def _row(incident: Incident) -> str:
    within = ", ".join(f"{alert} {seconds}" for alert, seconds in incident.within.items()) or "nothing"
    also = ", ".join(sorted(incident.also - incident.within.keys()))
    return f"| {incident.name} | {within} | {also} | {'by policy' if incident.restarts else 'no'} |\n"


if __name__ == "__main__":
    sys.stdout.write(document())
