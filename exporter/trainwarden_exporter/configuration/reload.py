"""On SIGHUP: read the configuration again, and restart the collectors whose settings changed."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.sampling import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.collector_set import CollectorSet
    from trainwarden_exporter.core.metric import Families
    from trainwarden_exporter.release import Release
    from trainwarden_exporter.sampling.collection import Collection

log = logging.getLogger(__name__)


class Reload:
    """Applies changes of the configuration file to a running exporter."""

    def __init__(
        self,
        argv: Sequence[str],
        flags: dict[str, Any],
        collectors: CollectorSet,
        collection: Collection,
        release: Release,
    ) -> None:
        self._argv = argv
        self._flags = flags
        self._collectors = collectors
        self._collection = collection
        self._release = release
        self._is_current = True
        self._last_success = time.time()
        collection.extra.append(self._families)

    def read_again(self) -> None:
        """Read the configuration and apply it; where it is wrong, nothing changes."""
        try:
            flags = read_flags(self._argv)
            done = self._collectors.reconfigure(node_from_flags(flags), flags)
        except UsageError as error:
            self._is_current = False
            log.error("%s; what held before still holds", error)  # noqa: TRY400  # the user's mistake, in one line
            return
        except Exception:  # a fault of one collector must not end the others
            self._is_current = False
            log.exception("the configuration cannot be applied; what held before still holds")
            return
        finally:
            self._collection.runners = self._collectors.runners
        for name in sorted(flags):
            if name.startswith("web.") and flags[name] != self._flags[name]:
                log.warning("--%s is another now, which takes a restart", name.replace("_", "-"))
        self._release.seconds, self._release.file = flags["release.seconds"], flags["release.file"]
        logging.getLogger().setLevel(flags["log.level"].upper())
        self._flags = {name: self._flags[name] if name.startswith("web.") else flags[name] for name in flags}
        self._is_current, self._last_success = True, time.time()
        log.info("configuration read again: %s", done or "no collector changed")

    def _families(self, families: Families) -> None:
        if self._flags["config.file"] is not None:
            families.add(metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESSFUL, self._is_current, file="config")
            families.add(
                metrics.TRAINWARDEN_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS, self._last_success, file="config"
            )
