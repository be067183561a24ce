"""The list of failures is what the taxonomy makes, and what its head shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trainwarden
from trainwarden.failures.document import SECTIONS, document
from trainwarden.signals.pack import load_pack
from trainwarden.taxonomy import ACTIONS, FAILURES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/failures.md").read_text(encoding="utf-8")


def test_the_list_of_failures_is_what_the_taxonomy_makes() -> None:
    assert document() == PAGE, "run: python -m trainwarden.failures.document > docs/failures.md"


def test_every_failure_is_in_one_section() -> None:
    assert sorted(failure.slug for _, failures in SECTIONS for failure in failures) == sorted(FAILURES)


def test_every_action_is_explained() -> None:
    head = PAGE.partition("\n## Memory\n")[0]
    assert set(ACTIONS) <= set(re.findall(r"`(\w+)`", head))


def is_retried(message: str) -> bool:
    """Return whether a call that fails with this message is repeated where `on` allows every exception."""
    calls = []

    @trainwarden.retry(attempts=2, on=Exception, sleep=lambda _: None)
    def fail() -> None:
        calls.append(message)
        raise RuntimeError(message)

    with pytest.raises(RuntimeError):
        fail()
    return len(calls) > 1


def test_the_types_that_are_never_retried_are_those_that_the_page_names() -> None:
    examples = {
        trainwarden.classify_exception(RuntimeError(example)).error_type: example
        for signal in load_pack("all").signals
        for example in signal.examples
    }
    assert len(examples) > 20
    (named,) = re.findall(r"^Failures of the types (.+?) are never retried", PAGE, re.MULTILINE)
    assert {kind for kind, text in examples.items() if not is_retried(text)} == set(re.findall(r"`(\w+)`", named))


def test_every_function_that_the_head_shows_exists() -> None:
    shown = set(re.findall(r"trainwarden\.(\w+)\(", PAGE)) | set(re.findall(r"from trainwarden import (\w+)", PAGE))
    assert shown == {"classify_exception", "recovery_suggestion", "retry"}
    assert shown <= set(trainwarden.__all__)
