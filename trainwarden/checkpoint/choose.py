"""Which of the checkpoints that a training has recorded it resumes from."""

from collections.abc import Iterable

from trainwarden.checkpoint.verify import verify
from trainwarden.record.files import Checkpoint


def choose(candidates: Iterable[Checkpoint]) -> tuple[Checkpoint | None, list[str]]:
    """The first complete one, else the first that nothing speaks against; and a line for each that was passed over."""
    unproven: Checkpoint | None = None
    passed_over: list[str] = []
    for candidate in candidates:
        verdict = verify(candidate.path, candidate.size_bytes)
        if verdict.answer == "complete":
            return candidate, passed_over
        passed_over.append(f"checkpoint {candidate.path} is {verdict}")
        if verdict.answer == "unverifiable" and unproven is None:
            unproven = candidate
    return unproven, passed_over
