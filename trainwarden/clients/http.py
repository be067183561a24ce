"""HTTP requests with one deadline for the whole exchange and a size limit, over the standard library's `http.client`.

Every request has a connection of its own. No proxy, no redirect and no retry: retries belong to the caller.

The deadline covers connecting, the TLS handshake, the headers and the body, so a server that sends a byte now and then
cannot exceed it. Only the system's resolver has limits of its own.

On import this file needs nothing but the standard library, and works from Python 3.8 on: `clients/ray.py` passes its
source to the Python of a head pod, where `main` answers.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import io
import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

MAX_BODY_BYTES = 32 * 2**20
_MAX_SECRET_BYTES = 65536
_CHUNK_BYTES = 65536

# Why there is no complete response: `HttpError.reason`.
CONNECTION, TIMEOUT, TOO_LARGE, MALFORMED, CREDENTIALS = (
    "connection",
    "timeout",
    "too_large",
    "malformed",
    "credentials",
)


class HttpError(Exception):
    """There is no complete response. The message is the reason, without a secret and without what the server sent.

    `reason` is one of CONNECTION, TIMEOUT, TOO_LARGE, MALFORMED and CREDENTIALS (a file of a token, a password or a
    certificate cannot be used, so nothing was sent).
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HttpResponse(NamedTuple):
    """A complete response of any status."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the value of a JSON body; raises HttpError where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise HttpError(MALFORMED, f"{MALFORMED}: status {self.status}, expected JSON") from None


class HttpAuth(NamedTuple):
    """A bearer token, or a user's name and password. Files are read for each request, so they may be replaced."""

    token: str | None = None
    token_file: Path | None = None
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None

    def header(self) -> str | None:
        """Return the value of the header Authorization; raises HttpError where a file cannot be used."""
        if self.username is not None:
            password = read_secret(self.password_file) if self.password_file else self.password or ""
            return "Basic " + base64.b64encode(f"{self.username}:{password}".encode()).decode()
        token = read_token(self.token_file) if self.token_file else self.token
        return None if token is None else f"Bearer {token}"


class TlsFiles(NamedTuple):
    """PEM files. They are read again when they change.

    Attributes:
        ca_file: the certificates to trust instead of the system's.
        cert_file: this client's certificate.
        key_file: its key, if not in `cert_file`.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context of these files; raises HttpError that names the file which cannot be used."""
        import ssl  # noqa: PLC0415  # two MiB, needed over TLS alone

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # ssl's own errors are among them
            raise HttpError(CREDENTIALS, f"{self.ca_file}: {error.strerror or error}; expected PEM") from None
        if self.cert_file:
            try:
                # Without `password` OpenSSL would ask the terminal for that of an encrypted key, and wait.
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
            except (OSError, ValueError) as error:
                files = " and ".join(str(each) for each in (self.cert_file, self.key_file) if each)
                expected = "expected PEM of a certificate and its key, not encrypted"
                reason = getattr(error, "strerror", None) or str(error)
                raise HttpError(CREDENTIALS, f"{files}: {reason}; {expected}") from None
        return context

    def versions(self) -> list[tuple[int, int, int]]:
        """Return what differs when a file has been replaced."""
        found = []
        for file in self:
            if file is not None:
                try:
                    status = file.stat()
                except OSError:
                    continue  # `context` names it
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def read_token(path: Path) -> str:
    """Return the one token in a file, without surrounding white space; raises HttpError without its content."""
    return read_secret(path, "[!-~]+", "one token on one line")


