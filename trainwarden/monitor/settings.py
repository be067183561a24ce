"""The settings of a monitor from the environment, and from the `.env` file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainwarden.errors import UsageError
from trainwarden.regular_file import read_regular_file

# What is taken from `.env`: no other name in it has an effect.
NAMES = (
    "MONITORING_BUCKET",
    "MONITORING_REGION",
    "STALE_MINUTES",
    "SLACK_WEBHOOK_URL",
    "SNS_TOPIC_ARN",
    "TRAINWARDEN_S3_URL",
    "TRAINWARDEN_RUNS_DIR",
)
_MAX_BYTES = 65_536


def read_settings(env_file: Path | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment, completed by what `.env` sets of `NAMES`; a variable that is set already counts.

    Args:
        env_file: that must exist; `.env` of the working folder if None, where it belongs to this user or to root.
        environ: variables.

    Raises:
        UsageError: the file cannot be read, or a line of it is no assignment.
    """
    path = env_file or Path(".env")
    try:
        if env_file is None and path.stat().st_uid not in (os.geteuid(), 0):
            return dict(environ)
        text = read_regular_file(path, _MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        if env_file is None:
            return dict(environ)
        raise UsageError(f"--env-file: {path}: {error.strerror}") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().removeprefix("export ").strip()
        if not words or words.startswith("#"):
            continue
        name, equals, value = words.partition("=")
        if not equals or not name.strip().isidentifier():
            if env_file is None:
                continue
            raise UsageError(f"--env-file: {path}, line {number}: expected NAME=VALUE")
        if name.strip() in NAMES:
            found[name.strip()] = _unquoted(value.strip())
    return {**found, **environ}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()
