"""JSON over HTTP with a deadline, a size limit, no proxy, no redirect and no retry: retries belong to the caller."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from trainwarden_remediator.errors import Unreachable

_MAX_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Response:
    """A complete answer; `body` is None where it is no JSON."""

    status: int
    body: Any


class Fetch:
    """One service, from one thread. Raises Unreachable whenever there is no complete answer."""

    def __init__(self, base_url: str, timeout: float, token: str | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Response:
        """GET below the service's address."""
        return self._request("GET", path, params=params)

    def post(self, path: str, body: object) -> Response:
        """POST one JSON value."""
        return self._request("POST", path, json_body=body)

    def _request(
        self, method: str, path: str, params: Mapping[str, str] | None = None, json_body: object = None
    ) -> Response:
        deadline = time.monotonic() + self._timeout
        try:
            with self._session.request(
                method,
                self._base + path,
                params=params,
                json=json_body,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                content = bytearray()
                for chunk in response.iter_content(_CHUNK_BYTES):
                    content += chunk
                    if len(content) > _MAX_BYTES or time.monotonic() > deadline:
                        message = f"{self._base}{path}: the answer is too long or too slow"
                        raise Unreachable(message)
                return Response(response.status_code, _parse(bytes(content)))
        except requests.RequestException as error:
            message = f"{self._base}{path}: {type(error).__name__}"
            raise Unreachable(message) from error


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