def read_secret(path: Path, pattern: str = r"\S|\S.*\S", expected: str = "one line of text") -> str:
    """Return what a file holds, without surrounding white space; raises HttpError without its content.

    Anything but a regular file is refused: reading a pipe could wait without end.
    """
    from trainwarden.regular_file import read_regular_file  # noqa: PLC0415  # a head pod has no trainwarden

    try:
        content = read_regular_file(path, _MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise HttpError(CREDENTIALS, f"{path}: {error.strerror}") from None
    try:
        secret = content.strip().decode()
    except ValueError:
        secret = ""
    if len(content) > _MAX_SECRET_BYTES or not secret.isprintable() or not re.fullmatch(pattern, secret):
        raise HttpError(CREDENTIALS, f"{path}: expected {expected}")
    return secret


class HttpClient:
    """Requests to one service, from any thread.

    Args:
        base_url: `http://` or `https://`, host, port and perhaps a path, below which all paths are.
        timeout: seconds for each whole exchange.
        auth: sent with every request.
        tls: for `https://`; without it the system's certificates are trusted.
        max_body: bytes of a response's body at most.
    """

    def __init__(
        self,
        base_url: str,
        timeout: float,
        *,
        auth: HttpAuth | None = None,
        tls: TlsFiles | None = None,
        max_body: int = MAX_BODY_BYTES,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self._auth = auth or HttpAuth()
        self._tls = tls or TlsFiles()
        self._max_body = max_body
        url = urlsplit(self.base_url)
        self._is_tls = url.scheme == "https"
        self._host, self._port = url.hostname or "", url.port or (443 if self._is_tls else 80)
        self._netloc, self._path = url.netloc.rpartition("@")[2], url.path
        self._context: tuple[object, ssl.SSLContext] | None = None

    def check(self) -> None:
        """Read the files of certificates and credentials; raises HttpError where one cannot be used."""
        self._auth.header()
        if self._is_tls:
            self._tls_context()

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> HttpResponse:
        """Return the response to a GET.

        Args:
            path: below the base URL.
            params: the query; a list stands for a parameter that is repeated.
            headers: sent as well.
            timeout: seconds, instead of the client's.

        Raises:
            HttpError: there is no complete response.
        """
        return self._exchange("GET", path, timeout, params=params, headers=headers)

    def post(
        self, path: str, body: object, *, headers: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> HttpResponse:
        """Return the response to a POST of one JSON value; bytes are sent as they are. Raises HttpError."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        return self._exchange("POST", path, timeout, body=data, headers=headers)

    def send(self, method: str, path: str, body: bytes | None, *, timeout: float | None = None) -> HttpResponse:
        """Return the response to any other method, such as PUT or DELETE. Raises HttpError."""
        headers = {"Content-Type": "application/octet-stream"} if method == "PUT" else {}
        if method == "POST":
            headers["Content-Type"] = "application/json"
        return self._exchange(method, path, timeout, body=body, headers=headers)

    def _exchange(
        self,
        method: str,
        path: str,
        timeout: float | None,
        *,
        params: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        where = f"{self.base_url}{path.partition('?')[0]}"
        # Ray's dashboard masks what it answers to a browser, so the agent must not look like one.
        sent = {"Host": self._netloc, "User-Agent": "trainwarden", "Connection": "close", **(headers or {})}
        authorization = self._auth.header()
        if authorization is not None:
            sent.setdefault("Authorization", authorization)
        target = self._path + path + (f"?{urlencode(params, doseq=True)}" if params else "")
        context = self._tls_context() if self._is_tls else None
        connection = http.client.HTTPConnection(self._host, self._port)
        sock: socket.socket | None = None
        try:
            sock = _connect(self._host, self._port, deadline)
            if context is not None:
                _arm(sock, deadline)
                sock = context.wrap_socket(sock, server_hostname=self._host)
            connection.sock = reading = _DeadlineSocket(sock, deadline)
            with contextlib.suppress(BrokenPipeError):  # the server may answer, and close, before it has read the body
                connection.request(method, target, body, sent)
            with connection.getresponse() as response:
                if reading.at_end:  # `http.client` takes the headers that came for all
                    raise HttpError(CONNECTION, f"{CONNECTION}: the answer is cut off")
                return HttpResponse(response.status, _read(response, self._max_body))
        except HttpError as error:
            raise HttpError(error.reason, f"{where}: {error}") from None
        except (TimeoutError, socket.timeout):  # noqa: UP041  # two classes before Python 3.10
            raise HttpError(TIMEOUT, f"{where}: {TIMEOUT}: no complete answer within {seconds:g} s") from None
        except Exception as error:  # noqa: BLE001  # http.client raises whatever a broken answer makes it raise
            raise HttpError(CONNECTION, f"{where}: {CONNECTION}: {_reason(error)}") from None
        finally:
            connection.close()
            if sock is not None:
                sock.close()

    def _tls_context(self) -> ssl.SSLContext:
        versions = self._tls.versions()
        if self._context is None or self._context[0] != versions:
            self._context = (versions, self._tls.context())
        return self._context[1]


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of `host` that answers; each has an equal share of the time left."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            _arm(sock, deadline, share=len(addresses) - position)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _arm(sock: socket.socket, deadline: float, share: int = 1) -> None:
    """Let the next call of a socket end by `deadline`; raises TimeoutError if that has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left / share)


class _DeadlineSocket:
    """What `http.client` needs of a socket; each of its calls ends by one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._reader = _DeadlineReader(sock, deadline)

    @property
    def at_end(self) -> bool:
        """Whether the server has ended the connection, as far as it was read."""
        return self._reader.at_end

    def sendall(self, data: bytes) -> None:
        _arm(self._sock, self._deadline)
        self._sock.sendall(data)

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(self._reader)

    def close(self) -> None:
        """Leave the socket open: `http.client` closes its connection before the body is read."""


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self.at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        _arm(self._sock, self._deadline)
        count = self._sock.recv_into(buffer)
        self.at_end = count == 0
        return count


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > limit:
            raise HttpError(TOO_LARGE, f"{TOO_LARGE}: more than {limit} bytes")
    if response.length:  # of what Content-Length promised
        raise HttpError(CONNECTION, f"{CONNECTION}: the answer is cut off")
    return bytes(body)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return getattr(error, "verify_message", None) or error.strerror or type(error).__name__
    return f"the answer is no valid HTTP ({type(error).__name__})"


class PathAnswer(NamedTuple):
    """The answer to one of several paths.

    Attributes:
        status: of HTTP, 0 if there is none.
        body: empty if `error` is not.
        error: why there is no complete answer, beginning with a reason of `HttpError`.
    """

    status: int
    body: bytes
    error: str


def get_all(client: HttpClient, paths: Sequence[str], timeout: float) -> list[PathAnswer]:
    """Get one path after the other, all within `timeout` seconds and each within 40 % of them.

    Where the first finds no connection the others are not tried. Raises HttpError where credentials cannot be used.
    """
    deadline = time.monotonic() + timeout
    answers: list[PathAnswer] = []
    for path in paths:
        left = min(timeout * 0.4, deadline - time.monotonic())
        try:
            response = client.get(path, timeout=left)
            answers.append(PathAnswer(response.status, response.body, ""))
        except HttpError as error:
            if error.reason == CREDENTIALS:
                raise
            answers.append(PathAnswer(0, b"", str(error).partition(": ")[2]))
            if error.reason == CONNECTION and len(answers) == 1:
                return answers * len(paths)
    return answers


def send(client: HttpClient, method: str, path: str, body: bytes | None, timeout: float) -> PathAnswer:
    """Make one request that may change something. Raises HttpError where credentials cannot be used."""
    try:
        response = client.send(method, path, body, timeout=timeout)
    except HttpError as error:
        if error.reason == CREDENTIALS:
            raise
        return PathAnswer(0, b"", str(error).partition(": ")[2])
    return PathAnswer(response.status, response.body, "")


def main(stdin: IO[str], stdout: IO[bytes]) -> None:
    """Answer one request from `stdin`: for each path a line of JSON, `[status, error, length]`, and the body.

    The request is `{"url", "paths", "token", "token_variables": [of a token, of a file with one], "timeout",
    "max_body"}`; without a token that of this machine's environment is sent. With `"method"` and `"body"` (Base64 or
    null) that is sent to the first path instead.
    """
    request = json.load(stdin)
    token = request["token"] or _environment_token(*request["token_variables"])
    client = HttpClient(request["url"], request["timeout"], auth=HttpAuth(token=token), max_body=request["max_body"])
    if request.get("method"):
        sent = None if request["body"] is None else base64.b64decode(request["body"])
        answers = [send(client, request["method"], request["paths"][0], sent, request["timeout"])]
    else:
        answers = get_all(client, request["paths"], request["timeout"])
    for status, body, error in answers:
        stdout.write(json.dumps([status, error, len(body)]).encode() + b"\n" + body)
    stdout.flush()


def _environment_token(variable: str, file_variable: str) -> str | None:
    file = os.environ.get(file_variable)
    if os.environ.get(variable):
        return os.environ[variable]
    try:
        return Path(file).read_text(encoding="utf-8").strip() or None if file else None
    except OSError:
        return None


if __name__ == "__main__":
    main(sys.stdin, sys.stdout.buffer)
