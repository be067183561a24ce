"""The file of `trainwarden actions`: which commands there are, and which events and signals start them."""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.actions.ledger import SBATCH
from trainwarden.actions.parameters import IDENTIFIER, Parameter, WrongValue, read_parameter
from trainwarden.errors import UsageError
from trainwarden.record.folder import runs_dir
from trainwarden.signals.pack import Pack, load_pack, shipped_packs
from trainwarden.signals.tailing.template import EXPECTED_RUN, InvalidTemplate, Template
from trainwarden.yaml_file import YamlValue, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EVENT, SIGNAL = "event", "signal"
# Events of the journal that this service writes: they start nothing.
NOTED = "signal_noted"
_KEYS = ("runs_dir", "signals", "log_paths", "actions")
_ACTION_KEYS = (
    "event", "signal", "command", "sbatch", "parameters", "once_per", "timeout", "max_running", "runs", "directory",
)  # fmt: skip
ONCE_PER = ("event", "arguments")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
# Known of every event; no value of a log.
_OF_THE_RUN = {name: Parameter(name, "identifier") for name in ("run_id", "job_id")}
_OF_THE_RUN["attempt"] = Parameter("attempt", "int")
_SHELLS = re.compile(r"(?:.*/)?(?:(?:ba|da|z|k|c|tc)?sh|python[0-9.]*|perl|ruby|awk|eval|xargs|env)")
_TIMEOUT, _MAX_TIMEOUT = 3600.0, 7 * 86400.0
_MAX_ACTIONS = 100


@dataclass(frozen=True)
class Action:
    """One command that may be run, and when.

    Attributes:
        argv: program and arguments, in which `{name}` stands for a parameter; for a submission, those of sbatch.
        submits: run by `sbatch`, whose own part of the command line is added.
        triggers: pairs of EVENT or SIGNAL and a name.
        parameters: by name.
        once_per: one of ONCE_PER: run once for each event, or once for each run and list of arguments.
        timeout: seconds of the command, or of sbatch.
        max_running: limit of those that run at the same time.
        runs: shell pattern of the runs.
        directory: working directory; None for one of its own below the state folder.
    """

    name: str
    argv: tuple[str, ...]
    submits: bool
    triggers: frozenset[tuple[str, str]]
    parameters: Mapping[str, Parameter]
    once_per: str = "event"
    timeout: float = _TIMEOUT
    max_running: int = 1
    runs: str = "*"
    directory: str | None = None

    def fits(self, run_id: str) -> bool:
        """Return whether it is for this run."""
        return fnmatchcase(run_id, self.runs)

    def arguments(self, fields: Mapping[str, str]) -> list[str]:
        """Return the command line for the fields of an event; one of a submission begins with `sbatch`.

        Raises:
            WrongValue: a field is missing or not of its type.
        """
        known = {**_OF_THE_RUN, **self.parameters}
        values: dict[str, str] = {}
        for name in sorted({name for part in self.argv for name in _PLACEHOLDER.findall(part)}):
            if name not in fields:
                raise WrongValue(f"{name}: the event has no such field, expected one of {', '.join(sorted(fields))}")
            values[name] = known[name].checked(fields[name])
        argv = [SBATCH] if self.submits else []
        for part in self.argv:
            argument = _PLACEHOLDER.sub(lambda match: values[match[1]], part)
            if argument.startswith("-") and not part.startswith("-"):
                raise WrongValue(f"{part}: {argument!r} would be an option, expected a value without - before it")
            argv.append(argument)
        return argv


@dataclass(frozen=True)
class Configuration:
    """What `trainwarden actions` does.

    Attributes:
        runs_dir: the folder of the run records.
        pack: the signals that are looked for in logs; None for none.
        templates: of more logs than those in the records.
        actions: by name.
        warnings: a line for each action of the signal file that is not carried out.
    """

    runs_dir: Path
    pack: Pack | None
    templates: tuple[Template, ...]
    actions: Mapping[str, Action]
    warnings: tuple[str, ...] = ()

    def triggered(self, kind: str, name: str, run_id: str) -> Iterator[Action]:
        """Yield the actions that an event or signal of a run starts."""
        for action in self.actions.values():
            if (kind, name) in action.triggers and action.fits(run_id):
                yield action

    def starts(self) -> Iterator[str]:
        """Yield a line for each action: what starts which command."""
        for action in self.actions.values():
            what = ", ".join(f"{kind} {name}" for kind, name in sorted(action.triggers)) or "nothing"
            how = f"{SBATCH} " if action.submits else ""
            yield f"{action.name}: {what} starts: {how}{shlex.join(action.argv)}"


def read_configuration(file: Path) -> Configuration:
    """Read the file.

    Raises:
        UsageError: it cannot be used, or users other than its owner may write it.
    """
    _check_owner(file)
    document = read_yaml(file)
    keys = document.mapping(_KEYS)
    pack = _pack(keys["signals"], file.parent) if "signals" in keys else None
    listed = keys["actions"].mapping() if "actions" in keys else {}
    if len(listed) > _MAX_ACTIONS:
        raise keys["actions"].wrong(f"at most {_MAX_ACTIONS} actions", f"{len(listed)} of them")
    actions = {name: _action(name, entry) for name, entry in listed.items()}
    warnings: list[str] = []
    if pack is not None:
        actions = _with_signals(actions, pack, warnings)
    unknown = [
        f"action {action.name}: {file.name} names no signals with {name!r}; it starts nothing"
        for action in actions.values()
        for kind, name in sorted(action.triggers)
        if kind == SIGNAL and (pack is None or name not in {signal.name for signal in pack.signals})
    ]
    runs = Path(keys["runs_dir"].absolute()) if "runs_dir" in keys else runs_dir()
    if not runs.is_dir():
        warnings.append(f"{runs}: there is no such folder, expected that of the run records")
    templates = tuple(_template(each) for each in keys["log_paths"].scalars()) if "log_paths" in keys else ()
    return Configuration(runs, pack, templates, actions, (*warnings, *unknown))


