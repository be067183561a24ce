"""What five earlier tools promised: each test names the tool and the heading of its page by the mark `seed`."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = frozenset(
    {
        "Production Training Monitor",
        "Training Monitor Skill",
        "Monitoring and Automatic Restart",
        "Modal Error Handling and Monitoring Implementation",
        "Monitoring & Validation Framework",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test here that does not name its promise."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            mark = item.get_closest_marker("seed")
            if mark is None or len(mark.args) != 2 or mark.args[0] not in TOOLS:
                raise pytest.UsageError(f'{item.nodeid}: mark it `seed("one of {sorted(TOOLS)}", "heading")`')
