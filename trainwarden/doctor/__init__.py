"""`trainwarden doctor`: what is wrong with this installation, and the command that mends it. Changes nothing.

Each check has three answers: it is well, it is not, it cannot be seen from here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One answer. `ok` is None where it cannot be seen; `fix` is a command or a sentence, empty where all is well."""

    check: str
    ok: bool | None
    message: str
    fix: str = ""
