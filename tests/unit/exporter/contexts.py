"""What a collector is created from, in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden_exporter.core.exchange import RunExchange
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.spec import CollectorSpec, Context


def context(
    spec: CollectorSpec,
    node: Node,
    flags: Mapping[str, Any],
    exchange: RunExchange | None = None,
    *,
    logs_followed: bool = False,
) -> Context:
    """Return the context of one collector, with an exchange of its own unless one is given."""
    return Context(spec.name, node, flags, exchange or RunExchange(), logs_followed=logs_followed)
