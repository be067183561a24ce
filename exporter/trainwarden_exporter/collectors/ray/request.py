"""GET requests to Ray's dashboard. Stands alone: in a head pod its source is handed to the Python that is there."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

CONNECTION, TIMEOUT, TOO_LARGE = "connection", "timeout", "too_large"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a token must not go where an answer points."""

    def redirect_request(self, *_: Any) -> None:
        """Return none."""


def get(
    url: str, headers: dict[str, str], seconds: float, limit: int, context: ssl.SSLContext | None = None
) -> tuple[int, bytes, str]:
    """Return status, body of at most `limit` bytes and, if there is none that is whole, why; never by a proxy."""
    until = time.monotonic() + seconds
    handlers = [urllib.request.ProxyHandler({}), NoRedirect(), urllib.request.HTTPSHandler(context=context)]
    try:
        with urllib.request.build_opener(*handlers).open(_request(url, headers), timeout=max(seconds, 0.05)) as answer:
            body = bytearray()
            while len(body) <= limit:
                if time.monotonic() > until:
                    return answer.status, b"", TIMEOUT
                chunk = answer.read1(65536)
                if not chunk:
                    return answer.status, bytes(body), _cut_off(len(body), answer.headers.get("Content-Length"))
                body += chunk
            return answer.status, b"", TOO_LARGE
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, b"", ""
    except Exception as error:  # noqa: BLE001  # http.client raises whatever a broken answer makes it raise
        reason = getattr(error, "reason", error)
        return 0, b"", TIMEOUT if isinstance(reason, (TimeoutError, socket.timeout)) else CONNECTION


def _request(url: str, headers: dict[str, str]) -> urllib.request.Request:
    # From a browser it would have the run ids of runtime environments masked.
    return urllib.request.Request(url, headers={"User-Agent": "trainwarden-exporter", **headers})  # noqa: S310  # http(s), checked where the flag is read


def _cut_off(length: int, promised: str | None) -> str:
    return CONNECTION if promised is not None and promised.isdigit() and length < int(promised) else ""


def get_all(ask: dict[str, Any], context: ssl.SSLContext | None = None) -> list[tuple[int, bytes, str]]:
    """Get each of `paths` below `url` with `headers`, in `seconds` altogether, at most `each` seconds for one."""
    until = time.monotonic() + ask["seconds"]
    answers = []
    for path in ask["paths"]:
        left = min(ask["each"], until - time.monotonic())
        found = get(ask["url"] + path, ask["headers"], left, ask["limit"], context) if left > 0 else (0, b"", TIMEOUT)
        answers.append(found)
        if found[2] == CONNECTION and len(answers) == 1:
            return answers * len(ask["paths"])
    return answers


def _token_of_the_pod() -> str:
    file = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"]
    try:
        return Path(file).read_text().strip() if file else ""
    except OSError:
        return ""


def main(stdin: IO[str], stdout: IO[bytes]) -> None:
    """Answer one question from `stdin`: for each path a line of JSON, `[status, error, length]`, and the body."""
    ask = json.load(stdin)
    if not ask["headers"] and _token_of_the_pod():
        ask["headers"] = {"Authorization": "Bearer " + _token_of_the_pod()}
    for status, body, error in get_all(ask):
        stdout.write(json.dumps([status, error, len(body)]).encode() + b"\n" + body)
    stdout.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout.buffer)
