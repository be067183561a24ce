"""`trainwarden exec -- COMMAND`: watches a command that cannot be changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from trainwarden.record.ownership import RunRefused
from trainwarden.wrapper.child import Signals
from trainwarden.wrapper.request import Misuse, parser, to_request
from trainwarden.wrapper.wrapped import Wrapped, say

MISUSE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its own status: 128 and more for a signal, 126 and 127 as a shell, 2 for misuse."""
    options = parser().parse_args(arguments)
    _open_what_is_closed()
    signals = Signals()
    try:
        return Wrapped(to_request(options), signals).run()
    except (Misuse, RunRefused) as error:
        say(str(error))
        return MISUSE
    finally:
        signals.restore()


def _open_what_is_closed() -> None:
    """Where we were started without one of the standard files, the next pipe must not take its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
