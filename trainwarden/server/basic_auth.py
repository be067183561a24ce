"""Users of basic authentication, each with the bcrypt hash of a password."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import threading
from typing import TYPE_CHECKING

import bcrypt

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VERIFIED = 100


class BasicAuthUsers:
    """Checks the header `Authorization` against users and the bcrypt hashes of their passwords.

    A hash costs a tenth of a second by design, so a password that was right once is kept as a keyed digest and costs
    nothing again. A wrong one costs that time each time, and an unknown user as much as a known one.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        # The costliest, so that the answer for an unknown user takes at least as long as for any other.
        self._stand_in = max(self._hashes.values(), key=lambda text: text.split(b"$")[2])
        self._secret = os.urandom(32)
        self._verified: set[bytes] = set()
        self._lock = threading.Lock()  # one at a time: guessing may cost one core, not all

    def admit(self, authorization: str) -> bool:
        """Return whether a header `Authorization` names a user with the right password."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return bool(colon) and self._verify(user, password.encode())

    def _verify(self, user: str, password: bytes) -> bool:
        known = self._hashes.get(user)
        digest = hmac.digest(self._secret, b"\0".join((user.encode(), known or b"", password)), "sha256")
        if known is not None and digest in self._verified:
            return True
        with self._lock:
            right = _matches(password, known or self._stand_in) and known is not None
            if right:
                if len(self._verified) >= MAX_VERIFIED:
                    self._verified.clear()
                self._verified.add(digest)
        return right


def _matches(password: bytes, text: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, text)
    except ValueError:  # longer than bcrypt takes
        return False
