"""`trainwarden validate-job`: check what a fine-tuning job has left behind, and report."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainwarden.checkpoint.verdict import TRUSTS
from trainwarden.command_line import CommandLine
from trainwarden.record.folder import replace_file
from trainwarden_exporter.finetuning import metrics
from trainwarden_exporter.finetuning.documents import UnreadableDocument, read_document
from trainwarden_exporter.finetuning.info_file import resolve_info_path
from trainwarden_exporter.finetuning.job import JobLabels
from trainwarden_exporter.finetuning.validation import FineTuningValidator, ValidationResult

_MAX_TOKENS = 4096


def main(argv: Sequence[str] | None = None) -> int:
    """Check and print the report. Return 0 if all passed, 1 if one failed, 2 for misuse, 3 if one is unknown."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    given = (arguments.training_info, arguments.model_path, arguments.checkpoint_path, arguments.profile_path)
    if all(each is None for each in given):
        parser.error("nothing to check; expected --training-info, --model-path, --checkpoint-path or --profile-path")
    if arguments.expect and not arguments.prompt:
        parser.error("--expect: expected a --prompt that the model is to continue")
    if arguments.prompt and arguments.model_path is None:
        parser.error("--prompt: expected --model-path, the model that is to continue it")
    if arguments.min_loss > arguments.max_loss:
        parser.error(f"--min-loss {arguments.min_loss:g} is above --max-loss {arguments.max_loss:g}")
    try:
        info = None
        if arguments.training_info is not None:
            info = read_document(resolve_info_path(arguments.training_info))
    except (UnreadableDocument, OSError) as error:
        parser.error(f"--training-info: {error}")
    validator = FineTuningValidator(
        min_loss=arguments.min_loss,
        max_loss=arguments.max_loss,
        trust=arguments.trust,
        max_new_tokens=arguments.max_new_tokens,
    )
    results = validator.run_all_checks(
        info,
        arguments.model_path,
        arguments.checkpoint_path,
        arguments.profile_path,
        prompts=arguments.prompt,
        expected_keywords=arguments.expect,
    )
    report = validator.generate_report(results)
    document = json.dumps({"passed": _passed(results), "checks": [each.to_json() for each in results]}, indent=1) + "\n"
    try:
        if arguments.output:
            replace_file(arguments.output, (document if arguments.output.suffix == ".json" else report).encode())
        if arguments.metrics_file:
            labels = JobLabels(arguments.job_name, arguments.model_id, arguments.method)
            replace_file(arguments.metrics_file, metrics_of(results, labels, time.time()))
    except ImportError as error:
        parser.error(f"--metrics-file: {error.name} is not installed; pip install 'trainwarden[exporter]' brings it")
    except OSError as error:
        parser.error(f"{error.filename2 or error.filename}: {error.strerror}")
    text = document if arguments.json else report
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    return {True: 0, False: 1, None: 3}[_passed(results)]


def metrics_of(results: Sequence[ValidationResult], labels: JobLabels, now: float) -> bytes:
    """Return the results in the text format of Prometheus, as node_exporter's textfile collector reads it.

    Args:
        results: of the checks; one that could not be made has no series of `…_passed`.
        labels: of the job.
        now: Unix seconds.
    """
    # Only this needs it: where a training runs it may be missing.
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415

    registry = CollectorRegistry()
    own = (labels.job_name, labels.model_id, labels.method)
    passed, score, when = (
        Gauge(metric.name, metric.help, metric.label_names, registry=registry)
        for metric in (
            metrics.FINETUNING_VALIDATION_PASSED,
            metrics.FINETUNING_VALIDATION_SCORE,
            metrics.FINETUNING_VALIDATION_TIMESTAMP_SECONDS,
        )
    )
    for each in results:
        if each.passed is not None:
            passed.labels(*own, each.check_name).set(each.passed)
        if each.score is not None:
            score.labels(*own, each.check_name).set(each.score)
    when.labels(*own).set(now)
    return bytes(generate_latest(registry))


def _passed(results: Sequence[ValidationResult]) -> bool | None:
    if any(each.passed is False for each in results):
        return False
    return None if any(each.passed is None for each in results) else True


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="trainwarden validate-job",
        description="Check what a fine-tuning job has left behind: its loss, its model, its checkpoint, its profile.",
        epilog="exit status: 0 every check passed; 1 one failed; 2 misuse; 3 none failed, and one could not be made",
    )
    parser.add_argument("--training-info", type=Path, metavar="FILE", help="training_info.json, or a folder with it")
    parser.add_argument("--model-path", metavar="FOLDER", help="the model; it continues each --prompt")
    parser.add_argument("--checkpoint-path", metavar="PATH", help="a checkpoint, or a folder or S3 prefix of them")
    parser.add_argument("--profile-path", type=Path, metavar="FILE", help="AIM profile, JSON or YAML")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report there, as JSON if it ends so")
    parser.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="may be repeated")
    parser.add_argument("--expect", action="append", default=[], metavar="WORD", help="in an answer; may be repeated")
    parser.add_argument("--max-new-tokens", type=_tokens, default=32, metavar="N", help="of an answer (default: 32)")
    parser.add_argument("--min-loss", type=_loss, default=0.0, metavar="LOSS", help="default: 0")
    parser.add_argument("--max-loss", type=_loss, default=10.0, metavar="LOSS", help="default: 10")
    parser.add_argument(
        "--trust", choices=TRUSTS, default=TRUSTS[0], help="what is a complete checkpoint: `trainwarden checkpoints -h`"
    )
    parser.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE.prom",
        help="write the results for node_exporter's textfile",
    )
    for name in ("job-name", "model-id", "method"):
        parser.add_argument(f"--{name}", default="", metavar="TEXT", help="label in that file")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser


def _loss(text: str) -> float:
    loss = float(text)
    if not -1e9 < loss < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number")
    return loss


def _tokens(text: str) -> int:
    tokens = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= tokens <= _MAX_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to {_MAX_TOKENS}")
    return tokens


if __name__ == "__main__":
    sys.exit(main())
