"""Checks of a finished fine-tuning job: its loss, its model, its checkpoint, its AIM profile.

A check has three answers: what could not be checked is neither passed nor failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwarden.checkpoint.find import search
from trainwarden.checkpoint.verdict import Trust
from trainwarden.redaction import plain
from trainwarden_exporter.finetuning.documents import UnreadableDocument, broken_json, read_document, read_prompts
from trainwarden_exporter.finetuning.generation import CannotGenerate, generate
from trainwarden_exporter.finetuning.training_info import LOSSES, loss_history, number, numbers, parse_training_info

_MAX_SHOWN = 200
# The share of a history whose mean counts as its beginning, and as its end: single losses are noisy.
_SHARE = 0.2
# A loss that ends this much above where it began has not fallen; less is noise.
_TOLERANCE = 0.01
_MAX_DEPTH = 5
# Each states what the model needs.
_REQUIREMENTS = (
    "memory_requirement_gb", "memory_gb", "resource_requirements", "metadata", "resources", "acceleratorCount",
)  # fmt: skip
# What fine-tuning modules write in place of the files of a known layout.
_DESCRIPTION = ("checkpoint_info.json", "training_state.json")


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


@dataclass(frozen=True)
class ModelComparison:
    """What two models make of the same prompts.

    Scores are the share of the keywords that were found, None where there were none; `problem` is why a model gave no
    outputs.
    """

    base_model_path: str
    model_path: str
    prompts: tuple[str, ...]
    base_outputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    base_score: float | None = None
    score: float | None = None
    problem: str | None = None

    @property
    def changed(self) -> int:
        """The number of prompts that the models continue differently."""
        return sum(base != own for base, own in zip(self.base_outputs, self.outputs, strict=False))

    @property
    def improvement(self) -> float | None:
        """The score less that of the base model; None where there is none."""
        return None if self.score is None or self.base_score is None else self.score - self.base_score

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "changed": self.changed, "improvement": self.improvement}


class FineTuningValidator:
    """Checks of a job.

    Args:
        test_dataset_path: file of JSON lines; the model continues their first prompts where a call names none.
        min_loss: the least final loss that is plausible.
        max_loss: the greatest that is good enough.
        trust: what counts as a complete checkpoint; see `trainwarden checkpoints`.
        max_new_tokens: of each answer of the model.

    Attributes:
        validation_results: of the checks since the last `run_all_checks`, that of it included.
    """

    def __init__(
        self,
        test_dataset_path: str | Path | None = None,
        *,
        min_loss: float = 0.0,
        max_loss: float = 10.0,
        trust: Trust = "layout",
        max_new_tokens: int = 32,
    ) -> None:
        self.test_dataset_path = test_dataset_path
        self.min_loss = min_loss
        self.max_loss = max_loss
        self.trust = trust
        self.max_new_tokens = max_new_tokens
        self.validation_results: list[ValidationResult] = []

    def run_all_checks(
        self,
        training_info: Mapping[str, Any] | float | None = None,
        model_path: str | Path | None = None,
        checkpoint_path: str | Path | None = None,
        profile_path: str | Path | None = None,
        *,
        prompts: Sequence[str] = (),
        expected_keywords: Sequence[str] = (),
        test_prompts: Sequence[str] = (),
    ) -> list[ValidationResult]:
        """Make the checks for which there is something to check, and return their results.

        Args:
            training_info: content of a `training_info.json`, or the final loss.
            model_path: folder of the model. It is made to generate if there are `prompts`; where there is no
                `checkpoint_path` its own files are checked for completeness.
            checkpoint_path: a checkpoint, or a folder of them.
            profile_path: an AIM profile, JSON or YAML.
            prompts: what the model is to continue.
            expected_keywords: each must be in one of its answers.
            test_prompts: another name of `prompts`.
        """
        self.validation_results = []
        if training_info is not None:
            self.validate_training_loss(training_info)
        if model_path is not None and (prompts or test_prompts or self.test_dataset_path is not None):
            self.validate_model_output(model_path, prompts or test_prompts, expected_keywords)
        if checkpoint_path is not None or model_path is not None:
            self.validate_checkpoint_integrity(checkpoint_path or str(model_path))
        if profile_path is not None:
            self.validate_aim_profile(profile_path)
        return list(self.validation_results)

    def validate_training_loss(
        self,
        training_info: Mapping[str, Any] | float,
        expected_range: tuple[float, float] | None = None,
        decreasing: bool = True,  # callers pass it by position
    ) -> ValidationResult:
        """Check that the loss is a number within its range, and that it has fallen where its history is known.

        Args:
            training_info: content of a `training_info.json`, or the final loss.
            expected_range: least and greatest final loss, in place of `min_loss` and `max_loss`.
            decreasing: whether it must have fallen.
        """
        info = training_info if isinstance(training_info, Mapping) else {"loss": training_info}
        return self._kept(self._training_loss(info, expected_range or (self.min_loss, self.max_loss), decreasing))

    def _kept(self, result: ValidationResult) -> ValidationResult:
        self.validation_results.append(result)
        return result

    def _training_loss(
        self, training_info: Mapping[str, Any], expected_range: tuple[float, float], must_fall: bool
    ) -> ValidationResult:
        name = "training_loss"
        least, greatest = expected_range
        losses = loss_history(training_info)
        stated = numbers([training_info[key] for key in LOSSES if key in training_info])
        # NaN is no value of a metric, and a finding here.
        loss = next((each for each in (parse_training_info(training_info).values.loss, *losses[-1:], *stated)
                     if each is not None), None)  # fmt: skip
        if loss is None:
            return ValidationResult(name, False, "No training loss found")
        if not math.isfinite(loss):
            return ValidationResult(name, False, f"Training loss is {loss}")
        text = f"Training loss: {loss:.4f}"
        details: dict[str, Any] = {"min_loss": least, "max_loss": greatest, "losses": len(losses)}
        if any(not math.isfinite(each) for each in losses):
            return ValidationResult(name, False, f"{text}, and NaN or infinite before", loss, details)
        if not least <= loss <= greatest:
            expected = f"expected {least:g} to {greatest:g}"
            return ValidationResult(name, False, f"{text} is out of range: {expected}", loss, details)
        if len(losses) >= 2:
            part = max(1, int(len(losses) * _SHARE))
            first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
            details |= {"first": first, "last": last}
            if must_fall and last > first * (1 + _TOLERANCE):
                return ValidationResult(
                    name, False, f"{text} is not decreasing: from {first:.4f} to {last:.4f}", loss, details
                )
        return ValidationResult(name, True, text, loss, details)

    def validate_model_output(
        self,
        model_path: str | Path,
        prompts: Sequence[str] = (),
        expected_keywords: Sequence[str] = (),
        *,
        test_prompts: Sequence[str] = (),
    ) -> ValidationResult:
        """Check that the model continues each prompt, and that the answers contain the keywords, in any case.

        The score is the share of the keywords that were found.

        Args:
            model_path: folder of the model.
            prompts: what it is to continue; the first of `test_dataset_path` if there are none.
            expected_keywords: each must be in one of its answers.
            test_prompts: another name of `prompts`.
        """
        name = "model_output"
        try:
            prompts = prompts or test_prompts or self._dataset_prompts()
        except UnreadableDocument as error:
            return self._kept(ValidationResult(name, False, _line(f"Test dataset cannot be read: {error}")))
        if not prompts:
            return self._kept(ValidationResult(name, None, "There is no prompt for the model to continue"))
        return self._kept(self._model_output(name, model_path, prompts, expected_keywords))

    def compare_models(
        self,
        base_model_path: str | Path,
        model_path: str | Path,
        test_prompts: Sequence[str] = (),
        expected_keywords: Sequence[str] = (),
    ) -> ModelComparison:
        """Let a base model and the fine-tuned one continue the same prompts. Never raises.

        Args:
            base_model_path: folder of the model that was fine-tuned.
            model_path: folder of the result.
            test_prompts: what they are to continue; the first of `test_dataset_path` if there are none.
            expected_keywords: words whose share in the answers is the score.
        """
        paths = str(base_model_path), str(model_path)
        prompts: Sequence[str] = test_prompts
        try:
            prompts = prompts or self._dataset_prompts()
            base, own = (tuple(generate(path, prompts, self.max_new_tokens)) for path in paths)
        except (CannotGenerate, UnreadableDocument) as error:
            return ModelComparison(*paths, tuple(prompts), problem=_line(str(error)))
        scores = _found_share(base, expected_keywords), _found_share(own, expected_keywords)
        return ModelComparison(*paths, tuple(prompts), base, own, *scores)

    def _dataset_prompts(self) -> Sequence[str]:
        return read_prompts(Path(self.test_dataset_path)) if self.test_dataset_path is not None else ()

    def _model_output(
        self, name: str, model_path: str | Path, prompts: Sequence[str], expected_keywords: Sequence[str]
    ) -> ValidationResult:
        try:
            outputs = generate(str(model_path), prompts, self.max_new_tokens)
        except CannotGenerate as error:
            return ValidationResult(name, None if error.is_missing else False, _line(str(error)))
        empty = [prompt for prompt, output in zip(prompts, outputs, strict=True) if not output.strip()]
        details = {"outputs": [output[:_MAX_SHOWN] for output in outputs]}
        if empty:
            return ValidationResult(name, False, f"Model generated nothing for {_line(empty[0])!r}", None, details)
        missing = _missing(outputs, expected_keywords)
        score = _found_share(outputs, expected_keywords)
        if missing:
            shown = ", ".join(map(_line, missing))
            return ValidationResult(name, False, f"Outputs do not contain: {shown}", score, details)
        return ValidationResult(name, True, f"Model generated {len(outputs)} outputs", score, details)

    def validate_checkpoint_integrity(self, checkpoint_path: str | Path) -> ValidationResult:
        """Check that the newest checkpoint is complete, and that every JSON file of the folder can be read.

        A folder of `checkpoint_info.json` and `training_state.json` alone promises no more than these two.
        """
        return self._kept(self._checkpoint_integrity(checkpoint_path))

    def _checkpoint_integrity(self, checkpoint_path: str | Path) -> ValidationResult:
        name = "checkpoint_integrity"
        path = str(checkpoint_path)
        if not path.startswith("s3://"):
            if not Path(path).exists():
                return ValidationResult(name, False, f"There is no checkpoint: {_line(path)}")
            if broken := broken_json(Path(path)):
                return ValidationResult(name, False, f"JSON files cannot be read: {_line('; '.join(broken))}")
        result = search(path, trust=self.trust)
        is_proven = result.best is not None and result.best[1].answer != "unverifiable"
        folder = result.best[0].path if result.best else path
        if not is_proven and _is_description(Path(folder)):
            described = {"path": folder, "files": list(_DESCRIPTION)}
            return ValidationResult(name, True, "Checkpoint files are valid and complete", None, described)
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
        return self._kept(self._aim_profile(profile_path))

    def _aim_profile(self, profile_path: str | Path) -> ValidationResult:
        name = "aim_profile"
        try:
            profile = read_document(Path(profile_path))
        except TypeError:
            return ValidationResult(name, False, _line(f"AIM profile: the path is {profile_path!r}, expected a path"))
        except UnreadableDocument as error:
            return ValidationResult(name, False, _line(f"AIM profile cannot be read: {error}"))
        spec = profile.get("spec")
        if isinstance(spec, Mapping):  # of a resource of Kubernetes
            profile = spec
        problems = []
        if not any(isinstance(profile.get(key), str) and profile[key] for key in ("model_id", "modelId")):
            problems.append("model_id is missing")
        if not any(profile.get(key) not in (None, {}, "") for key in _REQUIREMENTS):
            problems.append("memory_requirement_gb, memory_gb, resource_requirements or metadata is missing")
        for path, value in _memory_values(profile):
            amount = number(value)
            if amount is None or amount <= 0:
                problems.append(f"{path} is {str(value)[:40]!r}, expected a number above 0")
        if problems:
            return ValidationResult(name, False, _line("AIM profile is not valid: " + "; ".join(problems)))
        return ValidationResult(name, True, "AIM profile is valid")

    def generate_report(self, results: Sequence[ValidationResult] | None = None) -> str:
        """Return the report for people."""
        results = self.validation_results if results is None else results
        words = {True: "✓ PASS", False: "✗ FAIL", None: "? UNKNOWN"}
        parts = ["=== Fine-Tuning Validation Report ===\n"]
        for each in results:
            lines = [f"{words[each.passed]} - {each.check_name}", f"  {each.message}"]
            if each.score is not None:
                lines.append(f"  Score: {each.score:.4f}")
            parts.append("\n".join(lines) + "\n")
        parts.append(f"Summary: {sum(each.passed is True for each in results)}/{len(results)} checks passed\n")
        return "\n".join(parts)


def _missing(outputs: Sequence[str], keywords: Sequence[str]) -> list[str]:
    return [word for word in keywords if not any(word.lower() in each.lower() for each in outputs)]


def _found_share(outputs: Sequence[str], keywords: Sequence[str]) -> float | None:
    return 1 - len(_missing(outputs, keywords)) / len(keywords) if keywords else None


def _is_description(folder: Path) -> bool:
    """Return whether the folder holds both of `_DESCRIPTION`, and nothing but JSON files."""
    names = {each.name for each in folder.glob("*")}
    return names.issuperset(_DESCRIPTION) and all(name.endswith(".json") for name in names)


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
