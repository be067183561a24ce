"""How often each signal was found in the logs of one run, though one output may be in several files."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwarden.signals.model import Match

# Distinct records that are kept: files that get the same output grow at nearly the same time.
KEPT_RECORDS = 256
# `srun --label` writes the number of the task before each line.
_LABEL = re.compile(r"\s*\d{1,7}: ")


class SignalCounts:
    """Counts records by signal.

    A source is the folder of the record, or one template: the files of one source are different outputs, while two
    sources may hold one, as the file of the scheduler does for which `trainwarden exec` keeps a copy. Of equal records
    in several sources those of the one that has most of them count.

    Attributes:
        totals: how often each signal was found, by its name.
    """

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._records: dict[str, dict[str, int]] = {}  # by signal and text: how many each source has

    def add(self, matches: Sequence[Match], source: str) -> None:
        """Count the matches of one piece of a log."""
        # Of a storm not every text is known.
        storms = {match.signal.name for match in matches if match.count > 1}
        for match in matches:
            name = match.signal.name
            key = name if name in storms else f"{name} {_digest(match.text)}"
            of_sources = self._records.pop(key, {})
            before = max(of_sources.values(), default=0)
            of_sources[source] = of_sources.get(source, 0) + match.count
            self._records[key] = of_sources
            if len(self._records) > KEPT_RECORDS:
                del self._records[next(iter(self._records))]
            self.totals[name] += max(0, of_sources[source] - before)

    def begin_attempt(self) -> None:
        """Count all records that come anew: the outputs of two attempts are different, whatever file they are in."""
        self._records.clear()

    def state(self) -> dict[str, Any]:
        """Return what `restore` takes, in types that JSON has."""
        return {"counts": dict(self.totals), "records": self._records}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state()`; one of an earlier version has no records.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none.
        """
        totals = Counter({str(name): int(count) for name, count in state["counts"].items()})
        self._records = {
            str(key): {str(source): int(count) for source, count in each.items()}
            for key, each in state.get("records", {}).items()
        }
        self.totals = totals


def _digest(text: str) -> str:
    from hashlib import blake2b  # noqa: PLC0415  # it loads OpenSSL, which few nodes need: when a signal is found

    shown = _LABEL.sub("", text, count=1) if _LABEL.match(text) else text
    return blake2b(shown.strip().encode("utf-8", "replace"), digest_size=8).hexdigest()
