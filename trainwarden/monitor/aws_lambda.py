"""The monitor as a function of AWS Lambda: one look each time that a schedule calls it.

Its environment is that of `trainwarden monitor`: MONITORING_BUCKET or TRAINWARDEN_S3_URL, MONITORING_REGION,
STALE_MINUTES, SLACK_WEBHOOK_URL, SNS_TOPIC_ARN; RUN_ID for one run instead of all. What was alerted about is kept in
the object `.trainwarden-monitor.json` beside the runs.
"""

from __future__ import annotations

import os
import time
from typing import Any

from trainwarden.clients.s3_location import records_location
from trainwarden.monitor.alerts import AlertManager
from trainwarden.monitor.command import round_document
from trainwarden.monitor.history import AlertHistory
from trainwarden.monitor.watch import Monitor
from trainwarden.runs.arguments import stale_seconds_of
from trainwarden.runs.places import RecordPrefix


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ARG001  # the name and the signature of Lambda's
    """Look once, and return what was found as JSON.

    Raises:
        RuntimeError: nothing could be read, or an alert was not sent; Lambda counts it, and the next call tries again.
    """
    environ = dict(os.environ)
    location = records_location(None, environ)
    if location is None:
        raise RuntimeError("expected MONITORING_BUCKET or TRAINWARDEN_S3_URL in the function's environment")
    alerts = AlertManager(environ.get("SLACK_WEBHOOK_URL"), environ.get("SNS_TOPIC_ARN"))
    history = AlertHistory(place=location)
    if problem := history.load():
        print(problem)
    run_id = environ.get("RUN_ID")
    with RecordPrefix(location) as place:
        monitor = Monitor(
            place,
            history,
            alerts,
            run_ids=(run_id,) if run_id else (),
            stale_seconds=stale_seconds_of(environ),
        )
        found = monitor.look(time.time())
    if found.problems:
        raise RuntimeError("; ".join(found.problems))
    return round_document(found)
