"""On SIGHUP: read the configuration again, apply what can be while all goes on, and name what takes a restart."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import select_on
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.sampling import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.core.shared_state import ExpectedRuns
    from trainwarden_exporter.release import Release
    from trainwarden_exporter.sampling.collection import Collection

log = logging.getLogger(__name__)

APPLIED = ("expect.run", "log.level", "release.file", "release.seconds")


class Reload:
    """Reads the configuration file of a running exporter again, and applies what needs no collector to begin anew.

    Everything else takes a restart, which loses nothing: counts and places in logs are kept on disk. What collectors
    have in memory stays theirs.
    """

    def __init__(
        self,
        argv: Sequence[str],
        flags: dict[str, Any],
        expected: ExpectedRuns,
        collection: Collection,
        release: Release,
    ) -> None:
        self._argv = argv
        self._flags = flags
        self._expected = expected
        self._release = release
        self._is_current = True
        self._last_success = time.time()
        collection.extra.append(self._families)

    def read_again(self) -> None:
        """Read the configuration and apply what can be; where it is wrong, nothing changes."""
        try:
            flags = read_flags(self._argv)
            select_on(node_from_flags(flags), flags)
        except UsageError as error:
            self._is_current = False
            log.error("%s; what held before still holds", error)  # noqa: TRY400  # the user's mistake, in one line
            return
        self._release.seconds, self._release.file = flags["release.seconds"], flags["release.file"]
        logging.getLogger().setLevel(flags["log.level"].upper())
        if flags["expect.run"] != self._flags["expect.run"]:
            self._expected.keep("flag", flags["expect.run"], time.time())
        self._flags.update({name: flags[name] for name in APPLIED})
        waiting = [f"--{name.replace('_', '-')}" for name in sorted(flags) if flags[name] != self._flags[name]]
        self._is_current = not waiting
        if waiting:
            log.warning("configuration read again; these take a restart: %s", ", ".join(waiting))
            return
        self._last_success = time.time()
        log.info("configuration read again")

    def _families(self, families: Families) -> None:
        if self._flags["config.file"] is not None:
            families.add(metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESSFUL, self._is_current, file="config")
            families.add(
                metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS, self._last_success, file="config"
            )
