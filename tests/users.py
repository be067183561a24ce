"""Users other than the one that runs the tests, for faults between users."""

from __future__ import annotations

import os

import pytest

# On every Linux there is `nobody`.
NOBODY = 65534
# A user without a name; files may belong to it.
ANOTHER = 60123

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users, which takes root")
