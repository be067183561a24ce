"""The list of failures is what the taxonomy makes, and what its head shows works."""

from __future__ import annotations

import re
from pathlib import Path

import trainwarden
from trainwarden.failures.document import SECTIONS, document
from trainwarden.retrying import _NEVER_RETRIED
from trainwarden.taxonomy import ACTIONS, FAILURES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/failures.md").read_text(encoding="utf-8")


def test_the_list_of_failures_is_what_the_taxonomy_makes() -> None:
    assert document() == PAGE, "run: python -m trainwarden.failures.document > docs/failures.md"


def test_every_failure_is_in_one_section() -> None:
    assert sorted(failure.slug for _, failures in SECTIONS for failure in failures) == sorted(FAILURES)


def test_every_action_and_every_type_that_is_never_retried_is_explained() -> None:
    head = PAGE.partition("\n## Memory\n")[0]
    assert set(ACTIONS) <= set(re.findall(r"`(\w+)`", head))
    assert set(_NEVER_RETRIED) <= set(re.findall(r"`(\w+)`", head.partition("## Retry in the process")[2]))


def test_every_function_that_the_head_shows_exists() -> None:
    shown = set(re.findall(r"trainwarden\.(\w+)\(", PAGE)) | set(re.findall(r"from trainwarden import (\w+)", PAGE))
    assert shown == {"classify_exception", "recovery_suggestion", "retry"}
    assert shown <= set(trainwarden.__all__)
