"""ARCHITECTURE.md names files and folders that exist, and keeps to its size."""

from __future__ import annotations

import re
from pathlib import Path

from tests.offenders import assert_none

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
# A path that begins with none of the repository's folders is relative to one of the packages.
BASES = [
    ROOT / base for base in (".", "exporter/trainwarden_exporter", "remediator/trainwarden_remediator", "trainwarden")
]
BASES += [ROOT / "rules", ROOT / "alertmanager"]


def test_what_the_page_names_exists() -> None:
    named = sorted(set(re.findall(r"`([a-z_./]+(?:/|\.py|\.md|\.yml))`", PAGE)))
    assert len(named) > 50
    assert_none(f"ARCHITECTURE.md: {name}" for name in named if not any((base / name).exists() for base in BASES))


def test_the_page_keeps_to_its_size() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= 250
    assert [line for line in lines if len(line) > 120] == []


def test_each_walk_has_at_most_five_files() -> None:
    section = PAGE.partition("## Five walks")[2].partition("\n## ")[0]
    walks = re.findall(r"^\d\. .*?(?=^\d\. |\Z)", section, re.MULTILINE | re.DOTALL)
    assert len(walks) == 5
    for walk in walks:
        assert 2 <= len(set(re.findall(r"`([\w./]+\.py)`", walk))) <= 5
