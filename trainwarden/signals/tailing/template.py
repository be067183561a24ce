"""Where a run's logs are, as a pattern that names the run: `/logs/{run_id}/*.out`, `/scratch/slurm-%A_%a.out`."""

import contextlib
import fnmatch
import glob
import heapq
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trainwarden.identity import InvalidRunId, check_run_id

MAX_PATHS = 4096
# Names in a folder of the logs of many runs of which the newest are found.
MAX_LOOKED = 65_536
_TOKEN = re.compile(r"\{(?P<name>[A-Za-z_]\w*)\}|%(?P<width>\d{0,2})(?P<letter>[A-Za-z%])")
_WILD = re.compile(r"[*?\[]")
# What sbatch and srun put into file names.
_LETTERS = {
    "j": "job_id", "J": "job_step", "A": "array_job_id", "a": "array_task_id", "N": "host", "n": "node_number",
    "t": "task", "s": "step", "x": "job_name", "u": "user",
}  # fmt: skip
_NAMES = frozenset(_LETTERS.values()) | {"run_id", "attempt"}
_OF_THE_RUN = frozenset(("run_id", "job_id", "job_step", "array_job_id"))
# One of these is expected where a run is to be named; shown to users.
EXPECTED_RUN = "expected one of {run_id}, {job_id}, %j, %A in it"
# Matched by a wildcard where unknown: the run's id in the same name still makes it unique.
_ANYTHING = frozenset(("host", "node_number", "task", "step", "job_name", "user"))


class InvalidTemplate(ValueError):
    """A template that cannot be used; the message has what was expected."""


@dataclass(frozen=True)
class Template:
    """A pattern of paths. `parse` makes one.

    Attributes:
        names_run: whether the files of two runs differ.
        names_node: whether the files of two nodes differ.
        root: the folder that contains every file that it can match.
    """

    text: str
    names_run: bool
    names_node: bool
    root: str

    @staticmethod
    def parse(text: str) -> "Template":
        """Read a template.

        Raises:
            InvalidTemplate: it is no absolute path, or has a name in braces that is not known.
        """
        if not text.startswith("/") or "\0" in text or ".." in text.split("/"):
            raise InvalidTemplate(f"{text!r} is no template of logs: expected an absolute path without ..")
        names = set()
        for match in _TOKEN.finditer(text):
            name = match["name"] or _LETTERS.get(match["letter"], "")
            if match["name"] and name not in _NAMES:
                raise InvalidTemplate(f"{text!r}: {{{name}}} is none of {', '.join(sorted(_NAMES))}")
            names.add(name)
        fixed = text[
            : min((match.start() for match in (_TOKEN.search(text), _WILD.search(text)) if match), default=None)
        ]
        return Template(text, bool(names & _OF_THE_RUN), "host" in names, fixed[: fixed.rfind("/")] or "/")

    def paths(self, values: Mapping[str, str]) -> list[str]:
        """Return the files of a run that exist; a pattern without wildcards is returned whether its file exists or not.

        Args:
            values: of `run_id`, `job_id`, `array_job_id`, `array_task_id`, `host`, `job_name`, `user`, `attempt`. What
                cannot be part of a file's name counts as unknown.
        """
        usable = {name: value for name, value in values.items() if _is_part(value)}
        parts, end = [], 0
        for match in _TOKEN.finditer(self.text):
            value = _value(match, usable)
            if value is None:
                return []
            parts += [self.text[end : match.start()], value]
            end = match.end()
        pattern = "".join((*parts, self.text[end:]))
        if not glob.has_magic(pattern):
            return [pattern]
        return sorted(itertools.islice(_matching("", pattern.split("/")[1:]), MAX_PATHS))

    def runs(self, most: int = MAX_PATHS) -> Iterator[str]:
        """Yield the ids of the runs that have files by this template; none if it does not contain `{run_id}`.

        Where more than `most` names in a folder may be those of runs, the ones that were changed last come first: logs
        are kept for months.
        """
        if "{run_id}" not in self.text:
            return
        pattern, expression, end = [], [], 0
        named = False
        for match in _TOKEN.finditer(self.text):
            literal = self.text[end : match.start()]
            pattern += [literal, "*"]
            expression += [
                _expression(literal),
                "(?P<run_id>[^/]+?)" if match["name"] == "run_id" and not named else "[^/]*",
            ]
            named = named or match["name"] == "run_id"
            end = match.end()
        matcher = re.compile("".join((*expression, _expression(self.text[end:]))))
        pattern.append(self.text[end:])
        found: set[str] = set()
        newest = Newest(self.text.partition("{run_id}")[0].count("/") - 1, most)
        for path in itertools.islice(_matching("", "".join(pattern).split("/")[1:], newest), MAX_LOOKED):
            if (named_by := matcher.fullmatch(path)) and named_by["run_id"] not in found:
                if len(found) == most:
                    return
                found.add(named_by["run_id"])
                try:
                    yield check_run_id(named_by["run_id"])
                except InvalidRunId:
                    continue


