"""What the kernel's log tells of errors: it knows some that NVML does not, and those from before we came."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.nvidia.xid import parse_xid
from trainwarden_exporter.collectors.kernel.log import KernelLogUnreadable, Kmsg

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu.nvidia.ledger import Ledger

log = logging.getLogger(__name__)

SOURCE, SOURCE_IN_WORDS = "kernel", "kernel, in words"


class ErrorLog:
    """Counts the errors in the kernel's log; for one thread.

    What the log still holds at the first read is counted as well: a counter that begins anew begins where it was, and
    nothing in it looks new.
    """

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._log = Kmsg(path)
        self._ledger = ledger
        self._read_before = False
        self.readable: bool | None = None

    def read(self) -> None:
        """Count what is new."""
        try:
            lines = self._log.read()
        except KernelLogUnreadable as error:
            if self.readable is not False:
                log.warning("errors of GPUs are told by NVML alone: %s", error)
            self.readable = False
            return
        self.readable = True
        for line in lines:
            xid = parse_xid(line.text)
            if xid is not None:
                source = SOURCE_IN_WORDS if xid.in_words else SOURCE
                heard = time.time() if self._read_before else None
                self._ledger.report(xid.bus, xid.code, line.time, source, heard)
        self._read_before = True

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()
