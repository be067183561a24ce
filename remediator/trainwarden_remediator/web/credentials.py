"""Who may send webhooks and read incidents: the bearer of the token, or a user of the web configuration."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from http import HTTPStatus

from trainwarden.server.guesses import TooManyGuesses
from trainwarden.server.messages import BadRequest, Request, credentials_of
from trainwarden.server.web_config import NoWebConfig, WebConfig
from trainwarden_remediator.web.reloading import Reloading

# The sender reads its copy of a new token a little earlier or later than the remediator.
ROTATION_SECONDS = 60.0


class Tokens:
    """A token that may be replaced: for a minute after that, the one before is valid, too.

    The file is looked at in each round of the loop: a token that was replaced is over also where no request came.
    """

    def __init__(self, token: Reloading[str]) -> None:
        self._token = token

    def valid(self) -> tuple[str, ...]:
        """Return the tokens that are valid now, the newest first."""
        token, before = self._token.current(), self._token.before(ROTATION_SECONDS)
        return (token,) if before is None else (token, before)


class Credentials:
    """Admits the bearer of a token.

    Args:
        tokens: returns those that are valid.
        web_config: whose users may be admitted, too.
        users: the names of those that are.
    """

    def __init__(
        self,
        tokens: Callable[[], Collection[str]],
        web_config: WebConfig | None = None,
        users: Collection[str] = (),
    ) -> None:
        self._tokens = tokens
        self._web_config = web_config or NoWebConfig()
        self._names = frozenset(users)
        self.challenge = 'Bearer, Basic realm="trainwarden-remediator"' if users else "Bearer"

    def admit(self, request: Request) -> bool:
        """Return whether a request has a valid token, or is of one of the users.

        Raises:
            BadRequest: so many passwords are being checked that this one is not; the sender may try again.
        """
        given = request.headers.get("authorization", "")
        sent = given.encode("latin-1", "replace")
        # Every one is compared: the time shows nothing of them.
        if sum(hmac.compare_digest(sent, f"Bearer {token}".encode()) for token in self._tokens()):
            return True
        named = credentials_of(given) if self._names else None
        users = self._web_config.current().users
        if named is None or users is None or named[0] not in self._names:
            return False
        try:
            return users.admit(given, request.client.rpartition(":")[0])
        except TooManyGuesses as error:
            # Not 429: Alertmanager would not send the alerts again.
            raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
