"""Crowds of clients that have no login, or never finish: who may scrape is served, over TLS as without."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import bcrypt
import pytest

from tests.certificates import Authority
from tests.integration.server.conftest import Served, read_all
from tests.integration.server.test_users import basic, hashed
from tests.waiting import wait_until
from trainwarden.server import connection as connection_module
from trainwarden.server.guesses import Turns
from trainwarden.server.limits import Limits
from trainwarden.server.messages import Request, Response, plain
from trainwarden.server.web_config import ReloadingWebConfig

GOOD = basic("prometheus", "right")
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n"


class Site:
    """A server with one user, without TLS or with it, and connections to it from addresses of choice."""

    def __init__(self, served: Served, tls: ssl.SSLContext | None) -> None:
        self.served = served
        self._tls = tls

    def open(self, source: str = "127.0.0.1") -> socket.socket:
        port = self.served.server.port
        made = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))
        return self._tls.wrap_socket(made, server_hostname="localhost") if self._tls else made

    def ask(self, authorization: str = GOOD, source: str = "127.0.0.1") -> int:
        with self.open(source) as connection:
            return ask(connection, authorization)


def ask(connection: socket.socket, authorization: str = GOOD) -> int:
    """Return the status of one request on a connection that stays."""
    connection.sendall(ASK % authorization.encode())
    return status_of(connection)


def status_of(connection: socket.socket) -> int:
    """Return the status of the next response."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


@pytest.fixture(params=["plain", "TLS"])
def site(request: pytest.FixtureRequest, serve: Callable[..., Served], tmp_path: Path) -> Callable[..., Site]:
    def start(**limits: int) -> Site:
        file = tmp_path / "web.yml"
        users = f"basic_auth_users:\n  prometheus: {hashed('right')}\n"
        context = None
        if request.param == "TLS":
            authority = Authority.create(tmp_path)
            authority.issue("server", "localhost")
            users += "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
            context = ssl.create_default_context(cafile=str(authority.file))
        file.write_text(users)
        return Site(serve(web_config=ReloadingWebConfig(file), limits=Limits(**limits)), context)

    return start


class SlowHash:
    """In place of bcrypt's check: records what it is asked, and answers wrong passwords only once it may."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.may_answer = threading.Event()

    def __call__(self, password: bytes, _hash: bytes) -> bool:
        self.asked.append(password)
        assert password == b"right" or self.may_answer.wait(60)
        return password == b"right"


@pytest.fixture
def slow_hash(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowHash]:
    slow = SlowHash()
    monkeypatch.setattr(bcrypt, "checkpw", slow)
    yield slow
    slow.may_answer.set()


def test_wrong_passwords_keep_no_scrape_waiting(site: Callable[..., Site], slow_hash: SlowHash) -> None:
    served = site()
    assert served.ask() == 200
    with contextlib.ExitStack() as stack:
        guessing = [stack.enter_context(served.open()) for _ in range(60)]
        for number, connection in enumerate(guessing):
            connection.sendall(ASK % basic("prometheus", f"wrong {number}").encode())
        wait_until(lambda: len(slow_hash.asked) == 2, "a wrong password to be checked")
        assert [served.ask() for _ in range(20)] == [200] * 20
        slow_hash.may_answer.set()
        for connection in guessing:
            assert status_of(connection) == 401


def test_the_same_wrong_password_from_everywhere_is_checked_once(
    site: Callable[..., Site], slow_hash: SlowHash
) -> None:
    slow_hash.may_answer.set()
    served = site()
    assert [served.ask(basic("prometheus", "old")) for _ in range(30)] == [401] * 30
    assert slow_hash.asked == [b"old"]


def test_a_first_scrape_waits_for_one_guess_of_another_client_and_not_for_all(
    site: Callable[..., Site], slow_hash: SlowHash, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Turns] = []

    class Noted(Turns):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr("trainwarden.server.basic_auth.Turns", Noted)
    served = site()
    with contextlib.ExitStack() as stack:
        guessing = [stack.enter_context(served.open("127.0.0.2")) for _ in range(30)]
        for number, connection in enumerate(guessing):
            connection.sendall(ASK % basic("prometheus", f"wrong {number}").encode())
        wait_until(lambda: slow_hash.asked, "a wrong password to be checked")
        scrape = stack.enter_context(served.open())
        scrape.sendall(ASK % GOOD.encode())
        assert served.ask("Basic wrong") == 401  # which came later
        wait_until(lambda: made[0].waiting == 30, "the scrape to wait behind all guesses but the one being checked")
        slow_hash.may_answer.set()
        assert status_of(scrape) == 200
        assert slow_hash.asked.index(b"right") <= 2


def test_beyond_some_guesses_of_one_client_more_are_refused_at_once(
    site: Callable[..., Site], slow_hash: SlowHash
) -> None:
    served = site()
    assert served.ask() == 200
    with contextlib.ExitStack() as stack:
        guessing = [stack.enter_context(served.open("127.0.0.2")) for _ in range(100)]
        for number, connection in enumerate(guessing):
            connection.sendall(ASK % basic("prometheus", f"wrong {number}").encode())
        statuses: list[int] = []
        readers = [threading.Thread(target=lambda one=one: statuses.append(status_of(one))) for one in guessing]
        for reader in readers:
            reader.start()
        wait_until(lambda: len(statuses) == 35)  # one is being checked, 64 wait
        assert served.ask(source="127.0.0.2") == 200
        assert statuses == [429] * 35
        slow_hash.may_answer.set()
        for reader in readers:
            reader.join(60)
        assert statuses == [429] * 35 + [401] * 65


@pytest.mark.slow
def test_connections_that_stay_are_all_served_though_there_are_many(site: Callable[..., Site]) -> None:
    served = site()
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(served.open()) for _ in range(450)]
        threads = threading.active_count()
        assert served.ask() == 200
        assert [ask(connection) for connection in many] == [200] * 450
        assert [ask(connection) for connection in many] == [200] * 450
        assert threading.active_count() < threads + 20


def test_a_crowd_of_idle_connections_costs_no_other_client_its_own(site: Callable[..., Site]) -> None:
    served = site(connections=20)
    with contextlib.ExitStack() as stack:
        scraper = stack.enter_context(served.open("127.0.0.2"))
        assert ask(scraper) == 200
        crowd = [stack.enter_context(served.open()) for _ in range(60)]
        assert ask(scraper) == 200
        assert served.ask("Basic wrong") == 401
        assert read_all(crowd[0]) == b""


def test_a_crowd_that_was_refused_and_owes_its_bodies_costs_no_other_client_its_own(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused client has its answer; a new connection takes the place of one whose body is still awaited."""
    monkeypatch.setattr(connection_module, "_DRAIN_SECONDS", 60.0)
    served = site(connections=20)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(served.open()) for _ in range(20)]
        for each in crowd:
            each.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic wrong\r\nContent-Length: 9\r\n\r\n")
            assert status_of(each) == 401
        wait_until(lambda: len(served.served.server._draining) == 20)
        assert [served.ask() for _ in range(3)] == [200] * 3
        assert [served.ask(source="127.0.0.2") for _ in range(3)] == [200] * 3


