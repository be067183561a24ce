"""Each claim of SECURITY.md about who can do what names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


def rows() -> list[list[str]]:
    """The cells of the lines of its tables that begin with what somebody can do at worst."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    text = text.partition("## Who shares a node")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| at worst")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_each_claim_of_the_threat_model_names_a_test_that_exists() -> None:
    there = {name for file in (ROOT / "tests").rglob("test_*.py") for name in _TEST.findall(file.read_text("utf-8"))}
    named = [(row[0], row[-1].strip("`")) for row in rows()]
    assert len(named) > 20
    assert [(claim, test) for claim, test in named if test not in there] == []


def test_each_claim_states_what_holds_it() -> None:
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []
