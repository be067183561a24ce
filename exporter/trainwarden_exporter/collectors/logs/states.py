"""What the signals of a user's own pack state of an attempt that runs: that it crashed, hangs, timed out, succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwarden.signals.diagnosis import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainwarden.signals.tailing.log import Seen, TailedLog

# By the state of a signal; each but success is a failure mode that policies have restarts for.
_SUCCESS = "success"
_STATES = {"CrashState": "crash", "StalledState": "stall", "TimeoutState": "timeout", "SuccessState": _SUCCESS}


def stated_by(logs: Iterable[TailedLog]) -> dict[str, Seen]:
    """Return, by state, the earliest record that states it, without what the attempt has survived."""
    found: dict[str, Seen] = {}
    for log in logs:
        users = [one for one in log.seen if one.match.signal.state and not one.match.signal.shipped]
        for name, state in _STATES.items():
            stating = [one for one in users if one.match.signal.state == name]
            first = stating[0] if state == _SUCCESS and stating else _cause(stating, log.moves)
            if first is not None and (state not in found or first.time < found[state].time):
                found[state] = first
    return found


def _cause(stating: Sequence[Seen], moves: Sequence[int]) -> Seen | None:
    verdict = diagnose([one.match for one in stating], progress=moves) if stating else None
    if verdict is None:
        return None
    cause = verdict.evidence[0]
    return next(
        one for one in stating if (one.match.offset, one.match.signal.name) == (cause.offset, cause.signal.name)
    )
