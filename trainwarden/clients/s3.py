"""The one client for objects in S3, through boto3.

Credentials, region and endpoint are found as boto3 finds them. boto3 is imported with the first request alone: it is
an extra, and takes 60 MiB.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from dataclasses import dataclass, replace

from trainwarden.clients.s3_boto3 import forget_connections, new_client
from trainwarden.clients.s3_location import S3Location
from trainwarden.descriptor import HeldDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
MAX_BYTES = 4 * 2**20
# Names in one answer to a listing; S3 gives no more.
PAGE_NAMES = 1000

# What kind of failure it was: `S3Error.reason`.
UNREACHABLE, DENIED, THROTTLED, MISSING, INVALID = "unreachable", "denied", "throttled", "missing", "invalid"
REASONS = (UNREACHABLE, DENIED, THROTTLED, MISSING, INVALID)
# The two operations that are counted: `S3Bucket.requests`.
LIST, GET = "list", "get"

_CODE = re.compile(r"[A-Za-z0-9._-]{1,80}")
_NO_OBJECT = frozenset(("NoSuchKey", "404", "NotFound"))
_NO_BUCKET = "NoSuchBucket"
_NOT_S3 = "NotS3"
_EXPIRED = frozenset(("ExpiredToken", "TokenRefreshRequired"))
# Names of exceptions, as botocore raises them before it sends anything.
_NO_CREDENTIALS = frozenset(("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"))
_TLS = "SSLError"
_THROTTLING = frozenset(("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"))
_RETRIABLE_STATUS = (408, 409, 425, 429)
_RETRIABLE = frozenset(("RequestTimeout", "RequestTimeTooSkewed")) | _THROTTLING | _EXPIRED
_CONDITION_FAILED = frozenset(("PreconditionFailed", "ConditionalRequestConflict", "412", "409"))
_CONDITION_UNKNOWN = frozenset(("NotImplemented", "501", "InvalidRequest", "InvalidArgument", "ParamValidationError"))
# The header Date counts whole seconds, and an answer takes its time.
_CLOCK_TOLERANCE_SECONDS = 2.0


class S3Error(Exception):
    """S3 did not do what was requested. The message never holds a secret.

    Attributes:
        code: S3's error code, or the name of the exception on the way.
        reason: one of REASONS.
        refused: S3 understood and will answer the same again; otherwise the request may succeed later.
    """

    def __init__(
        self,
        code: str,
        location: S3Location,
        name: str = "",
        *,
        refused: bool = False,
        reason: str = UNREACHABLE,
        explanation: str = "",
    ) -> None:
        self.code = code
        self.refused = refused
        self.reason = reason
        if code == _NOT_S3:
            explanation = ": what answers is not S3"
        if code in _NO_CREDENTIALS:
            explanation = ": set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        super().__init__(f"{location}{name and '/' + name}: {code}{explanation}")


class S3Conflict(S3Error):
    """A conditional request found another object than expected, or one where none was expected."""


class S3ConditionsUnsupported(S3Error):
    """The server does not implement conditional requests of this kind."""


@dataclass(frozen=True)
class S3Object:
    """An object's content.

    Attributes:
        data: all of it, as far as the limit of the request allows.
        etag: as S3 states it.
        modified: when S3 took it, Unix seconds by this machine's clock, whatever the server's clock shows.
    """

    data: bytes
    etag: str
    modified: float


@dataclass(frozen=True)
class S3Entry:
    """One object of a listing.

    Attributes:
        name: relative to what was listed.
        etag: as S3 states it.
        size: bytes.
        modified: when S3 took it, Unix seconds by this machine's clock.
    """

    name: str
    etag: str
    size: int
    modified: float


@dataclass(frozen=True)
class S3Page:
    """One page of a listing, at most a thousand names.

    Attributes:
        entries: the objects.
        folders: first parts of names that hold a slash, without it.
        token: of the next page; None after the last.
    """

    entries: list[S3Entry]
    folders: list[str]
    token: str | None


class S3Bucket:
    """The objects below `location`; names are relative to it. No request is repeated: retries belong to the caller.

    Args:
        location: bucket, prefix and region.
        connect_seconds: how long to wait for a connection; `CONNECT_SECONDS` if None.
        read_seconds: how long to wait for each part of an answer; `READ_SECONDS` if None.
        connections: how many threads make requests at the same time.

    Attributes:
        requests: how many were sent, by LIST and GET.
        clock_offset: how far S3's clock is ahead of this machine's, whole seconds; None before the first answer.

    Every method raises S3Error where S3 cannot be reached or refuses.
    """

    def __init__(
        self,
        location: S3Location,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        connections: int = 1,
    ) -> None:
        self.location = location
        self.requests = {LIST: 0, GET: 0}
        self.clock_offset: float | None = None
        self._timeouts = connect_seconds or CONNECT_SECONDS, read_seconds or READ_SECONDS
        self._connections = connections
        self._lock = threading.Lock()
        self._connected: Any = None
        self._guard: HeldDescriptor | None = None  # open for as long as the connections are

    def get(self, name: str) -> S3Object | None:
        """Return the object `name`, its first `MAX_BYTES`; None if there is none."""
        try:
            return self._get(name, MAX_BYTES, {})
        except S3Error as error:
            if error.code in _NO_OBJECT:
                return None
            raise

    def get_changed(
        self, name: str, etag: str | None = None, *, last: int | None = None, limit: int = MAX_BYTES
    ) -> S3Object | None:
        """Return an object that has another ETag than `etag`; None if it still has that one.

        Args:
            name: of the object; where there is none S3Error has the reason MISSING.
            etag: of the content that is known.
            last: only so many bytes, from its end.
            limit: bytes at most.
        """
        condition = {"IfNoneMatch": etag} if etag else {}
        part = {"Range": f"bytes=-{last}"} if last else {}
        try:
            return self._get(name, limit, condition | part)
        except S3Error as error:
            if error.code == "304":
                return None
            raise

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return the `length` bytes of the object `name` from byte `start` on; fewer if it ends before.

        Raises:
            FileNotFoundError: there is no such object.
        """
        if length <= 0:
            return b""
        try:
            return self._get(name, length, {"Range": f"bytes={start}-{start + length - 1}"}).data
        except S3Error as error:
            if error.code == "InvalidRange":
                return b""
            if error.code in _NO_OBJECT:
                raise FileNotFoundError(f"{self.location}/{name}: there is no such object") from None
            raise

    def entries(self, below: str = "") -> Iterator[S3Entry]:
        """Yield every object whose name begins with `below`, in the order of names; a request for each thousand."""
        token: str | None = None
        while True:
            page = self._page(below, token, {})
            yield from page.entries
            token = page.token
            if token is None:
                return

    def page(self, folder: str = "", token: str | None = None) -> S3Page:
        """Return a page of what the folder holds, one level deep; `folder` is empty or ends with a slash."""
        page = self._page(folder, token, {"Delimiter": "/"})
        entries = [replace(each, name=each.name[len(folder) :]) for each in page.entries]
        return S3Page(entries, [each[len(folder) :].rstrip("/") for each in page.folders], page.token)

    def put(self, name: str, data: bytes, *, replacing: str | None = None, absent: bool = False) -> str:
        """Write the object `name` and return its ETag.

        Args:
            name: of the object.
            data: its whole content.
            replacing: the ETag that it must have had; any if None.
            absent: whether it must not have existed.

        Raises:
            S3Conflict: the condition does not hold.
            S3ConditionsUnsupported: the server implements no such condition.
        """
        condition = {"IfNoneMatch": "*"} if absent else {} if replacing is None else {"IfMatch": replacing}
        kind = "application/json" if name.endswith(".json") else "text/plain; charset=utf-8"
        request = {**self._object(name), "Body": data, "ContentType": kind, **condition}
        answer = self._request(name, lambda client: client.put_object(**request), conditional=bool(condition))
        return str(answer.get("ETag", ""))

    def delete(self, name: str, etag: str | None = None) -> None:
        """Remove the object `name`, if it has that ETag; a missing one is no error. Raises what `put` raises."""
        request = self._object(name) | ({} if etag is None else {"IfMatch": etag})
        try:
            self._request(name, lambda client: client.delete_object(**request), conditional=etag is not None)
        except S3Error as error:
            if error.code not in _NO_OBJECT:
                raise

    def connect(self) -> bool:
        """Find credentials, region and endpoint, which may take seconds; return False, for nothing is sent to S3."""
        self._request("", lambda _: {})
        return False

    @property
    def is_aws(self) -> bool:
        """Whether the requests go to AWS itself; False before the first one."""
        if self._connected is None:
            return False
        host = str(self._connected.meta.endpoint_url).partition("://")[2].partition("/")[0].partition(":")[0]
        return host.endswith(".amazonaws.com")

    def _object(self, name: str) -> dict[str, Any]:
        return {"Bucket": self.location.bucket, "Key": self.location.key(name)}

    def _get(self, name: str, limit: int, parameters: Mapping[str, str]) -> S3Object:
        data = b""

        def get(client: Any) -> Any:
            nonlocal data
            answer = client.get_object(**self._object(name), **parameters)
            with answer["Body"] as body:
                data = body.read(limit)
            return answer

        answer = self._request(name, get, GET)
        if not {"ContentLength", "ETag", "LastModified"} <= answer.keys():
            raise S3Error(_NOT_S3, self.location, name, reason=INVALID)
        if len(data) != min(answer["ContentLength"], limit):
            raise S3Error("IncompleteRead", self.location, name)
        return S3Object(data, answer["ETag"], answer["LastModified"].timestamp() - self._clock_shift())

    def _page(self, below: str, token: str | None, parameters: Mapping[str, str]) -> S3Page:
        request: dict[str, Any] = {
            "Bucket": self.location.bucket,
            "Prefix": self.location.key(below),
            "MaxKeys": PAGE_NAMES,
        }
        request |= parameters
        request |= {"ContinuationToken": token} if token else {}
        page = self._request(below, lambda client: client.list_objects_v2(**request), LIST)
        if "IsTruncated" not in page:  # botocore drops what it does not know: a proxy's page looks like an empty bucket
            raise S3Error(_NOT_S3, self.location, reason=INVALID)
        skipped, shift = len(self.location.key("")), self._clock_shift()
        entries = [
            S3Entry(
                each["Key"][skipped:], each.get("ETag", ""), int(each["Size"]), each["LastModified"].timestamp() - shift
            )
            for each in page.get("Contents", ())
        ]
        folders = [each["Prefix"][skipped:] for each in page.get("CommonPrefixes", ())]
        return S3Page(entries, folders, page["NextContinuationToken"] if page["IsTruncated"] else None)

    def _request(
        self, name: str, ask: Callable[[Any], Any], operation: str = "", *, conditional: bool = False
    ) -> dict[str, Any]:
        """Return the answer of one request, after which `clock_offset` is that of this answer."""
        if operation:
            with self._lock:
                self.requests[operation] += 1
        try:
            client = self._client()
            begun = time.time()
            answer: dict[str, Any] = ask(client)
        except Exception as error:  # botocore lets through what its own libraries raise
            raise self._error(error, name, conditional=conditional) from error
        self._measure_clock(answer, (begun + time.time()) / 2)
        return answer

    def _client(self) -> Any:
        with self._lock:
            if self._guard is not None and not self._guard.is_open():
                forget_connections(self._connected)
                self._connected = self._guard = None
            if self._guard is None:
                self._guard = _new_guard(self)
            if self._connected is None:
                self._connected = new_client(self.location.region, *self._timeouts, self._connections)
            return self._connected

    def _error(self, error: Exception, name: str, *, conditional: bool) -> S3Error:
        response = getattr(error, "response", None)
        response = response if isinstance(response, dict) else {}
        stated = response.get("Error", {}).get("Code")
        code = stated if isinstance(stated, str) and _CODE.fullmatch(stated) else type(error).__name__
        if code in _EXPIRED | _NO_CREDENTIALS:
            self._connected = None  # renewed credentials may be where the client found the old ones
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        reason = _reason(code, status)
        if conditional and code in _CONDITION_FAILED:
            return S3Conflict(code, self.location, name, reason=reason)
        if conditional and code in _CONDITION_UNKNOWN:
            return S3ConditionsUnsupported(code, self.location, name, reason=reason)
        refused = 400 <= status < 500 and status not in _RETRIABLE_STATUS and code not in _RETRIABLE
        explanation = _tls_failure(error) if code == _TLS else ""
        return S3Error(code, self.location, name, refused=refused, reason=reason, explanation=explanation)

    def _measure_clock(self, answer: Mapping[str, Any], now: float) -> None:
        import email.utils  # noqa: PLC0415  # 10 ms; boto3 has imported it already

        try:
            date = email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        except (KeyError, TypeError, ValueError):
            return
        self.clock_offset = date.timestamp() - now

    def _clock_shift(self) -> float:
        offset = self.clock_offset or 0.0
        return offset if abs(offset) > _CLOCK_TOLERANCE_SECONDS else 0.0


