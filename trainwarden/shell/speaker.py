"""For which run, attempt and rank a shell command speaks."""

# pathlib is slow to import.
# ruff: noqa: PTH100, PTH118

from __future__ import annotations

import os

from trainwarden.identity import InvalidAttemptKey, InvalidRunId, check_run_id, current_attempt_key, host_name, rank
from trainwarden.record.place import runs_place
from trainwarden.shell.arguments import Misuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from trainwarden.identity import AttemptKey

# Options that every command has.
OPTIONS: Mapping[str, Callable[[str], Any]] = {"--run-id": str, "--runs-dir": str}


class Speaker:
    """`folder` is that of the run."""

    __slots__ = ("environ", "folder", "host", "key", "rank", "run_id")

    def __init__(self, run_id: str, folder: str, key: AttemptKey, environ: Mapping[str, str]) -> None:
        self.run_id = run_id
        self.folder = folder
        self.key = key
        self.environ = environ
        self.rank = rank(environ)
        self.host = host_name()


def speaker(options: Mapping[str, Any], environ: Mapping[str, str], process: int | None = None) -> Speaker:
    """Who speaks.

    Args:
        options: `run-id` and `runs-dir`, where given.
        environ: of the shell.
        process: the shell's pid; our parent's if None. A launcher's or a scheduler's word comes before it.

    Raises:
        Misuse: no run is named, or a name or a variable is unusable.
    """
    run_id = options.get("run-id") or environ.get("TRAINWARDEN_RUN_ID")
    if not run_id:
        raise Misuse("no run is named; expected --run-id RUN_ID, or TRAINWARDEN_RUN_ID in the environment")
    try:
        check_run_id(run_id)
        key = current_attempt_key(environ, os.getppid() if process is None else process)
    except (InvalidRunId, InvalidAttemptKey) as error:
        raise Misuse(str(error)) from None
    given = options.get("runs-dir")
    runs = os.path.abspath(given) if given else runs_place(environ)
    return Speaker(run_id, os.path.join(runs, run_id), key, environ)