def _check_owner(file: Path) -> None:
    try:
        status = file.stat()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}, expected a file that this user can read") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{file}: uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}; "
            "expected a file of this user or root that nobody else may write"
        )


def _pack(entry: YamlValue, beside: Path) -> Pack:
    name = entry.scalar()
    shipped = name in shipped_packs()
    path = beside / name
    if not shipped:
        _check_owner(path)
    return load_pack(name if shipped else path)


def _action(name: str, entry: YamlValue) -> Action:
    if not re.fullmatch(IDENTIFIER, name, re.ASCII):
        raise entry.wrong(f"an action whose name matches {IDENTIFIER}", repr(name))
    keys = entry.mapping(_ACTION_KEYS)
    if ("command" in keys) == ("sbatch" in keys):
        raise entry.wrong("either command or sbatch, a list of arguments")
    line = keys["command" if "command" in keys else "sbatch"]
    argv = tuple(item.text for item in line.scalars("a list of arguments"))
    declared = keys["parameters"].mapping() if "parameters" in keys else {}
    parameters = {each: read_parameter(each, value) for each, value in declared.items()}
    submits = "sbatch" in keys
    _check_arguments(line, argv, parameters, submits=submits)
    triggers = {
        (kind, each.text)
        for kind in (EVENT, SIGNAL)
        if kind in keys
        for each in (keys[kind].items if keys[kind].kind == "list" else (keys[kind],))
        if each.scalar()
    }
    if (EVENT, NOTED) in triggers:
        raise keys["event"].wrong(f"another event: {NOTED} is written by this service")
    once_per = keys["once_per"].scalar() if "once_per" in keys else ONCE_PER[0]
    if once_per not in ONCE_PER:
        raise keys["once_per"].wrong(f"one of {', '.join(ONCE_PER)}")
    return Action(
        name,
        argv,
        submits,
        frozenset(triggers),
        parameters,
        once_per,
        _timeout(keys["timeout"]) if "timeout" in keys else _TIMEOUT,
        keys["max_running"].count(64) if "max_running" in keys else 1,
        keys["runs"].scalar() if "runs" in keys else "*",
        keys["directory"].absolute() if "directory" in keys else None,
    )


def _check_arguments(
    line: YamlValue, argv: tuple[str, ...], parameters: Mapping[str, Parameter], *, submits: bool
) -> None:
    if not argv:
        raise line.wrong("at least one argument", "an empty list")
    if not submits and (_PLACEHOLDER.search(argv[0]) or not argv[0].startswith("/")):
        raise line.items[0].wrong("an absolute path of a program")
    known = {*_OF_THE_RUN, *parameters}
    after_shell = False
    for item in line.items:
        found = _PLACEHOLDER.findall(item.text)
        for name in found:
            if name not in known:
                raise item.wrong(f"{{{name}}} among the parameters, or one of {', '.join(sorted(_OF_THE_RUN))}")
        # Whatever its type: what a shell or an interpreter reads as a program holds no foreign text.
        if found and (after_shell or item.text.startswith("--wrap")):
            raise item.wrong("a script with arguments: a program text may hold no parameter")
        if submits and item.text in {"--wrap", "--uid", "--gid"}:
            raise item.wrong("a script with arguments")
        after_shell = item.text in {"-c", "-e"} and any(_SHELLS.fullmatch(each) for each in argv)


def _with_signals(actions: Mapping[str, Action], pack: Pack, warnings: list[str]) -> dict[str, Action]:
    """Return the actions with the signals whose `ExecutionAction` has the command of one of them."""
    found = dict(actions)
    for signal in pack.signals:
        for each in signal.actions:
            if each.get("class_name") != "ExecutionAction":
                continue
            wanted = _named(found, each)
            if wanted is None:
                warnings.append(
                    f"{signal.source}: signal {signal.name}: ExecutionAction: its command is in no action of the "
                    "configuration, and is not run"
                )
            else:
                action = found[wanted]
                found[wanted] = Action(
                    **{**vars(action), "triggers": action.triggers | {(SIGNAL, signal.name)}},
                )
    return found


def _named(actions: Mapping[str, Action], entry: Mapping[str, Any]) -> str | None:
    """Return the name of the action that an `ExecutionAction` means: by `action`, else by its whole command."""
    if "action" in entry:
        name = str(entry["action"])
        return name if name in actions else None
    command = entry.get("command")
    try:
        argv = shlex.split(command) if isinstance(command, str) else [str(part) for part in command or ()]
    except (ValueError, TypeError):
        return None
    for action in actions.values():
        if argv == [*((SBATCH,) if action.submits else ()), *action.argv]:
            return action.name
    return None


def _template(entry: YamlValue) -> Template:
    try:
        template = Template.parse(entry.text)
    except InvalidTemplate as error:
        raise UsageError(f"{entry.place}: key {entry.key}: {error}") from None
    if not template.names_run:
        raise entry.wrong(EXPECTED_RUN)
    return template


def _timeout(entry: YamlValue) -> float:
    seconds = entry.seconds()
    if seconds > _MAX_TIMEOUT:
        raise entry.wrong("at most 7d")
    return seconds
