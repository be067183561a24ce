"""The command `trainwarden-exporter`, and `python -m trainwarden_exporter`."""

import signal
import sys

from trainwarden_exporter.signal_queue import REQUESTS


def main() -> int:
    """Run the exporter; a request that comes while it starts is acted upon once it runs, and does not end it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    from trainwarden_exporter.cli import main as run  # noqa: PLC0415  # what it imports takes most of a second

    return run()


if __name__ == "__main__":
    sys.exit(main())
