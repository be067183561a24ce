"""Which signals the logs of a run are searched for, and where these logs are."""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
import time
from typing import TYPE_CHECKING

from trainwarden.record.folder import LOG
from trainwarden.signals.pack import PackError, load_pack, shipped_packs
from trainwarden.signals.tailing.log import Searcher
from trainwarden.signals.tailing.opening import is_inside
from trainwarden.signals.tailing.template import EXPECTED_RUN, MAX_PATHS, InvalidTemplate, Template
from trainwarden_exporter.collectors.logs.users_packs import UsersPacks
from trainwarden_exporter.core.memory import release_free_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trainwarden_exporter.collectors.logs.problems import LogProblems
    from trainwarden_exporter.core.shared_state import WatchedRun

# Of what has no effect in a user's pack, so much is logged.
MAX_WARNINGS = 5
# Of the path in a template of a record's: each lets a user list all folders at its place.
MAX_WILD = 3
MAX_LOOKED = 10_000
# A user of whose runs one took longer to find the logs has those of all found again after so many times as long.
QUICK_SECONDS = 0.1
PAUSE_FACTOR = 20.0
# The source of the logs in a run's record.
OF_RECORD = ""
_LOG = re.compile(r"[^.].*\.txt", re.DOTALL)
# The log of an earlier attempt, renamed by the next: it was read under its old name.
_RENAMED = re.compile(r"training_log_\d+_\d+\.txt")


class LogPacks:
    """The packs in use, each compiled once.

    Args:
        default: pack of the runs that name none, by name or file.
        templates: path templates for all runs.
        roots: folders in which a pack that a run names must lie.
        problems: counts what cannot be used.

    Raises:
        PackError: the default cannot be read.
    """

    def __init__(
        self, default: str, templates: Sequence[Template], roots: Sequence[str], problems: LogProblems
    ) -> None:
        self._default = default
        self._templates = templates
        self._roots = roots
        self._problems = problems
        self._looked: dict[str, bool] = {}
        # Until when a user's logs are not looked for, or those of a run without a record, by a monotonic clock.
        self._not_before: dict[int | str, float] = {}
        self._shipped = frozenset(shipped_packs())
        self._users = UsersPacks(roots)
        self._searchers = {default: _compiled(default)}

    @property
    def searchers(self) -> tuple[Searcher, ...]:
        """All searchers in use."""
        return (*self._searchers.values(), *self._users.searchers)

    def begin_round(self, runs: Iterable[WatchedRun]) -> None:
        """Forget the packs of users that none of these runs names."""
        named = ((run.owner, run.signals) for run in runs)
        self._users.begin_round({(owner, wanted) for owner, wanted in named if wanted and not self._is_ours(wanted)})

    def searcher_of(self, run: WatchedRun) -> Searcher | None:
        """Return the searcher of the pack that the run names, else of the default, also if that pack cannot be used.

        None while a user's pack is being read.
        """
        wanted = run.signals or self._default
        if wanted not in self._searchers and self._is_ours(wanted):
            self._searchers[wanted] = _compiled(wanted)
        if wanted in self._searchers:
            return self._searchers[wanted]
        try:
            searcher = self._users.get((run.owner, wanted))
        except PackError as error:
            self._problems.add("pack", f"{run.run_id}\0{wanted}", f"run {run.run_id}: signals: {error}")
            return self._searchers[self._default]
        for warning in searcher.pack.warnings[:MAX_WARNINGS] if searcher is not None else ():
            self._problems.note("pack", warning, warning)
        return searcher

    def _is_ours(self, wanted: str) -> bool:
        return wanted == self._default or wanted in self._shipped

    def log_paths(self, run: WatchedRun, searcher: Searcher) -> dict[str, str] | None:
        """Return the paths of a run's logs, each with its source: the record, or a template.

        None while its user's are not looked for: folders and patterns of a user may be of any size.
        """
        who = run.run_id if run.owner is None else run.owner
        if self._not_before and time.monotonic() < self._not_before.get(who, 0.0):
            return None
        if len(self._not_before) >= MAX_LOOKED:
            self._not_before.clear()
        self._not_before[who] = math.inf  # one that takes minutes is left behind in its thread
        began = time.thread_time()  # not of a clock: a slow file system is no work
        try:
            return self._found_paths(run, searcher)
        finally:
            took = time.thread_time() - began
            pause = PAUSE_FACTOR * took if took > QUICK_SECONDS else 0.0
            self._not_before.pop(who, None)
            if pause:
                self._not_before[who] = time.monotonic() + pause

    def _found_paths(self, run: WatchedRun, searcher: Searcher) -> dict[str, str]:
        paths: dict[str, str] = {}
        if run.folder is not None and run.owned:
            main = run.folder / LOG
            paths[str(main)] = OF_RECORD
            for name in _logs_in(main.parent):
                paths[str(main.parent / name)] = OF_RECORD
        for template in self._templates_of(run, searcher):
            if template.names_run and (run.owned or run.on_node or template.names_node):
                for path in template.paths(run.values):
                    paths.setdefault(path, template.text)
        return paths

    def _templates_of(self, run: WatchedRun, searcher: Searcher) -> list[Template]:
        templates = list(self._templates)
        pack = searcher.pack
        # Of a record in S3 it is not known whose logs its writer may name.
        stated = run.log_path if run.folder is not None else None
        for text in (stated, pack.log_path_template, *pack.output_paths):
            if not text:
                continue
            # SLURM's own are relative to a folder that only the job's owner knows.
            places = [""] if text.startswith("/") else [f"{root.rstrip('/')}/" for root in self._roots]
            try:
                named = [Template.parse(place + text) for place in places]
            except InvalidTemplate as error:
                self._problems.add("template", f"{run.run_id}\0{text}", f"run {run.run_id}: {error}")
                continue
            if not all(template.names_run for template in named):
                reason = f"run {run.run_id}: {text!r} names no run: {EXPECTED_RUN}"
                self._problems.add("template", f"{run.run_id}\0{text}", reason)
            for template in named:
                if self._may_look(template):
                    templates.append(template)
                else:
                    where = (
                        f"outside {', '.join(self._roots)}, or more than {MAX_WILD} folders of its path are patterns"
                    )
                    self._problems.add("outside", f"{run.run_id}\0{text}", f"run {run.run_id}: {text!r}: {where}")
        return templates

    def _may_look(self, template: Template) -> bool:
        """Return whether a template that a record or its pack names leads only to folders of logs, and to few."""
        known = self._looked.get(template.text)
        if known is None:
            if len(self._looked) >= MAX_LOOKED:
                self._looked.clear()
            wild = sum(glob.has_magic(part) for part in template.text.split("/"))
            known = self._looked[template.text] = wild <= MAX_WILD and is_inside(
                os.path.realpath(template.root), self._roots
            )
        return known


def _logs_in(folder: Path) -> list[str]:
    """Return the names of the logs in a record's folder of logs, of more than `MAX_PATHS` any."""
    try:
        with os.scandir(folder) as entries:  # one name after the other: there may be a million
            found = (
                entry.name for entry in entries if _LOG.fullmatch(entry.name) and not _RENAMED.fullmatch(entry.name)
            )
            return sorted(itertools.islice(found, MAX_PATHS))
    except OSError:
        return []


def _compiled(pack: str) -> Searcher:
    searcher = Searcher(load_pack(pack))
    # Compiling takes several MiB more than what is kept, which the allocator would never return.
    release_free_memory()
    return searcher
