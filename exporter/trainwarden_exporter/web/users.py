"""Who may read: users with a password, known by its bcrypt hash."""

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

MAX_REMEMBERED = 100


class Users:
    """Users by name, each with the bcrypt hash of a password.

    A hash costs a tenth of a second on purpose, so a password that was right is remembered, by a digest that nobody
    else can make. One that is wrong costs that time each time, and an unknown user as much as a known one.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        # Of the costliest, so that who asks for a user that there is not waits at least as long as for any other.
        self._stand_in = max(self._hashes.values(), key=lambda text: text.split(b"$")[2])
        self._secret = os.urandom(32)
        self._right: set[bytes] = set()
        self._lock = threading.Lock()  # one at a time: guessing may cost one core, not all

    def admit(self, authorization: str) -> bool:
        """Tell whether the value of a header `Authorization` is that of a user."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return bool(colon) and self._knows(user, password.encode())

    def _knows(self, user: str, password: bytes) -> bool:
        known = self._hashes.get(user)
        digest = hmac.digest(self._secret, b"\0".join((user.encode(), known or b"", password)), "sha256")
        if known is not None and digest in self._right:
            return True
        with self._lock:
            right = _matches(password, known or self._stand_in) and known is not None
            if right:
                if len(self._right) >= MAX_REMEMBERED:
                    self._right.clear()
                self._right.add(digest)
        return right


def _matches(password: bytes, text: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, text)
    except ValueError:  # longer than bcrypt takes
        return False
