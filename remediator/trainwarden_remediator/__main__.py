"""`python -m trainwarden_remediator`."""

import sys

from trainwarden_remediator.cli import main

sys.exit(main())
