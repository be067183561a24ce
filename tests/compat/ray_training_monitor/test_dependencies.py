"""No package but this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TITLE = "Training Monitor Skill"
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import trainwarden
assert "trainwarden.ray" not in sys.modules, "a training does not need it"
from trainwarden.ray import auto_restart
assert "ray" not in sys.modules
"""


@pytest.mark.seed(TITLE, "Installation")
@pytest.mark.seed(TITLE, "Dependencies")
@pytest.mark.process
def test_the_import_needs_the_standard_library_alone() -> None:
    """Without any folder of installed packages."""
    subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], check=True)
