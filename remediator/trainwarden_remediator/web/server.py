"""The pages of the remediator: webhooks in, incidents and metrics out. A request does at most one transaction."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from trainwarden.server.limits import Limits
from trainwarden.server.messages import BadRequest, Request, Response, json_response, plain
from trainwarden.server.server import HttpServer
from trainwarden_remediator.database.database import DatabaseUnusable
from trainwarden_remediator.incidents.incident import as_json
from trainwarden_remediator.incidents.webhook import MAX_BODY_BYTES, read_delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from trainwarden.server.web_config import WebConfig
    from trainwarden_remediator.metrics import Metrics
    from trainwarden_remediator.observe.world import Clock
    from trainwarden_remediator.store.store import Store
    from trainwarden_remediator.web.credentials import Credentials

log = logging.getLogger(__name__)

WEBHOOK = "/alertmanager/webhook"
INCIDENTS = "/api/v1/incidents"
_PAGES = ("/-/healthy", "/-/ready", "/metrics", INCIDENTS)
_LIMITS = Limits(connections=256, head_seconds=10.0, body_seconds=10.0, send_seconds=10.0)
_REFUSED_LOG_SECONDS = 60.0
_READING = ("GET", "HEAD")


class Seldom:
    """Logs warnings that anybody can cause: one in so many seconds, with the number of those between."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._next = float("-inf")
        self._unsaid = 0

    def warn(self, text: str, *values: object) -> None:
        """Log the warning, or count it."""
        now = self._monotonic()
        with self._lock:
            if now < self._next:
                self._unsaid += 1
                return
            self._next, unsaid, self._unsaid = now + self._seconds, self._unsaid, 0
        log.warning("%s; %d more since the last such line", text % values, unsaid)


@dataclass(frozen=True)
class RemediatorPages:
    """Answers requests.

    Attributes:
        credentials: what the webhook and the incidents ask for.
        received: called after the alerts of a webhook are durable.
        ready: returns whether the remediator's loop runs.
        cluster: whose alerts are taken; of all where it is empty.
    """

    store: Store
    metrics: Metrics
    registry: CollectorRegistry
    clock: Clock
    credentials: Credentials
    received: Callable[[], None]
    ready: Callable[[], bool]
    cluster: str = ""
    refused: Seldom = field(default_factory=lambda: Seldom(_REFUSED_LOG_SECONDS), repr=False)

    def server(
        self, address: tuple[str, int], web_config: WebConfig | None = None, limits: Limits | None = None
    ) -> HttpServer:
        """Return a server of these pages on host and port, not started yet; raises `OSError` if it cannot be bound."""
        return HttpServer(
            [address],
            self.respond,
            name="trainwarden-remediator",
            web_config=web_config,
            limits=limits or _LIMITS,
            own_authentication={WEBHOOK, INCIDENTS},
        )

    def respond(self, request: Request) -> Response:
        """Return the response to a request."""
        if request.path == WEBHOOK:
            return self._webhook(request)
        if request.path not in _PAGES:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in _READING:
            return _not_allowed(*_READING)
        if request.path == "/-/healthy":
            return plain(HTTPStatus.OK, "OK")
        if request.path == "/-/ready":
            return self._readiness()
        try:
            if request.path == "/metrics":
                return Response(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.registry))
            return self._incidents(request) if self.credentials.admit(request) else self._unauthorized()
        except DatabaseUnusable:  # the loop logs it, once
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the database cannot be used")
        except SQLAlchemyError:
            log.exception("no response to %s", request.path)
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer")

    def _readiness(self) -> Response:
        if not self.ready():
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
        missing = self.metrics.answers.missing()
        lines = [f"unable to judge: no answer from {source}: {reason}" for source, reason in missing.items()]
        return plain(HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK, "\n".join(lines) or "OK")

    def _webhook(self, request: Request) -> Response:
        if request.method != "POST":
            return _not_allowed("POST")
        response = self._receive(request)
        self.metrics.received(response.status.value, self.clock.now())
        if response.status == HTTPStatus.UNAUTHORIZED:
            self.refused.warn("a webhook from %s was refused: its token is missing or wrong", request.client)
        elif response.status != HTTPStatus.OK:
            log.warning("webhook answered %d: %s", response.status, response.body.decode().strip())
        return response

    def _receive(self, request: Request) -> Response:
        try:
            if not self.credentials.admit(request):
                return self._unauthorized()
            delivery = read_delivery(request.read_body(MAX_BODY_BYTES), self.cluster)
        except BadRequest as error:
            return plain(error.status, str(error))
        try:
            self.store.receive(delivery)
        except SQLAlchemyError as error:
            if not isinstance(error, DatabaseUnusable):  # the loop logs that, once
                log.exception("the alerts could not be stored")
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the alerts could not be stored; send them again")
        self.metrics.delivered(delivery, self.clock.now())
        if delivery.truncated:
            log.warning("%d alerts were cut off by max_alerts; asking Alertmanager for them", delivery.truncated)
        self.received()
        return plain(HTTPStatus.OK, "OK")

    def _incidents(self, request: Request) -> Response:
        try:
            query = dict(request.query())
        except ValueError as error:
            return plain(HTTPStatus.BAD_REQUEST, str(error))
        found = self.store.with_events(query.get("run_id") or None)
        known = self.store.known_of([incident.id for incident, _ in found])
        shown = [{**as_json(incident, events), **known[incident.id]} for incident, events in found]
        return json_response(HTTPStatus.OK, shown)

    def _unauthorized(self) -> Response:
        challenge = ("WWW-Authenticate", self.credentials.challenge)
        return plain(HTTPStatus.UNAUTHORIZED, "a bearer token is needed", challenge)


def _not_allowed(*methods: str) -> Response:
    allowed = ", ".join(methods)
    return plain(HTTPStatus.METHOD_NOT_ALLOWED, f"use {' or '.join(methods)}", ("Allow", allowed))
