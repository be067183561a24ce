"""`python -m trainwarden_exporter`."""

import sys

from trainwarden_exporter.cli import main

if __name__ == "__main__":
    sys.exit(main())
