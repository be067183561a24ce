"""What is asked of S3 for one prefix: which runs, which objects of a run, and one object's content."""

from __future__ import annotations

import email.utils
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden.s3.location import Location

UNREACHABLE, DENIED, THROTTLED, MISSING, INVALID = "unreachable", "denied", "throttled", "missing", "invalid"
REASONS = (UNREACHABLE, DENIED, THROTTLED, MISSING, INVALID)
LIST, GET = "list", "get"
# Of a record's file; the library writes no larger ones either.
MAX_BYTES = 4 * 2**20
WORKERS = 8
# The header counts whole seconds, and an answer takes its time.
EXACT_SECONDS = 2.0
_THROTTLED = frozenset(("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"))
_NOT_THERE = frozenset(("NoSuchKey", "NoSuchBucket", "NotFound", "404"))
# Names of exceptions, as botocore raises them before anything is asked.
_NO_RIGHTS = frozenset(("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ExpiredToken"))


class Trouble(Exception):
    """S3 did not answer as it should: `reason` is one of `REASONS`, the text names the place and never a secret."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


@dataclass(frozen=True)
class Object:
    """One object of a run: `modified` is by this machine's clock, Unix seconds."""

    name: str
    etag: str
    size: int
    modified: float


@dataclass(frozen=True)
class Content:
    """What an object holds, and when S3 took it by this machine's clock, Unix seconds."""

    data: bytes
    etag: str
    modified: float


class Store:
    """The records below one prefix. Every method may be called by several threads, and raises `Trouble`."""

    def __init__(self, location: Location, connect_seconds: float, read_seconds: float) -> None:
        self.location = location
        self.requests: Counter[str] = Counter({LIST: 0, GET: 0})
        self.ahead: float | None = None  # S3's clock against ours, seconds
        self._timeouts = connect_seconds, read_seconds
        self._connected: Any = None
        self._lock = threading.Lock()

    def runs(self, token: str | None) -> tuple[list[str], str | None]:
        """Return a page of the names below the prefix, and the token of the next page; None after the last."""
        page = self._list(self.location.key(""), token)
        skipped = len(self.location.key(""))
        names = [each["Prefix"][skipped:].rstrip("/") for each in page.get("CommonPrefixes", ())]
        return names, page.get("NextContinuationToken") if page.get("IsTruncated") else None

    def objects(self, run_id: str) -> tuple[list[Object], frozenset[str]]:
        """Return the objects of a run that lie in no folder, a thousand at most, and the names of its folders."""
        prefix = self.location.key(f"{run_id}/")
        page = self._list(prefix, None)
        shift = self._shift()
        found = [
            Object(
                each["Key"][len(prefix) :], each["ETag"], int(each["Size"]), each["LastModified"].timestamp() - shift
            )
            for each in page.get("Contents", ())
        ]
        folders = frozenset(each["Prefix"][len(prefix) :].rstrip("/") for each in page.get("CommonPrefixes", ()))
        return found, folders

    def get(self, name: str, etag: str | None = None, last: int | None = None) -> Content | None:
        """Return an object, or its `last` bytes; None if it still has that ETag."""
        asked: dict[str, Any] = {"Bucket": self.location.bucket, "Key": self.location.key(name)}
        asked |= {"IfNoneMatch": etag} if etag else {}
        asked |= {"Range": f"bytes=-{last}"} if last else {}

        def ask(client: Any) -> tuple[dict[str, Any], bytes]:
            answer = client.get_object(**asked)
            with answer["Body"] as body:
                return answer, body.read(MAX_BYTES + 1)

        try:
            answer, data = self._ask(GET, name, ask)
        except NotChanged:
            return None
        return Content(data, answer["ETag"], answer["LastModified"].timestamp() - self._shift())

    def _list(self, prefix: str, token: str | None) -> dict[str, Any]:
        asked = {"Bucket": self.location.bucket, "Prefix": prefix, "Delimiter": "/"}
        asked |= {"ContinuationToken": token} if token else {}
        page = self._ask(LIST, "", lambda client: (client.list_objects_v2(**asked), b""))[0]
        if "IsTruncated" not in page:  # of a proxy's page nothing is left: that is not a bucket without runs
            raise Trouble(INVALID, f"{self.location}: what answers is not S3")
        return page

    def _ask(
        self, operation: str, name: str, ask: Callable[[Any], tuple[dict[str, Any], bytes]]
    ) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            self.requests[operation] += 1
        try:
            client = self._client()
            begun = time.time()
            answer, data = ask(client)
        except Exception as error:  # botocore lets through what its own libraries raise
            raise self._trouble(error, name) from error
        self._measure(answer, (begun + time.time()) / 2)
        return answer, data

    def _client(self) -> Any:
        with self._lock:
            if self._connected is None:
                import boto3  # noqa: PLC0415  # where nothing is copied from S3 it is not needed
                from botocore.config import Config  # noqa: PLC0415

                connect_seconds, read_seconds = self._timeouts
                config = Config(
                    connect_timeout=connect_seconds,
                    read_timeout=read_seconds,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=WORKERS,
                )
                self._connected = boto3.session.Session().client("s3", region_name=self.location.region, config=config)
            return self._connected

    def _trouble(self, error: Exception, name: str) -> Exception:
        response = getattr(error, "response", None)
        said = response if isinstance(response, dict) else {}
        code = str(said.get("Error", {}).get("Code") or type(error).__name__)
        status = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status == 304:
            return NotChanged()
        if code in _NO_RIGHTS:
            self._connected = None  # whoever renews credentials leaves them where the client found the old ones
        return Trouble(_reason(code, status), f"{self.location}{name and '/' + name}: {code[:80]}")

    def _measure(self, answer: dict[str, Any], now: float) -> None:
        try:
            said = email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        except (KeyError, TypeError, ValueError):
            return
        self.ahead = said.timestamp() - now

    def _shift(self) -> float:
        return self.ahead if self.ahead is not None and abs(self.ahead) > EXACT_SECONDS else 0.0


class NotChanged(Exception):
    """The object is the one that is known."""


def _reason(code: str, status: int) -> str:
    if code in _THROTTLED or status == 429:
        return THROTTLED
    if code in _NOT_THERE or status == 404:
        return MISSING
    if code in _NO_RIGHTS or status in {401, 403}:
        return DENIED
    if 400 <= status < 500 or code in {"ResponseParserError", "ParamValidationError"}:
        return INVALID
    return UNREACHABLE
