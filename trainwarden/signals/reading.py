"""Makes a signal from its entry in a pack; a wrong entry is left out with a warning."""

import re
import warnings as python_warnings
from collections.abc import Callable, Mapping
from typing import Any

from trainwarden.errors import UsageError
from trainwarden.signals.model import PATTERN_TYPES, ROLES, STATES, Signal
from trainwarden.signals.patterns import compiled
from trainwarden.taxonomy import ACTIONS, FAILURES, FAULTS
from trainwarden.yaml_file import YamlValue, near_match

Warn = Callable[[str], None]

KEYS = frozenset((
    "name", "pattern", "pattern_type", "state", "actions", "metadata", "extract_groups", "role", "failure",
    "framework", "literals", "messages", "examples", "not", "enabled", "ignore_warnings",
))  # fmt: skip
_ACTIONS = frozenset(("ErrorNoteAction", "LogAction", "ExecutionAction", "RestartAction", "TerminationAction"))
_ROLE_OF_STATE = {"SuccessState": "event", "CrashState": "root", "StalledState": "root", "TimeoutState": "root"}
_ERROR_TYPE_OF_STATE = {"CrashState": "exception", "StalledState": "hang", "TimeoutState": "time_limit"}


class _Wrong(ValueError):
    """An entry is no signal; the message names the reason."""


def read_signal(entry: YamlValue, shipped: bool, warn: Warn) -> Signal | None:
    """Return the signal of an entry; None, and a warning that names the place, where the entry is none."""
    try:
        signal = _signal(entry, shipped, warn)
    except (_Wrong, UsageError) as error:
        warn(f"{entry.place}: {error}")
        return None
    if shipped:
        return signal  # tests check that its pattern is valid; compiling all of them takes half a second
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")
            found = compiled(signal)
    except Exception as error:  # noqa: BLE001  # re.error, regex.error, OverflowError, RecursionError of strangers' patterns
        warn(f"{entry.place}: signal {signal.name}: the pattern {signal.pattern!r} is no regular expression: {error}")
        return None
    del found
    return _with_known_groups(signal, entry.place, warn)


def _signal(entry: YamlValue, shipped: bool, warn: Warn) -> Signal:
    value = entry.data()
    if not isinstance(value, Mapping):
        raise _Wrong(f"a signal is a mapping with name and pattern, not {value!r:.60}")
    name, pattern = value.get("name"), value.get("pattern")
    if not isinstance(name, str) or not name:
        raise _Wrong(f"a signal needs a name; this one has {name!r:.60}")
    for key in value.keys() - KEYS:
        near = near_match(key, KEYS)
        meant = f"; did you mean {near}?" if near else ""
        warn(f"{entry.entries[key].place}: signal {name}: {key}: is not known and has no effect{meant}")
    if not isinstance(pattern, str) or not pattern:
        raise _Wrong(f"signal {name}: pattern: expected a text, not {pattern!r:.60}")
    if "messages" in value and not shipped:
        warn(f"{entry.entries['messages'].place}: signal {name}: messages: has an effect in shipped packs alone")
    metadata = _mapping(value, "metadata", name)
    state = _state(value.get("state"), name, entry.place, warn)
    failure = _known(value, "failure", FAILURES, name)
    error_type = _text(metadata.get("error_type"))
    return Signal(
        name=name,
        pattern=pattern,
        pattern_type=_known(value, "pattern_type", PATTERN_TYPES, name) or "regex",
        literals=tuple(str(text) for text in _list(value, "literals", name)),
        role=_known(value, "role", ROLES, name) or _ROLE_OF_STATE.get(state or "", "root" if failure else "event"),
        failure=failure,
        error_type=error_type or (None if failure else _ERROR_TYPE_OF_STATE.get(state or "")),
        subsystem=_text(metadata.get("subsystem")),
        severity=_text(metadata.get("severity")),
        fault=_known(metadata, "fault", FAULTS, name),
        action=_known(metadata, "action", ACTIONS, name),
        state=state,
        actions=_actions(value, name, entry.place, warn),
        metadata=metadata,
        extract_groups=_groups(value, name),
        framework=_text(value.get("framework")),
        source=entry.place,
        shipped=shipped,
        ignore_warnings=value.get("ignore_warnings") is True,
        messages=tuple(str(text) for text in _list(value, "messages", name)),
        examples=tuple(str(text) for text in _list(value, "examples", name)),
        counterexamples=tuple(str(text) for text in _list(value, "not", name)),
    )


def _with_known_groups(signal: Signal, place: str, warn: Warn) -> Signal | None:
    if signal.pattern_type == "substring":
        return signal
    known = re.compile(signal.pattern)
    for field, group in signal.extract_groups.items():
        fits = group <= known.groups if isinstance(group, int) else group in known.groupindex
        if not fits:
            warn(f"{place}: signal {signal.name}: extract_groups: {field}: the pattern has no group {group!r}")
            return None
    return signal


def _state(value: Any, name: str, place: str, warn: Warn) -> str | None:
    state = value.get("class_name") if isinstance(value, Mapping) else value
    if state is None:
        return None
    if state not in STATES:
        warn(f"{place}: signal {name}: state: {state!r} is none of {', '.join(STATES)}; it has no effect")
        return None
    return str(state)


def _actions(value: Mapping[str, Any], name: str, place: str, warn: Warn) -> tuple[Mapping[str, Any], ...]:
    actions = []
    for action in _list(value, "actions", name):
        each = action if isinstance(action, Mapping) else {"class_name": action}
        kind = each.get("class_name")
        if kind not in _ACTIONS:
            warn(f"{place}: signal {name}: actions: {kind!r} is not known and has no effect")
            continue
        if kind == "ExecutionAction" and "command" in each:
            warn(
                f"{place}: signal {name}: actions: ExecutionAction: `trainwarden actions` alone runs it, "
                "and only if its own configuration has the command"
            )
        actions.append(each)
    return tuple(actions)


def _groups(value: Mapping[str, Any], name: str) -> dict[str, str | int]:
    groups = {}
    for field, group in _mapping(value, "extract_groups", name).items():
        if isinstance(group, bool) or not isinstance(group, (str, int)) or (isinstance(group, int) and group < 0):
            raise _Wrong(
                f"signal {name}: extract_groups: {field}: expected a group's name or number, not {group!r:.60}"
            )
        groups[str(field)] = int(group) if isinstance(group, str) and group.isdecimal() else group
    return groups


def _known(value: Mapping[str, Any], key: str, known: Any, name: str) -> str | None:
    text = value.get(key)
    if text is None:
        return None
    if text not in known:
        raise _Wrong(f"signal {name}: {key}: {text!r} is none of {', '.join(known)}")
    return str(text)


def _mapping(value: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise _Wrong(f"signal {name}: {key}: expected a mapping, not {found!r:.60}")
    return found


def _list(value: Mapping[str, Any], key: str, name: str) -> list[Any]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise _Wrong(f"signal {name}: {key}: expected a list, not {found!r:.60}")
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
