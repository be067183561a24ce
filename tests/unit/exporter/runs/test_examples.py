"""Each metric of runs, logs and S3 says where its value comes from, and a query that uses it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from trainwarden.stack.binaries import Tools
from trainwarden_exporter.logs.catalog import LOG_ROWS
from trainwarden_exporter.runs.catalog import RUN_ROWS
from trainwarden_exporter.s3.catalog import S3_ROWS

ROWS = (*RUN_ROWS, *LOG_ROWS, *S3_ROWS)


def test_each_says_where_its_value_comes_from_and_its_example_names_it() -> None:
    assert [entry.name for entry in ROWS if not entry.source or entry.name not in entry.example] == []


def test_promtool_takes_each_example_for_a_query(tools: Tools, tmp_path: Path) -> None:
    rules = [{"record": f"example:{entry.name}", "expr": entry.example} for entry in ROWS]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "examples", "rules": rules}]}), encoding="utf-8")
    checked = subprocess.run(
        [str(tools.promtool), "check", "rules", str(file)], check=False, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
