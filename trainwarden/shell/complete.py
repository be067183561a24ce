"""`trainwarden complete`: a shell script's run has finished its work."""

from __future__ import annotations

import os

from trainwarden.record.folder import COMPLETE, METADATA, PROGRESS
from trainwarden.record.metadata import Metadata
from trainwarden.shell.arguments import Misuse, parse, whole
from trainwarden.shell.attempt import close_attempt, early_end, is_undisputed
from trainwarden.shell.command import OPTIONS, change_record, command_context, publish, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.shell.command import CommandContext

USAGE = """\
usage: trainwarden complete [--step N] [--run-id ID] [--runs-dir DIR]

Records that the run has finished its work. An attempt that has failed stays failed.
Status 1: nothing was recorded. 2 is misuse.
"""


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--step": whole})
        if others:
            raise Misuse(f"{others[0]!r}: only options were expected")
        context = command_context(options, os.environ)
        written = change_record(context, lambda: _complete_undisputed(context, options.get("step")))
        if written is not None:
            return publish(context, written)
        from trainwarden.shell.ending import SUCCEEDED, record_end  # noqa: PLC0415  # takes long to load

        return record_end(context, SUCCEEDED, step=options.get("step"))

    return run("complete", USAGE, body)


def _complete_undisputed(context: CommandContext, step: int | None) -> list[str] | None:
    """Record that the attempt has finished; None where there is evidence to weigh, which takes long to load.

    Returns:
        The names of the files that were written.

    Raises:
        OSError: the folder cannot be written.
    """
    values = context.store.values(METADATA)
    if not is_undisputed(context, Metadata.from_json(values)):
        return None
    progress = context.store.values(PROGRESS)
    if step is None and progress.get("attempt_key") == str(context.key):
        step = progress.get("step")
    context.store.record_completion(key=str(context.key), step=step)
    close_attempt(context, values, "succeeded", early_end(step, progress.get("total_steps")))
    return [METADATA, COMPLETE]
