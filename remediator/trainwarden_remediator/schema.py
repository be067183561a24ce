"""The tables. Plain types only, so that the same schema serves SQLite and PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 1

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
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("committed", sa.Float),
    sa.Column("deadline", sa.Float),
    sa.Column("paging", sa.Boolean, nullable=False),
)
# At most one restart per attempt, enforced by the database too.
sa.Index(
    "one_restart_per_attempt",
    incidents.c.run_id,
    incidents.c.attempt_key,
    unique=True,
    sqlite_where=incidents.c.action == "restart",
    postgresql_where=incidents.c.action == "restart",
)
sa.Index("incidents_by_run", incidents.c.run_id)
sa.Index("incidents_by_state", incidents.c.state)

events = sa.Table(
    "events",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("incident_id", sa.Text, sa.ForeignKey("incidents.id"), nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
sa.Index("events_by_incident", events.c.incident_id)
