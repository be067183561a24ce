"""`python -m trainwarden`."""

import sys

from trainwarden.cli import main

sys.exit(main())
