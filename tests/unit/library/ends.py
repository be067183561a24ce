"""Scripts that end in one way or another, with a `with` block and without."""

import subprocess
from typing import Any

import pytest

from tests.unit.library.looking import read_snapshot
from tests.unit.library.processes import Script

KEY = "local:77:0"


WITH = """
    import os, signal, sys, time, trainwarden
    with trainwarden.run("r", total_steps=3) as run:
        for number in (1, 2, 3):
            run.step(number, loss=0.5)
        {end}
"""

WITHOUT = """
    import os, signal, sys, time, trainwarden
    run = trainwarden.run("r", total_steps=3)
    for number in (1, 2, 3):
        trainwarden.step(number, loss=0.5)
    {end}
"""

STYLES = pytest.mark.parametrize("style", [pytest.param(WITH, id="with"), pytest.param(WITHOUT, id="without with")])


def end_by(script: Script, style: str, end: str, **environment: str) -> "tuple[subprocess.CompletedProcess[str], Any]":
    """Run the script in a style to its end; what came of it, and the record."""
    done = script.run(style.format(end=end), **environment)
    return done, read_snapshot(script.folder)
