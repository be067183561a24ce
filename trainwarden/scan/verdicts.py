"""The verdict over a log, or over the logs of one attempt's ranks together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwarden.scan.reading import Log
from trainwarden.signals.diagnosis import diagnose, diagnose_ranks
from trainwarden.signals.model import Match, Verdict
from trainwarden.signals.progress import LogProgress


@dataclass(frozen=True)
class Finding:
    """The result for one log, or for several together.

    Attributes:
        file: as typed; of several logs, the one that decided.
        verdict: None if nothing failed.
        others: the other matches, one for each signal, including failures that the training survived.
        files: of several logs, which one a match is from, by its `id`.
    """

    file: str
    verdict: Verdict | None
    others: tuple[Match, ...]
    progress: LogProgress
    logs: tuple[Log, ...]
    files: Mapping[int, str] = field(default_factory=dict)

    @property
    def evidence(self) -> tuple[Match, ...]:
        """The deciding record and the others of the same failure, each once."""
        seen: dict[tuple[str | None, int], Match] = {}
        for match in self.verdict.evidence if self.verdict else ():
            seen.setdefault((self.files.get(id(match)), match.offset), match)
        return tuple(seen.values())

    @property
    def is_whole(self) -> bool:
        """Whether the logs were read to their ends, and searched everywhere."""
        return all(log.error is None and log.blind is None for log in self.logs)

    @property
    def error_type(self) -> str | None:
        """`none` where nothing failed; None where that is unknown."""
        if self.verdict:
            return self.verdict.error_type
        return "none" if self.is_whole else None


def of_one(log: Log) -> Finding:
    """Return the finding of one log."""
    verdict = diagnose(log.matches, progress=log.moves)
    others = verdict.also if verdict else _one_of_each(log.matches)
    return Finding(log.name, verdict, others, log.progress, (log,))


def of_ranks(logs: Sequence[Log]) -> Finding:
    """Return the finding of the logs of one attempt's ranks; progress is that of the furthest rank."""
    verdict = diagnose_ranks([log.matches for log in logs], progress=[log.moves for log in logs])
    files = {id(match): log.name for log in logs for match in log.matches}
    others = verdict.also if verdict else _one_of_each([match for log in logs for match in log.matches])
    furthest = max(logs, key=lambda log: -1 if log.progress.step is None else log.progress.step)
    file = files[id(verdict.evidence[0])] if verdict else furthest.name
    return Finding(file, verdict, others, furthest.progress, tuple(logs), files)


def _one_of_each(matches: Sequence[Match]) -> tuple[Match, ...]:
    first: dict[str, Match] = {}
    for match in matches:
        if match.signal.role != "event":
            first.setdefault(match.signal.name, match)
    return tuple(first.values())
