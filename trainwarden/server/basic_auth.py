"""Users of basic authentication, each with the bcrypt hash of a password."""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

import bcrypt

from trainwarden.server.guesses import Turns
from trainwarden.server.messages import credentials_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_RIGHT = 100
_MAX_WRONG = 1000


class BasicAuthUsers:
    """Checks the header `Authorization` against users and the bcrypt hashes of their passwords.

    A hash costs a tenth of a second by design. So what was checked is remembered by a keyed digest, and costs nothing
    again: what was right apart from what was wrong, of which a guesser can have any number. Hashes are computed one at
    a time, for the clients in turn: guessing may cost one core, not all, and no client waits for more than one guess of
    each other one.

    An unknown user is checked against the hash of one that is known, always the same, so that no difference in time
    shows which there are.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        self._stand_ins = sorted(self._hashes.values())
        self._secret = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._turns = Turns()

    def admit(self, authorization: str, client: str = "") -> bool:
        """Return whether a header `Authorization` names a user with the right password.

        Raises:
            TooManyGuesses: so many passwords wait to be checked, of this client or of all, that this one is not.
        """
        named = credentials_of(authorization)
        return named is not None and self._verify(named[0], named[1].encode(), client)

    def close(self, seconds: float) -> None:
        """Check no more passwords; wait for the check under way, so many seconds at most.

        The interpreter's end in the middle of one would abort the process.
        """
        self._turns.close(seconds)

    def _verify(self, user: str, password: bytes, client: str) -> bool:
        digest = self._digest(user.encode() + b":" + password)  # no user has a colon
        known = self._remembered(digest)
        if known is not None:
            return known
        with self._turns.turn(client):
            known = self._remembered(digest)  # another request with the same one may have been before
            if known is not None:
                return known
            right = _matches(password, self._hashes.get(user) or self._stand_in(user)) and user in self._hashes
            memory, most = (self._right, _MAX_RIGHT) if right else (self._wrong, _MAX_WRONG)
            memory[digest] = None
            if len(memory) > most:
                memory.popitem(last=False)
        return right

    def _remembered(self, digest: bytes) -> bool | None:
        if digest in self._right:
            return True
        return False if digest in self._wrong else None

    def _stand_in(self, user: str) -> bytes:
        return self._stand_ins[int.from_bytes(self._digest(user.encode())[:8], "big") % len(self._stand_ins)]

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, "sha256")


def _matches(password: bytes, text: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, text)
    except ValueError:  # longer than bcrypt takes
        return False
