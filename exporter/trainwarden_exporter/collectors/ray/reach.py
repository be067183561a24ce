"""How Ray's dashboard is asked, and the usual way to it: HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainwarden_exporter.collectors.ray import request
from trainwarden_exporter.core.files import read_plain
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

MAX_BODY = 32 * 2**20
MAX_TOKEN = 65536
UNAUTHORIZED, FORBIDDEN, STATUS, MALFORMED = "unauthorized", "forbidden", "status", "malformed"
REASONS = (request.CONNECTION, request.TIMEOUT, request.TOO_LARGE, UNAUTHORIZED, FORBIDDEN, STATUS, MALFORMED)


class Unreachable(Exception):
    """The dashboard could not be asked; one line that says why."""


class Answer(NamedTuple):
    """What came of one path: the HTTP status, 0 if there is none; the body, empty if `error` names a reason."""

    status: int
    body: bytes
    error: str


class Reach(Protocol):
    """Asks the dashboard."""

    def get(self, paths: Sequence[str]) -> list[Answer]:
        """Return an answer for each path; raises `Unreachable` if none can be had."""


@dataclass(frozen=True)
class Question:
    """What is the same in each sample.

    Attributes:
        url: of the dashboard, without a slash at its end.
        token_file: of the bearer token, read for each sample; None without one.
        seconds: for all paths together.
    """

    url: str
    token_file: Path | None
    seconds: float

    def ask(self, paths: Sequence[str]) -> dict[str, object]:
        """Return what `request.get_all` takes; raises `Unreachable` if there is no token in the file."""
        token = {"Authorization": f"Bearer {read_token(self.token_file)}"} if self.token_file else {}
        each = self.seconds * 0.4
        return {
            "url": self.url, "paths": list(paths), "headers": token,
            "seconds": self.seconds, "each": each, "limit": MAX_BODY,
        }  # fmt: skip


def read_token(path: Path) -> str:
    """Return the token in a file; raises `Unreachable`, and never says what else is in it."""
    try:
        token = read_plain(path, MAX_TOKEN).strip()
    except OSError as error:
        raise Unreachable(f"--collector.ray.token-file {path}: {error.strerror}") from None
    if not re.fullmatch(rb"[!-~]+", token):
        raise Unreachable(f"--collector.ray.token-file {path}: expected one token on one line")
    return token.decode()


class Direct:
    """Over HTTP."""

    def __init__(self, question: Question, context: ssl.SSLContext | None = None) -> None:
        self._question = question
        self._context = context

    def get(self, paths: Sequence[str]) -> list[Answer]:
        """Ask for one path after the other."""
        with calling("GET " + " ".join(path.partition("?")[0] for path in paths)):
            return [Answer(*found) for found in request.get_all(self._question.ask(paths), self._context)]