def test_of_one_client_those_go_first_that_were_never_answered_with_what_they_asked_for(
    site: Callable[..., Site],
) -> None:
    served = site(connections=20)
    with contextlib.ExitStack() as stack:
        scraper = stack.enter_context(served.open())
        assert ask(scraper) == 200
        for _ in range(60):
            assert ask(stack.enter_context(served.open()), "Basic wrong") == 401
        assert ask(scraper) == 200


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["its own address", "another address"])
def test_clients_that_send_requests_in_a_row_and_never_read_cost_no_scrape(
    serve: Callable[..., Served], source: str
) -> None:
    page = "x" * 2**23  # more than the buffers of both ends take
    served = Site(serve(lambda _: plain(HTTPStatus.OK, page), limits=Limits(requests=4)), None)
    with contextlib.ExitStack() as stack:
        scraper = stack.enter_context(served.open())
        assert ask(scraper) == 200
        crowd = [stack.enter_context(served.open(source)) for _ in range(40)]
        for _ in range(3):
            for connection in crowd:
                with contextlib.suppress(OSError):  # it was cut
                    connection.sendall(ASK % GOOD.encode() * 20)
            assert [ask(scraper) for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("at_once", [True, False], ids=["in a row", "one after the other"])
def test_a_client_gets_no_response_before_it_has_taken_the_last_one(
    serve: Callable[..., Served], *, at_once: bool
) -> None:
    page = "x" * 400_000  # the buffers of this end take several of them, those of the client's none
    asked: list[str] = []

    def handler(request: Request) -> Response:
        asked.append(request.path)
        return plain(HTTPStatus.OK, page)

    one = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
    served = serve(handler)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(served.connect()) for _ in range(20)]
        for connection in crowd:
            if at_once:
                connection.sendall(b"".join(one % number for number in range(3)))
            else:
                connection.sendall(one % 0)
                assert connection.recv(1, socket.MSG_PEEK)
                connection.sendall(one % 1)
        wait_until(lambda: len(asked) == len(crowd))
        for _ in range(3):
            assert len(served.ask("/scrape")[1]) == len(page) + 1
        assert sorted(set(asked)) == ["/0", "/scrape"]
        assert asked.count("/0") == 20
        connection = crowd[-1]
        if not at_once:
            connection.sendall(one % 2)
        received = b""
        while received.count(b"HTTP/1.1 200 OK\r\n") < 3:
            part = connection.recv(65536)
            assert part
            received += part
        assert [path for path in asked if path not in ("/0", "/scrape")] == ["/1", "/2"]


