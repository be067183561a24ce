"""What a collector is created from, in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.core.spec import CollectorSpec, Context


def context(
    spec: CollectorSpec,
    node: Node,
    flags: Mapping[str, Any],
    shared: SharedState | None = None,
    *,
    logs_followed: bool = False,
) -> Context:
    """Return the context of one collector, with a shared state of its own unless one is given."""
    return Context(spec.name, node, flags, shared or SharedState(), logs_followed=logs_followed)
