"""Checks of a finished fine-tuning job: its loss, its model, its checkpoint, its AIM profile.

A check has three answers: what could not be checked is neither passed nor failed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trainwarden.checkpoint.find import search
from trainwarden.checkpoint.verdict import Trust
from trainwarden.redaction import plain
from trainwarden.regular_file import read_regular_file
from trainwarden_exporter.finetuning.generation import CannotGenerate, generate
from trainwarden_exporter.finetuning.training_info import HISTORIES, SECTIONS, number, parse_training_info

_MAX_BYTES = 32 * 2**20
_MAX_FILES = 1000
_MAX_SHOWN = 200
# The share of a history whose mean counts as its beginning, and as its end: single losses are noisy.
_SHARE = 0.2
# A loss that ends this much above where it began has not fallen; less is noise.
_TOLERANCE = 0.01
_LOSSES = ("loss", "train_loss", "training_loss")
_MAX_DEPTH = 5


@dataclass(frozen=True)
class ValidationResult:
    """The result of one check. `passed` is None where it could not be made; `score` is a number, if it has one."""

    check_name: str
    passed: bool | None
    message: str
    score: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "details": dict(self.details)}


class FineTuningValidator:
    """Checks of a job.

    Args:
        min_loss: the least final loss that is plausible.
        max_loss: the greatest that is good enough.
        trust: what counts as a complete checkpoint; see `trainwarden checkpoints`.
        max_new_tokens: of each answer of the model.
    """

    def __init__(
        self, *, min_loss: float = 0.0, max_loss: float = 10.0, trust: Trust = "layout", max_new_tokens: int = 32
    ) -> None:
        self.min_loss = min_loss
        self.max_loss = max_loss
        self.trust = trust
        self.max_new_tokens = max_new_tokens
        self.results: list[ValidationResult] = []

    def run_all_checks(
        self,
        training_info: Mapping[str, Any] | None = None,
        model_path: str | Path | None = None,
        checkpoint_path: str | Path | None = None,
        profile_path: str | Path | None = None,
        *,
        prompts: Sequence[str] = (),
        expected_keywords: Sequence[str] = (),
    ) -> list[ValidationResult]:
        """Make the checks for which there is something to check, and return their results.

        Args:
            training_info: content of a `training_info.json`.
            model_path: folder of the model. It is made to generate if there are `prompts`; where there is no
                `checkpoint_path` its own files are checked for completeness.
            checkpoint_path: a checkpoint, or a folder of them.
            profile_path: an AIM profile, JSON or YAML.
            prompts: what the model is to continue.
            expected_keywords: each must be in one of its answers.
        """
        results = []
        if training_info is not None:
            results.append(self.validate_training_loss(training_info))
        if model_path is not None and prompts:
            results.append(self.validate_model_output(model_path, prompts, expected_keywords))
        if checkpoint_path is not None or model_path is not None:
            results.append(self.validate_checkpoint_integrity(checkpoint_path or str(model_path)))
        if profile_path is not None:
            results.append(self.validate_aim_profile(profile_path))
        self.results = results
        return results

    def validate_training_loss(self, training_info: Mapping[str, Any]) -> ValidationResult:
        """Check that the loss is a number within its range, and that it has fallen where its history is known."""
        name = "training_loss"
        losses = loss_history(training_info)
        stated = _numbers([training_info[key] for key in _LOSSES if key in training_info])
        # NaN is no value of a metric, and a finding here.
        loss = next((each for each in (parse_training_info(training_info).values.loss, *losses[-1:], *stated)
                     if each is not None), None)  # fmt: skip
        if loss is None:
            return ValidationResult(name, False, "No training loss found")
        if not math.isfinite(loss):
            return ValidationResult(name, False, f"Training loss is {loss}")
        text = f"Training loss: {loss:.4f}"
        details: dict[str, Any] = {"min_loss": self.min_loss, "max_loss": self.max_loss, "losses": len(losses)}
        if any(not math.isfinite(each) for each in losses):
            return ValidationResult(name, False, f"{text}, and NaN or infinite before", loss, details)
        if not self.min_loss <= loss <= self.max_loss:
            expected = f"expected {self.min_loss:g} to {self.max_loss:g}"
            return ValidationResult(name, False, f"{text} is out of range: {expected}", loss, details)
        if len(losses) >= 2:
            part = max(1, int(len(losses) * _SHARE))
            first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
            details |= {"first": first, "last": last}
            if last > first * (1 + _TOLERANCE):
                return ValidationResult(
                    name, False, f"{text} is not decreasing: from {first:.4f} to {last:.4f}", loss, details
                )
        return ValidationResult(name, True, text, loss, details)

    def validate_model_output(
        self, model_path: str | Path, prompts: Sequence[str], expected_keywords: Sequence[str] = ()
    ) -> ValidationResult:
        """Check that the model continues each prompt, and that the answers contain the keywords, in any case.

        The score is the share of the keywords that were found.
        """
        name = "model_output"
        try:
            outputs = generate(str(model_path), prompts, self.max_new_tokens)
        except CannotGenerate as error:
            return ValidationResult(name, None if error.is_missing else False, _line(str(error)))
        empty = [prompt for prompt, output in zip(prompts, outputs, strict=True) if not output.strip()]
        details = {"outputs": [output[:_MAX_SHOWN] for output in outputs]}
        if empty:
            return ValidationResult(name, False, f"Model generated nothing for {_line(empty[0])!r}", None, details)
        missing = [word for word in expected_keywords if not any(word.lower() in each.lower() for each in outputs)]
        score = 1 - len(missing) / len(expected_keywords) if expected_keywords else None
        if missing:
            shown = ", ".join(map(_line, missing))
            return ValidationResult(name, False, f"Outputs do not contain: {shown}", score, details)
        return ValidationResult(name, True, f"Model generated {len(outputs)} outputs", score, details)

    def validate_checkpoint_integrity(self, checkpoint_path: str | Path) -> ValidationResult:
        """Check that the newest checkpoint is complete, and that every JSON file of the folder can be read."""
        name = "checkpoint_integrity"
        path = str(checkpoint_path)
        if not path.startswith("s3://"):
            if not Path(path).exists():
                return ValidationResult(name, False, f"There is no checkpoint: {_line(path)}")
            if broken := _broken_json(Path(path)):
                return ValidationResult(name, False, f"JSON files cannot be read: {_line('; '.join(broken))}")
        result = search(path, trust=self.trust)
        if result.best is None:
            return ValidationResult(name, False, _line(result.problem or f"There is no checkpoint in {path}"))
        found, verdict = result.best
        details = {"path": found.path, "step": found.step, "evidence": list(verdict.evidence)}
        if verdict.answer == "complete":
            return ValidationResult(name, True, "Checkpoint files are valid and complete", None, details)
        reasons = "; ".join(verdict.evidence)
        if verdict.answer == "incomplete":
            return ValidationResult(name, False, _line(f"Checkpoint is not complete: {reasons}"), None, details)
        return ValidationResult(name, None, _line(f"Completeness cannot be proven: {reasons}"), None, details)

    def validate_aim_profile(self, profile_path: str | Path) -> ValidationResult:
        """Check that the profile is an object with a model, requirements, and memory values above zero."""
        name = "aim_profile"
        try:
            profile = read_document(Path(profile_path))
        except UnreadableDocument as error:
            return ValidationResult(name, False, _line(f"AIM profile cannot be read: {error}"))
        spec = profile.get("spec")
        if isinstance(spec, Mapping):  # of a resource of Kubernetes
            profile = spec
        problems = []
        if not any(isinstance(profile.get(key), str) and profile[key] for key in ("model_id", "modelId")):
            problems.append("model_id is missing")
        if not any(
            profile.get(key) not in (None, {}, "")
            for key in ("memory_requirement_gb", "resource_requirements", "metadata", "resources", "acceleratorCount")
        ):
            problems.append("memory_requirement_gb, resource_requirements or metadata is missing")
        for path, value in _memory_values(profile):
            amount = number(value)
            if amount is None or amount <= 0:
                problems.append(f"{path} is {str(value)[:40]!r}, expected a number above 0")
        if problems:
            return ValidationResult(name, False, _line("AIM profile is not valid: " + "; ".join(problems)))
        return ValidationResult(name, True, "AIM profile is valid")

    def generate_report(self, results: Sequence[ValidationResult] | None = None) -> str:
        """Return the report for people."""
        results = self.results if results is None else results
        words = {True: "✓ PASS", False: "✗ FAIL", None: "? UNKNOWN"}
        parts = ["=== Fine-Tuning Validation Report ===\n"]
        for each in results:
            lines = [f"{words[each.passed]} - {each.check_name}", f"  {each.message}"]
            if each.score is not None:
                lines.append(f"  Score: {each.score:.4f}")
            parts.append("\n".join(lines) + "\n")
        parts.append(f"Summary: {sum(each.passed is True for each in results)}/{len(results)} checks passed\n")
        return "\n".join(parts)


class UnreadableDocument(Exception):
    """A file holds no JSON or YAML object; the message names the file and the reason."""


def read_document(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON or YAML file; a list in a JSON file becomes a history. Raises UnreadableDocument."""
    try:
        data = read_regular_file(path, _MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableDocument(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise UnreadableDocument(f"{path}: is larger than {_MAX_BYTES} bytes")
    try:
        values = yaml.safe_load(data) if path.suffix in {".yaml", ".yml"} else json.loads(data)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UnreadableDocument(f"{path}: is not {'YAML' if path.suffix != '.json' else 'JSON'}: {error}") from None
    if isinstance(values, list):
        return {"history": values}
    if not isinstance(values, dict):
        raise UnreadableDocument(f"{path}: holds a {type(values).__name__}, expected an object")
    return values


def loss_history(training_info: Mapping[str, Any]) -> list[float]:
    """Return the losses of the training as they were logged, in order; those of evaluations are left out."""
    sections = [training_info, *(training_info[key] for key in SECTIONS if isinstance(training_info.get(key), dict))]
    found: list[float] = []
    for values in sections:
        for key in ("loss_history", "losses", "train_losses"):
            listed = values.get(key)
            found += _numbers(listed if isinstance(listed, list) else ())
        for key in HISTORIES:
            entries = values.get(key)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, Mapping) and "train_runtime" not in entry:
                    stated = next((entry[name] for name in _LOSSES if name in entry), None)
                    found += _numbers([] if stated is None else [stated])
        if found:
            return found
    return found


def _numbers(values: Sequence[Any]) -> list[float]:
    found = []
    for value in values:
        try:
            found.append(float(value))
        except (TypeError, ValueError):  # noqa: PERF203  # at most a few thousand
            continue
    return found


def _broken_json(path: Path) -> list[str]:
    files = [path] if path.is_file() else sorted(path.rglob("*.json"))[:_MAX_FILES]
    broken = []
    for file in files:
        if file.suffix != ".json" or not file.is_file():
            continue
        try:
            data = read_regular_file(file, _MAX_BYTES + 1)
            if len(data) <= _MAX_BYTES:  # a larger one is data, and no description of it
                json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            broken.append(f"{file.name}: {error}")
    return broken


def _memory_values(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            yield from _memory_values(value, f"{path}.", depth + 1)
        elif value is not None and (
            str(key).endswith(("_gb", "_mb", "_bytes")) or key in ("gpu_count", "acceleratorCount")
        ):
            yield path, value


def _line(text: str) -> str:
    return plain(text)[:600]