def test_a_client_that_does_not_take_its_response_is_cut_off_though_it_asked_for_more(
    serve: Callable[..., Served],
) -> None:
    served = serve(lambda _: plain(HTTPStatus.OK, "x" * 400_000), limits=Limits(send_seconds=0.2))
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        assert client.recv(1, socket.MSG_PEEK)
        wait_until(lambda: not served.server._waiting._clients)
        assert read_all(client).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("in_a_row", [False, True], ids=["had no response", "asks before it reads"])
def test_a_place_is_kept_for_a_connection_on_which_a_response_was_read(
    serve: Callable[..., Served], *, in_a_row: bool
) -> None:
    slow = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    under_way: list[Request] = []
    may_end = threading.Event()

    def handler(request: Request) -> Response:
        if request.path == "/slow":
            under_way.append(request)
            may_end.wait(60)
        return plain(HTTPStatus.OK, "x")

    served = Site(serve(handler, limits=Limits(requests=4)), None)
    with contextlib.ExitStack() as stack:
        stack.callback(may_end.set)
        scraper, one_more, *crowd = [stack.enter_context(served.open()) for _ in range(5)]
        assert ask(scraper) == 200
        assert not in_a_row or ask(one_more) == 200
        for number, connection in enumerate(crowd, 1):
            connection.sendall(slow)
            wait_until(lambda n=number: len(under_way) == n)  # type: ignore[misc]  # bound early
        one_more.settimeout(20)  # seconds: it is refused at once, and not held
        if in_a_row:
            quick = ASK % GOOD.encode()
            one_more.sendall(quick + slow + quick)
            # Refused, it is not asked what else it wants.
            statuses = [line.split()[1] for line in read_all(one_more).splitlines() if line.startswith(b"HTTP/")]
            assert statuses == [b"200", b"503"]
        else:
            one_more.sendall(slow)
            assert status_of(one_more) == 503
        assert ask(scraper) == 200


def test_responses_that_are_not_read_take_no_more_memory_than_their_limit(serve: Callable[..., Served]) -> None:
    size = 8 * 2**20  # more than the buffers of a connection take
    served = serve(lambda _: plain(HTTPStatus.OK, "x" * size), limits=Limits(sending_bytes=4 * size, send_seconds=600))
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(served.connect()) for _ in range(12)]
        for connection in crowd:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(1)
        wait_until(lambda: len(served.server._answered) <= 4)
        response, body = served.ask()
        assert (response.status, len(body)) == (200, size + 1)
        assert len(read_all(crowd[0])) < size


def test_heads_that_are_never_finished_take_no_thread_and_no_more_than_their_limit(
    site: Callable[..., Site],
) -> None:
    served = site()
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(served.open()) for _ in range(100)]
        threads = threading.active_count()
        for connection in crowd:
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 30_000)
        assert served.ask() == 200
        assert threading.active_count() < threads + 20
        for connection in crowd:
            connection.sendall(b"x" * 3_000)
            assert status_of(connection) == 431


def test_a_head_over_the_limit_is_refused_though_it_is_whole(serve: Callable[..., Served]) -> None:
    fits, larger = (b"GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % (b"x" * size) for size in (32_000, 33_000))
    assert serve().exchange(fits).startswith(b"HTTP/1.1 200 ")
    assert serve().exchange(larger).startswith(b"HTTP/1.1 431 ")


def test_a_connection_outlives_the_pauses_of_every_usual_scraper() -> None:
    """Closed by both at the same moment, a connection costs the scrape that was just sent."""
    limits = Limits()
    assert limits.idle_seconds > 300  # as long as Prometheus keeps one
    for usual in (10, 15, 30, 60, 120):
        assert usual not in (limits.idle_seconds, limits.head_seconds)


def test_the_end_waits_for_the_hash_under_way_and_begins_no_other(
    site: Callable[..., Site], slow_hash: SlowHash
) -> None:
    """An interpreter that ends in the middle of a hash aborts."""
    served = site()
    with contextlib.ExitStack() as stack:
        for number in range(5):
            guessing = stack.enter_context(served.open())
            guessing.sendall(ASK % basic("prometheus", f"wrong {number}").encode())
        wait_until(lambda: slow_hash.asked)
        ending = threading.Thread(target=served.served.server.stop, args=(0.0,))
        ending.start()
        ending.join(0.2)
        assert ending.is_alive()
        slow_hash.may_answer.set()
        ending.join(60)
        assert not ending.is_alive()
        assert len(slow_hash.asked) == 1
