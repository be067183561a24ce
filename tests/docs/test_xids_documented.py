"""The table of XIDs in docs/gpus.md is the one that the exporter uses."""

from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.collectors.gpu.nvml.xid_codes import CODES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/gpus.md"


def test_each_code_is_documented_with_its_meaning_and_what_clears_it() -> None:
    rows = [f"| {code} | {xid.meaning} | `{xid.action}` |" for code, xid in CODES.items()]
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line in rows] == rows
    assert {140, *range(144, 151), 154} <= CODES.keys()
