"""The pages of the remediator: webhooks in, incidents and metrics out. A request does at most one transaction."""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from sqlalchemy.exc import SQLAlchemyError

from trainwarden.server.messages import BadRequest, Request, Response, json_response, plain
from trainwarden.server.server import HttpServer, Limits
from trainwarden_remediator.incident import as_json
from trainwarden_remediator.receive import MAX_BODY_BYTES, read_delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from trainwarden.server.web_config import WebConfig
    from trainwarden_remediator.metrics import Metrics
    from trainwarden_remediator.store import Store
    from trainwarden_remediator.world import Clock

log = logging.getLogger(__name__)

WEBHOOK = "/alertmanager/webhook"
INCIDENTS = "/api/v1/incidents"
_PAGES = ("/-/healthy", "/-/ready", "/metrics", INCIDENTS)
_LIMITS = Limits(connections=256, head_seconds=10.0, body_seconds=10.0, send_seconds=10.0)
_READING = ("GET", "HEAD")
_NEEDS_TOKEN = plain(HTTPStatus.UNAUTHORIZED, "a bearer token is needed", ("WWW-Authenticate", "Bearer"))


@dataclass(frozen=True)
class RemediatorPages:
    """Answers requests.

    Attributes:
        token: the bearer token that the webhook and the incidents ask for.
        received: called after the alerts of a webhook are durable.
        ready: returns whether the remediator's loop runs.
    """

    store: Store
    metrics: Metrics
    registry: CollectorRegistry
    clock: Clock
    token: str
    received: Callable[[], None]
    ready: Callable[[], bool]

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
            ready = self.ready()
            return plain(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, "OK" if ready else "not ready")
        try:
            if request.path == "/metrics":
                return Response(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.registry))
            return self._incidents(request) if self._has_token(request) else _NEEDS_TOKEN
        except SQLAlchemyError:
            log.exception("no response to %s", request.path)
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer")

    def _webhook(self, request: Request) -> Response:
        if request.method != "POST":
            return _not_allowed("POST")
        response = self._receive(request)
        self.metrics.received(response.status.value, self.clock.now())
        if response.status != HTTPStatus.OK:
            log.warning("webhook answered %d: %s", response.status, response.body.decode().strip())
        return response

    def _receive(self, request: Request) -> Response:
        if not self._has_token(request):
            return _NEEDS_TOKEN
        try:
            delivery = read_delivery(request.read_body(MAX_BODY_BYTES))
        except BadRequest as error:
            return plain(error.status, str(error))
        try:
            self.store.receive(delivery)
        except SQLAlchemyError:
            log.exception("the alerts could not be stored")
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the alerts could not be stored; send them again")
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
        return json_response(HTTPStatus.OK, [as_json(incident, events) for incident, events in found])

    def _has_token(self, request: Request) -> bool:
        given = request.headers.get("authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())


def _not_allowed(*methods: str) -> Response:
    allowed = ", ".join(methods)
    return plain(HTTPStatus.METHOD_NOT_ALLOWED, f"use {' or '.join(methods)}", ("Allow", allowed))