def _new_guard(bucket: S3Bucket) -> HeldDescriptor:
    """Return the descriptor of a pipe, which a program that closes all files closes with the connections."""
    reader, writer = os.pipe()
    os.close(writer)
    guard = HeldDescriptor(reader)
    weakref.finalize(bucket, guard.close)
    return guard


def _tls_failure(error: BaseException) -> str:
    """Return why there is no TLS, as OpenSSL or the system states it, and whose certificates are trusted."""
    import ssl  # noqa: PLC0415  # some MiB; boto3 has imported it already

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, (ssl.SSLError, FileNotFoundError, PermissionError)):
        cause = cause.__cause__ or cause.__context__
    names = ("verify_message", "reason", "strerror")
    stated = next((text for name in names if isinstance(text := getattr(cause, name, None), str) and text), "no TLS")
    bundle = os.environ.get("AWS_CA_BUNDLE")
    trusted = f"AWS_CA_BUNDLE={bundle}" if bundle else "boto3 (AWS_CA_BUNDLE is not set)"
    return f": {stated.lower().replace('_', ' ')}; trusted are the authorities of {trusted}"


def _reason(code: str, status: int) -> str:
    if code in _THROTTLING or status == 429:
        return THROTTLED
    if code in _NO_OBJECT or code == _NO_BUCKET or status == 404:
        return MISSING
    if code in _NO_CREDENTIALS or code in _EXPIRED or status in {401, 403}:
        return DENIED
    if 400 <= status < 500 or code in {"ResponseParserError", "ParamValidationError"}:
        return INVALID
    return UNREACHABLE
