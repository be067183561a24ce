"""What the documents say of log signals is what the packs and their reader hold."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from trainwarden.signals.listing import listing
from trainwarden.signals.model import ROLES
from trainwarden.signals.pack import load_pack, shipped_packs
from trainwarden.signals.pattern_module import ALTERNATIVES_MODULE, MODULE, alternatives_module, pattern_module
from trainwarden.signals.patterns import STRIKES, TIME_LIMIT_SECONDS
from trainwarden.signals.reading import KEYS
from trainwarden.signals.scanner import Scanner

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "signals.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[str]:
    table = PAGE.partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}


def test_the_module_of_patterns_is_made_from_the_packs() -> None:
    assert MODULE.read_text(encoding="utf-8") == pattern_module(), "run: make docs"
    assert ALTERNATIVES_MODULE.read_text(encoding="utf-8") == alternatives_module(), "run: make docs"


def test_the_list_of_signals_is_what_the_packs_hold() -> None:
    assert (DOCS / "signal-list.md").read_text(encoding="utf-8") == listing(), "run: make docs"


def test_every_key_and_every_role_of_a_signal_is_described_and_no_other() -> None:
    assert rows("key") == KEYS - {"pattern_type"}
    assert "pattern_type" in PAGE
    assert rows("role") == set(ROLES)


def test_every_shipped_pack_is_named() -> None:
    assert [name for name in shipped_packs() if f"`{name}`" not in PAGE] == []


def test_the_example_works_and_the_limits_are_the_real_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PAGE.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    assert "log_signals" in yaml.safe_load(path.read_text(encoding="utf-8"))
    pack = load_pack(path)
    assert pack.warnings == ()
    (mine,) = (signal for signal in pack.signals if not signal.shipped)
    (match,) = Scanner([mine]).feed(mine.examples[0].encode() + b"\n")
    assert match.fields == {"server": "lic1", "reason": "no seats left"}
    assert not Scanner([mine]).feed(mine.counterexamples[0].encode() + b"\n")
    assert f"{TIME_LIMIT_SECONDS} s" in PAGE
    assert STRIKES == 3 and "three times" in PAGE
