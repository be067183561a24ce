"""The tables. Plain types only, so that the same schema serves SQLite and PostgreSQL.

A table or column that is added later is created in an older database when it is opened. Such a column allows NULL or
has a `server_default`, and VERSION stays as it is unless an older remediator must not use the database any more.

Statements that are carried out often are constants with named values, of the module that uses them: to make one anew
takes several times as long as to carry it out.
"""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 4

metadata = sa.MetaData()

about = sa.Table(
    "about",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# One row per distinct body: the sender repeats it for as long as an alert fires.
deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("first_received", sa.Float, nullable=False),
    sa.Column("last_received", sa.Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("truncated", sa.Integer, nullable=False),
)

# One row per label set. `pending`: the worker has not decided yet.
alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False, server_default=""),
    sa.Column("labels", sa.Text, nullable=False),
    sa.Column("starts_at", sa.Float),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("received", sa.Float, nullable=False),
    sa.Column("last_seen", sa.Float, nullable=False),
    sa.Column("pending", sa.Boolean, nullable=False),
    sa.Column("dropped", sa.Boolean, nullable=False),
    sa.Column("waits_for", sa.Text),
    sa.Column("incident_id", sa.Text),
)
sa.Index("alerts_pending", alerts.c.pending)

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("cluster", sa.Text, nullable=False, server_default=""),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.BigInteger),
    sa.Column("attempt_key", sa.Text),
    sa.Column("job_id", sa.Text),
    sa.Column("scheduler", sa.Text),
    sa.Column("alert", sa.Text, nullable=False),
    sa.Column("failure_mode", sa.Text, nullable=False),
    sa.Column("error_type", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("budget_used", sa.Integer),
    sa.Column("budget_limit", sa.Integer),
    sa.Column("step_before", sa.Float),
    sa.Column("checkpoint_step", sa.Float),
    sa.Column("exclude_hours", sa.Float),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("committed", sa.Float),
    sa.Column("deadline", sa.Float),
    sa.Column("paging", sa.Boolean, nullable=False),
    sa.Column("exclude_nodes", sa.Text, nullable=False, server_default=""),
    sa.Column("before", sa.Text),
    sa.Column("checks", sa.Text),
    sa.Column("approval", sa.Text, nullable=False, server_default=""),
    sa.Column("lost_gpu_hours", sa.Float),
    sa.Column("held_gpus", sa.Float),
    sa.Column("stacks", sa.Text),
    sa.Column("suspect", sa.Text),
    sa.Column("capture", sa.Text),
    sa.Column("shape", sa.Text, nullable=False, server_default=""),
    sa.Column("successor", sa.Text),
    sa.Column("resume_checkpoint", sa.Text),
    sa.Column("subsystem", sa.Text),
    sa.Column("signal", sa.Text),
)
# At most one restart per attempt, enforced by the database too.
sa.Index(
    "one_restart_per_attempt_of_a_cluster",
    incidents.c.cluster,
    incidents.c.run_id,
    incidents.c.attempt_key,
    unique=True,
    sqlite_where=incidents.c.action == "restart",
    postgresql_where=incidents.c.action == "restart",
)
sa.Index("incidents_by_run", incidents.c.run_id, incidents.c.cluster)
sa.Index("incidents_by_state", incidents.c.state)
sa.Index("incidents_by_successor", incidents.c.scheduler, incidents.c.successor)

events = sa.Table(
    "events",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("hash", sa.Text),  # of this row and the one before; NULL in rows of an older remediator
    sqlite_autoincrement=True,
)
sa.Index("events_by_incident", events.c.incident_id)

# One row per call to a scheduler, written before it is made; `answered` and `outcome` are NULL until it is answered.
calls = sa.Table(
    "calls",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("scheduler", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("verb", sa.Text, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("answered", sa.Float),
    sa.Column("outcome", sa.Text),
    sa.Column("boot", sa.Text, nullable=False, server_default=""),
    sa.Column("job_started", sa.Float),
)
sa.Index("calls_by_job", calls.c.scheduler, calls.c.job_id)

# Nodes that a job avoids because of an incident; those that it avoided before are not among them. `until` is Unix time.
exclusions = sa.Table(
    "exclusions",
    metadata,
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("until", sa.Float),
)

# How long something lasts, in seconds that a process has measured.
timers = sa.Table(
    "timers",
    metadata,
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("elapsed", sa.Float, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

# Which alerts belong to an incident; its root is the one that it was decided by.
incident_alerts = sa.Table(
    "incident_alerts",
    metadata,
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), primary_key=True),
    sa.Column("alert_key", sa.Text, primary_key=True),
    sa.Column("alert", sa.Text, nullable=False),
    sa.Column("failure_mode", sa.Text, nullable=False),
    sa.Column("node", sa.Text),
    sa.Column("starts_at", sa.Float),
    sa.Column("joined", sa.Float, nullable=False),
    sa.Column("root", sa.Boolean, nullable=False),
)

# What was known at a decision: from where, and as of when.
facts = sa.Table(
    "facts",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("decided", sa.Float, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("at", sa.Float),
    sa.Column("supports", sa.Text, nullable=False, server_default="unknown"),
    sa.Column("moment", sa.Text),  # decision, or call; null of an older remediator is a decision
)
sa.Index("facts_by_incident", facts.c.incident_id)

# What people and storms have switched: freeze, storm, maintenance. `scope`: what it is about, empty for everything.
switches = sa.Table(
    "switches",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("until", sa.Float),
)

# Messages to people. Of one mark there is one for each channel; `snapshot` is the incident as it was then.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("mark", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("snapshot", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("sent", sa.Float),
    sa.Column("error", sa.Text),
)
sa.Index("outbox_marks", outbox.c.mark, outbox.c.channel, unique=True)
sa.Index("outbox_pending", outbox.c.state, outbox.c.channel)

# What people have answered to restarts that wait for them.
approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), primary_key=True),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

# What a policy would have done about an attempt, and what became of that without the remediator.
scores = sa.Table(
    "scores",
    metadata,
    sa.Column("incident_id", sa.Text, primary_key=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("attempt_key", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("would", sa.Text, nullable=False),
    sa.Column("decided", sa.Float, nullable=False),
    sa.Column("step_before", sa.Float),
    sa.Column("outcome", sa.Text),
    sa.Column("settled", sa.Float),
)
sa.Index("scores_by_attempt", scores.c.run_id, scores.c.attempt_key)

# What turns the tables of a version into those of the next one, after missing tables and columns were created.
MIGRATIONS = {
    1: (),
    2: (
        "DROP INDEX IF EXISTS one_restart_per_attempt",
        "DROP INDEX IF EXISTS incidents_by_run",
        "UPDATE alerts SET cluster = COALESCE(json_extract(labels, '$.cluster'), '') WHERE json_valid(labels)",
        (
            "UPDATE incidents SET cluster = COALESCE((SELECT CASE WHEN MIN(alerts.cluster) = MAX(alerts.cluster) "
            "THEN MAX(alerts.cluster) END FROM alerts WHERE alerts.incident_id = incidents.id), '')"
        ),
    ),
    # Restarts that come back as new jobs: an older remediator would take the end of the old job for a user's.
    3: (),
}
