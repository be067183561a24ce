"""The commands that read or change the database beside a running remediator: what is shown, and their exit statuses."""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from trainwarden.record.clock import to_iso
from trainwarden_remediator.commands.replay import replay_database, replay_log
from trainwarden_remediator.database import audit
from trainwarden_remediator.database.database import FILE, DatabaseUnusable, open_database, open_read_only
from trainwarden_remediator.errors import ConfigError, StoreError
from trainwarden_remediator.incidents.incident import as_json, as_text, clean
from trainwarden_remediator.incidents.incident_rows import acknowledge, named, read_log
from trainwarden_remediator.policies.policy import Policy
from trainwarden_remediator.store.adoptions import adopt
from trainwarden_remediator.store.answers import answer_approval
from trainwarden_remediator.store.explain import account_as_json, account_as_text, account_of, decided_by
from trainwarden_remediator.store.score import read_scores, score_as_json, score_as_text
from trainwarden_remediator.store.switches import FREEZE, find, freeze, resume, unfreeze

PROGRAM = "trainwarden-remediator"
_MAX_LISTED = 10


def show_decisions(state_dir: Path, run_id: str | None, *, as_data: bool) -> int:
    """Print what was decided and done; 0 also where nothing was."""
    with _reading(state_dir) as connection:
        found = read_log(connection, run_id)
        known = decided_by(connection, [incident.id for incident, _ in found]) if as_data else {}
    if as_data:
        _print([{**as_json(incident, events), **known[incident.id]} for incident, events in found])
    else:
        print(as_text(found), end="")
        if not found:
            _complain(f"{state_dir}: no decision{f' about {run_id}' if run_id else ''} yet")
    return 0


def explain(state_dir: Path, about: str, *, as_data: bool) -> int:
    """Print what is on record about a run, an alert or an incident; 1 where nothing is."""
    with _reading(state_dir) as connection:
        account = account_of(connection, about, state_dir.absolute(), time.time())
    if as_data:
        _print(account_as_json(account))
    else:
        print(account_as_text(account), end="")
    if account.is_empty:
        _complain(f"{clean(about)}: no alert, run or incident of this name is on record in {state_dir}")
    return 1 if account.is_empty else 0


def show_score(state_dir: Path, policy: str | None, since: float | None, *, as_data: bool) -> int:
    """Print what policies would have done about failures of the last `since` seconds; 0 also where there was none."""
    with _reading(state_dir) as connection:
        found = read_scores(connection, policy, 0.0 if since is None else time.time() - since)
    if as_data:
        _print([score_as_json(score) for score in found.values()])
    else:
        print("\n".join(score_as_text(score) for score in found.values()), end="")
        if not found:
            _complain(f"{state_dir}: no decision to score yet")
    return 0


def answer_restart(state_dir: Path, incident: str, answer: str, *, as_data: bool) -> int:
    """Approve or veto a restart that waits for a person; return 1 where no approval is pending."""
    with _writing(state_dir) as connection:
        incident = _whole_id(connection, incident)
        problem = answer_approval(connection, incident, answer, _caller(), time.time())
    if as_data:
        _print({"incident": incident, "answer": answer, "problem": problem})
    elif problem is None:
        print(f"{answer}: incident {clean(incident, 64)}")
    if problem is not None:
        _complain(f"{clean(incident, 64)}: {problem}")
    return 0 if problem is None else 1


def replay_record(state_dir: Path, policy: Policy, run_id: str | None, *, as_data: bool) -> int:
    """Print what a policy would have done with the failures on record; 0 also where there are none."""
    with _reading(state_dir) as connection:
        found = list(replay_database(connection, policy, run_id))
    if as_data:
        _print([each.as_json() for each in found])
        return 0
    print("".join(each.as_text() for each in found), end="")
    if found:
        now, then = (sum(getattr(each, name) == "restart" for each in found) for name in ("now", "was"))
        print(f"{len(found)} failures: {now} restarts by policy {policy.name}, {then} restarts then")
    else:
        _complain(f"{state_dir}: no policy has decided anything yet")
    return 0


def replay_log_file(file: str, policy: Policy, mode: str, *, as_data: bool) -> int:
    """Print what a policy would have done with the failure of a log; 1 where the log shows none."""
    found = replay_log(file, policy, mode)
    if found is None:
        _complain(f"{clean(file)}: no failure was found")
        return 1
    if as_data:
        _print(found.as_json())
    else:
        print(found.as_text(), end="")
    return 0


def take_over(state_dir: Path, run_id: str | None, incident: str | None, *, as_data: bool) -> int:
    """End the pages of a run, or of one incident; 1 where nothing pages."""
    with _writing(state_dir) as connection:
        incident = None if incident is None else _whole_id(connection, incident)
        found = acknowledge(connection, run_id, _caller(), time.time(), incident)
    if as_data:
        _print([{"incident": each.id, "run_id": each.run_id, "attempt": each.attempt} for each in found])
    for each in () if as_data else found:
        print(f"acknowledged: run {each.run_id} attempt {each.attempt}: {clean(each.reason, 1000)}")
    if not found:
        named = f"{clean(run_id)}: no incident of this run" if run_id else f"{clean(incident)}: no such incident"
        _complain(f"{named} pages")
    return 0 if found else 1


