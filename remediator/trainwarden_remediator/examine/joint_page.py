"""One page about several runs that wait for the same, as for a scheduler that gives no answer: not one for each."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence

from trainwarden_remediator.incidents.alert_rows import Pending
from trainwarden_remediator.incidents.incident import WAITING_RUNS, Action, Incident, State, clean
from trainwarden_remediator.observe.world import Clock
from trainwarden_remediator.store.store import Store

_FIGURE = re.compile(r"\d+(\.\d+)?")
_MAX_NAMES = 20


def without_figures(reason: str) -> str:
    """Return a reason in which a step or another reading, which changes from round to round, makes no difference."""
    return _FIGURE.sub("#", reason)


def kind_of(reason: str) -> str:
    """Return what a page is for; what follows is how that shows by one alert, at one time."""
    return without_figures(clean(reason).partition(": ")[0])


class JointPages:
    """Pages about the runs whose alerts wait for the same kind of reason.

    `may_page` returns whether an alert that waits is to be paged about, and has not been.
    """

    def __init__(self, store: Store, clock: Clock, may_page: Callable[[Pending], bool]) -> None:
        self._store = store
        self._clock = clock
        self._may_page = may_page

    def page(self, pending: Pending, waits_for: str, for_how_long: str) -> Sequence[Pending]:
        """Page about the run of an alert and all others that wait like it; return their alerts, none if it is alone."""
        of_cluster = [each for each in self._store.pending() if each.alert.cluster == pending.alert.cluster]
        alike = [each for each in of_cluster if kind_of(each.waits_for or "") == kind_of(waits_for)]
        found = [each for each in alike if self._may_page(each)]
        runs = sorted({run_id for each in found if (run_id := each.alert.run_id) is not None})
        if len(runs) < 2:
            return ()
        others = [each for each in runs if each != pending.alert.run_id]
        names = ", ".join(others[:_MAX_NAMES])
        names += f" and {len(others) - _MAX_NAMES} more" if len(others) > _MAX_NAMES else ""
        page = self._incident(
            pending,
            f"nothing could be done for {for_how_long} about {len(runs)} runs: {clean(waits_for)} "
            f"({pending.alert.run_id}); likewise {names}",
        )
        self._store.add(page)
        for each in found:
            self._store.join(each, page, answered=False)
        return found

    def _incident(self, pending: Pending, reason: str) -> Incident:
        return Incident(
            id=uuid.uuid4().hex, run_id="", attempt=None, attempt_key=None, job_id=None, scheduler=None,
            alert=WAITING_RUNS, failure_mode="unknown", error_type=None, state=State.ESCALATED, action=Action.ESCALATE,
            reason=reason, policy="", budget_used=None, budget_limit=None, step_before=None, created=pending.received,
            updated=self._clock.now(), paging=True, cluster=pending.alert.cluster,
        )  # fmt: skip
