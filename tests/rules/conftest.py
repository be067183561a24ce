"""What the tests of rules share: all rules and tests, read once."""

from __future__ import annotations

import pytest

from tests.rules.mutations import ROOT, Bundle


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """All rules and how they depend on each other, and all tests."""
    return Bundle(ROOT / "rules")
