"""The queries of the documents are PromQL about what exists; their Python is read, and run where it needs no more."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.offenders import assert_none
from tests.rules import promql
from tests.rules.rule_files import exists

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# What begins a line of PromQL in a document: an aggregation, a function, or a metric with labels or an operator.
_QUERY = re.compile(
    r"(?:sum|max|min|avg|count|topk|bottomk|group|absent|rate|increase|time|\w+_over_time|label_replace)\b.*[({]"
    r"|(?:training|trainwarden|gpu|node|kernel|efa|infiniband|slurm|ray|finetuning|run|cluster|up)[\w:]*"
    r"(?:\{| [-+*/<>]| ==| unless | and )"
)
# Lists the series of a page of metrics with their labels, not queries.
SERIES = "contracts"
# Python that needs what a test of documents has not: which, and where it is run.
ELSEWHERE = {
    "checkpoints": "a checkpoint: tests/unit/checkpoint",
    "finetuning": "a port: tests/integration/exporter/finetuning",
    "from-finetuning-exporter": "a port and a data set: tests/unit/exporter/finetuning",
    "from-modal-monitor": "a bucket: tests/unit/library/test_modal_monitor.py",
    "from-ray-monitor": "a pod: tests/unit/ray",
    "from-s3-monitor": "a webhook: tests/unit/monitor",
    "health": "a Prometheus: tests/unit/runs/test_health.py",
    "integrations": "PyTorch: tests/integrations",
    "library": "the script's own functions, as in README.md: tests/unit/library",
    "modal": "Modal: tests/integration/s3/test_modal.py has the whole example",
    "monitor": "a webhook: tests/unit/monitor",
    "ray-api": "a pod: tests/unit/ray",
    "s3": "a bucket: tests/integration/s3",
}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield page and text of each fenced block of a language."""
    for page in PAGES:
        for _, name, text in _FENCE.findall(page.read_text(encoding="utf-8")):
            if name == language:
                yield page.stem, textwrap.dedent(text)


def queries() -> Iterator[tuple[str, str]]:
    """Yield page and text of each query: of promql blocks, of `expr:` in YAML, and of indented code."""
    for page, text in blocks("promql"):
        yield from ((page, line) for line in text.splitlines() if line and line[0] != "#")
    for page, text in blocks("yaml"):
        yield from ((page, expr) for expr in re.findall(r"^\s*(?:- )?expr: ([^|>\s].*)$", text, re.MULTILINE))
    for path in (page for page in PAGES if page.stem != SERIES):
        for line in re.findall(r"^ {4}(\S.*)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE):
            query = re.sub(r"\s+#\s.*$", "", line)
            if _QUERY.match(query):
                yield path.stem, query


def exposed(query: str) -> bool:
    """Say whether it is a line of a page of metrics: a series and its value."""
    return bool(re.fullmatch(r"[\w:]+(?:\{.*\})? [-+\d.eEInfNa]+(?: \d+)?", query))


# `trainwarden actions` writes a page of its own, which is no part of the catalogue.
_ACTIONS = (ROOT / "trainwarden/actions/metrics.py").read_text(encoding="utf-8")
QUERIES = sorted({(page, query) for page, query in queries() if not exposed(query)})
PYTHON = list(blocks("python"))


def wrong_in(query: str) -> Iterator[str]:
    """Yield why a query cannot be asked."""
    try:
        names = list(promql.metrics(promql.parse(query)))
    except ValueError as error:
        yield str(error)
        return
    if not names:
        yield "it reads no metric"
    yield from (f"there is no {name}" for name in names if not exists(name) and not of_actions(name))


def test_a_query_is_promql_about_what_exists() -> None:
    assert_none(f"{page}.md: {query}: {why}" for page, query in QUERIES for why in wrong_in(query))


def of_actions(name: str) -> bool:
    """Say whether it is a metric of `trainwarden actions`."""
    short = name.removeprefix("trainwarden_actions_").removesuffix("_total")
    return name.startswith("trainwarden_actions_") and bool(re.search(rf'"(?:\{{_P\}}_)?{short}"', _ACTIONS))


def test_queries_are_found_on_the_pages_that_have_some() -> None:
    assert {"metrics", "goodput", "gpus"} <= {page for page, _ in QUERIES}
    assert len(QUERIES) > 150


def compiled(text: str) -> ast.Module:
    """Return the tree of an example; of one that ends with a `with` its body may be left out."""
    return ast.parse(f"{text}    pass\n" if text.rstrip().endswith(":") else text)


def missing_in(text: str) -> Iterator[str]:
    """Yield what a Python example imports and is not there."""
    for node in ast.walk(compiled(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainwarden"):
            if node.module in {"trainwarden.integrations.huggingface", "trainwarden.integrations.lightning"}:
                continue  # these import their framework; tests/integrations has them
            module = importlib.import_module(node.module or "")
            yield from (f"{node.module}.{each.name}" for each in node.names if not hasattr(module, each.name))
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if importlib.util.find_spec(each.name) is None)


def test_python_is_read_and_what_it_imports_of_us_is_there() -> None:
    assert_none(f"{page}.md: there is no {name}" for page, text in PYTHON for name in missing_in(text))


def test_python_is_run_here_or_elsewhere() -> None:
    assert {page for page, _ in PYTHON} == {"README", "progress", "signals", *ELSEWHERE}
    places = [place for reason in ELSEWHERE.values() for place in re.findall(r"tests/[\w/.]+", reason)]
    assert [place for place in places if not (ROOT / place).exists()] == []


def run(page: str, **names: Any) -> dict[str, Any]:
    """Run the example of a page with what a reader has at hand, and return its names."""
    ((_, text),) = [each for each in PYTHON if each[0] == page]
    exec(compile(compiled(text), page, "exec"), names)
    return names


def test_the_example_of_the_readme_makes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("TRAINWARDEN_RUN_ID", "readme")
    checkpoint = tmp_path / "checkpoint.bin"

    def save(step: int) -> Path:
        checkpoint.write_bytes(b"weights")
        return checkpoint

    run("README", load=lambda path: 0, train_step=lambda: 0.5, save=save)
    assert (tmp_path / "runs/readme/_complete").exists()
    assert '"step": 10000' in (tmp_path / "runs/readme/progress.json").read_text(encoding="utf-8")


def test_the_example_of_progress_reads_a_log() -> None:
    reader = run("progress", data=b"step 1200/5000 loss: 2.31\n")["reader"]
    assert (reader.progress().step, reader.progress().total_steps) == (1200, 5000)


def test_the_example_of_signals_finds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, pack),) = [each for each in blocks("yaml") if each[0] == "signals" and "log_signals" in each[1]]
    (tmp_path / "mine.yaml").write_text(pack, encoding="utf-8")
    (tmp_path / "train.log").write_text("torch.cuda.OutOfMemoryError: CUDA out of memory\n", encoding="utf-8")
    run("signals")
    assert "oom" in capsys.readouterr().out