def accept(state_dir: Path, run_id: str, *, as_data: bool) -> int:
    """Let a run be restarted of which the database lacks restarts; 1 where it lacks none."""
    with _writing(state_dir) as connection:
        restarts = adopt(connection, run_id)
    if as_data:
        _print({"run_id": run_id, "restarts": restarts})
    elif restarts is not None:
        print(f"adopted: run {run_id} has been restarted {restarts} times; its budgets count those on record")
    if restarts is None:
        _complain(f"{clean(run_id)}: no restart of this run is missing")
    return 1 if restarts is None else 0


def stop_restarts(state_dir: Path, run_id: str, reason: str, seconds: float | None, *, as_data: bool) -> int:
    """Let nothing be restarted, of a run or, where `run_id` is empty, of any."""
    now, by = time.time(), _caller()
    until = None if seconds is None else now + seconds
    with _writing(state_dir) as connection:
        freeze(connection, run_id, by, reason, now, until)
        is_new = bool(run_id) and account_of(connection, run_id, state_dir, now).is_empty
    if is_new:
        _complain(f"run {run_id}: nothing is on record about it yet: is its id right?")
    if as_data:
        _print({"run_id": run_id or None, "by": by, "reason": reason, "until": until})
    else:
        print(f"frozen: {_scope(run_id)}, {f'until {to_iso(until)}' if until else 'until unfreeze'}")
    return 0


def allow_restarts(state_dir: Path, run_id: str, *, as_data: bool) -> int:
    """End what `freeze` began, and name what stays frozen by another freeze; 1 where nothing was frozen."""
    with _writing(state_dir) as connection:
        was_frozen = unfreeze(connection, run_id)
        others = find(connection, FREEZE, time.time())
    # A freeze of all runs holds for each; those of runs are ended one by one, as each may be of another person.
    stays = [each for each in others if not run_id or not each.scope]
    what = _scope(run_id)
    if as_data:
        shown = [{"run_id": each.scope or None, "by": each.by, "reason": each.reason} for each in stays]
        _print({"run_id": run_id or None, "was_frozen": was_frozen, "still_frozen": shown})
    elif was_frozen:
        print(f"no longer frozen: {what}")
    if not was_frozen:
        _complain(f"{what}: not frozen")
    for each in stays:
        _complain(f"{_scope(each.scope)} {'is' if each.scope else 'are'} still {each.text}")
    return 0 if was_frozen else 1


def _scope(run_id: str) -> str:
    return f"run {clean(run_id)}" if run_id else "all runs"


def end_storms(state_dir: Path, *, as_data: bool) -> int:
    """End all storms: what waits is restarted; 1 where there is none."""
    with _writing(state_dir) as connection:
        ended = resume(connection, _caller(), time.time())
    if as_data:
        _print({"ended": [{"cluster": each.scope, "reason": each.reason, "since": each.at} for each in ended]})
    else:
        for each in ended:
            print(f"over: {each.text}")
    if not ended:
        _complain("there is no storm")
    return 0 if ended else 1


def verify_audit(state_dir: Path, expected: str | None, *, as_data: bool) -> int:
    """Verify the chain of the decision log; 1 where a row does not fit."""
    try:
        noted = audit.Head.parse(expected) if expected else None
    except ValueError as error:
        raise ConfigError([f"--expect: {expected!r}: {error}"]) from None
    with _reading(state_dir) as connection:
        verdict = audit.verify(connection, noted)
    if as_data:
        broken = verdict.broken and {"row": verdict.broken[0], "reason": verdict.broken[1]}
        shown = {"rows": verdict.rows, "unchained": verdict.unchained, "head": verdict.head and str(verdict.head)}
        _print({**shown, "broken": broken})
    elif verdict.broken is None:
        older = f", after {verdict.unchained} older ones without a hash" if verdict.unchained else ""
        print(f"{verdict.rows} rows fit{older}; head {verdict.head or 'none'}")
    else:
        _complain(f"{state_dir}: row {verdict.broken[0]}: {verdict.broken[1]}; {verdict.rows} rows before it fit")
    return 0 if verdict.broken is None else 1


def _whole_id(connection: sa.Connection, text: str) -> str:
    """Return the id that begins so, or `text` where none does; raise ConfigError where several do."""
    found = named(connection, text)
    if len(found) > 1:
        shown = "; ".join(f"{each.id} of run {each.run_id}, {each.state.value}" for each in found[-_MAX_LISTED:])
        raise ConfigError([f"{clean(text, 64)}: {len(found)} incidents begin so, expected one: {shown}"])
    return found[0].id if found else text


@contextmanager
def _reading(state_dir: Path) -> Iterator[sa.Connection]:
    engine = open_read_only(state_dir)
    try:
        with _usable(state_dir), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _writing(state_dir: Path) -> Iterator[sa.Connection]:
    open_read_only(state_dir).dispose()  # where there is no database, none is made
    engine = open_database(state_dir)
    try:
        with _usable(state_dir), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _usable(state_dir: Path) -> Iterator[None]:
    """Raise StoreError where the database turns out to be damaged, locked or on a full disk."""
    try:
        yield
    except DatabaseUnusable as error:
        raise StoreError(str(error)) from None
    except SQLAlchemyError as error:
        problem = str(getattr(error, "orig", None) or error)
        if problem.startswith("no such "):  # table or column
            problem += ": of an older remediator. Starting the remediator of this version brings it up to date"
        raise StoreError(f"{state_dir / FILE}: {problem}") from None


def _caller() -> str:
    """Return who gives the command; a user of a container may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _print(value: object) -> None:
    print(json.dumps(value, indent=2))


def _complain(text: str) -> None:
    print(f"{PROGRAM}: {clean(text, 2000)}", file=sys.stderr)