class Newest(NamedTuple):
    """Which part of a pattern names a run, counted from the present one, and how many names of a folder are wanted."""

    part: int
    most: int

    def of(self, entries: Iterator[os.DirEntry[str]]) -> Iterable[os.DirEntry[str]]:
        """Return the entries of the present part; where they name more runs than wanted, those that were changed last.

        Where there are no more, none is looked at: on a network file system that takes a request each.
        """
        if self.part != 0:
            return entries
        first = list(itertools.islice(entries, self.most))
        others = list(itertools.islice(entries, 1))
        if not others:
            return first
        entries = itertools.islice(entries, max(0, MAX_LOOKED - self.most))
        return heapq.nlargest(self.most, itertools.chain(first, others, entries), key=_modified)

    def below(self) -> "Newest":
        """Return the same for the next part."""
        return self._replace(part=self.part - 1)


_ALL = Newest(-1, 0)


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _matching(folder: str, parts: list[str], newest: Newest = _ALL) -> Iterator[str]:
    """Yield the paths in a folder that match the parts of a pattern, as `glob.iglob` does, which lists a folder whole.

    A folder of a user may hold a million names.
    """
    part, *rest = parts
    if not glob.has_magic(part):
        path = f"{folder}/{part}"
        if rest:
            yield from _matching(path, rest, newest.below())
        elif os.path.lexists(path):
            yield path
        return
    matches = re.compile(fnmatch.translate(part)).match
    with contextlib.suppress(OSError), os.scandir(folder or "/") as entries:
        named = (each for each in entries if part.startswith(".") or not each.name.startswith("."))
        for entry in newest.of(each for each in named if matches(each.name)):
            path = f"{folder}/{entry.name}"
            if rest:
                yield from _matching(path, rest, newest.below())
            else:
                yield path


def _value(match: "re.Match[str]", values: Mapping[str, str]) -> str | None:
    """Return the value of a token; None if unknown."""
    if match["letter"] == "%":
        return "%"
    name = match["name"] or _LETTERS.get(match["letter"])
    if name is None:
        return glob.escape(match[0])
    if name == "array_job_id" and name not in values:
        name = "job_id"
    if name == "array_task_id" and name not in values and "array_job_id" not in values:
        return "*"
    if name == "job_step" and "job_id" in values:
        return glob.escape(values["job_id"]) + "*"
    if name not in values:
        return "*" if name in _ANYTHING else None
    value = values[name]
    return glob.escape(value.zfill(int(match["width"])) if match["width"] and value.isdigit() else value)


def _is_part(value: str) -> bool:
    return bool(value) and "/" not in value and "\0" not in value and value not in (".", "..")


def _expression(text: str) -> str:
    """Return a literal piece of a template, with its wildcards, as a regular expression."""
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in text)
