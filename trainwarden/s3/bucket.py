"""Objects in S3 below one prefix, through boto3: as it finds credentials, region and endpoint, so do we."""

import email.utils
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from trainwarden.record.document import MAX_BYTES
from trainwarden.s3.location import Location

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0

_NOT_THERE = frozenset(("NoSuchKey", "404", "NotFound"))
_LATER_STATUS = (408, 409, 425, 429)
# Whoever renews credentials may leave them where the client found the old ones.
_STALE_CREDENTIALS = frozenset(("ExpiredToken", "TokenRefreshRequired"))
_LATER = frozenset(("RequestTimeout", "RequestTimeTooSkewed", "Throttling", "SlowDown")) | _STALE_CREDENTIALS
_CODE = re.compile(r"[A-Za-z0-9._-]{1,80}")

_Result = TypeVar("_Result")


class MissingBoto3(Exception):
    """S3 is wanted, and boto3 is not installed."""


class S3Error(Exception):
    """S3 did not do what it was asked. `code` is its error code, or the kind of trouble on the way; never a secret.

    `refused`: it understood, and will say the same again; else it may work later.
    """

    def __init__(self, code: str, location: Location, name: str = "", *, refused: bool = False) -> None:
        self.code = code
        self.refused = refused
        super().__init__(f"{location}{name and '/' + name}: {code}")


class Changed(S3Error):
    """A conditional request found another object than expected, or one where none was expected."""


class Unconditional(S3Error):
    """The server knows no conditional requests of this kind."""


@dataclass(frozen=True)
class Stored:
    """An object: `modified` is when S3 took it, Unix seconds by this machine's clock, whatever the server's says."""

    data: bytes
    etag: str
    modified: float


@dataclass(frozen=True)
class Entry:
    """One object of a listing: `name` without the prefix, `size` in bytes, `modified` in Unix seconds by S3's clock."""

    name: str
    size: int
    modified: float


def load_boto3() -> None:
    """Import what S3 needs, now and not when memory may be short.

    Raises:
        MissingBoto3: it is not installed.
    """
    try:
        import boto3  # noqa: F401, PLC0415  # an extra
        import botocore.config  # noqa: PLC0415
        import botocore.exceptions  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingBoto3(
            "S3 needs boto3, which is not installed: pip install 'trainwarden[s3]', or unset TRAINWARDEN_S3_URL and "
            "MONITORING_BUCKET"
        ) from error


class Bucket:
    """The objects below `location`. Names are relative to it. For one thread at a time; never tries twice by itself.

    Args:
        location: bucket, prefix and region.
        connect_seconds: how long to wait for a connection; `CONNECT_SECONDS` if None.
        read_seconds: how long to wait for each part of an answer; `READ_SECONDS` if None.

    Every method raises S3Error where S3 cannot be asked or refuses.
    """

    def __init__(
        self, location: Location, *, connect_seconds: float | None = None, read_seconds: float | None = None
    ) -> None:
        self.location = location
        self._timeouts = connect_seconds or CONNECT_SECONDS, read_seconds or READ_SECONDS
        self._connected: Any = None

    def get(self, name: str) -> Stored | None:
        """The object `name`, at most 4 MiB of it; None if there is none."""

        def ask(client: Any) -> Stored:
            asked = time.time()
            answer = client.get_object(Bucket=self.location.bucket, Key=self.location.key(name))
            ahead = _clock_offset(answer, (asked + time.time()) / 2)
            with answer["Body"] as body:
                data = body.read(MAX_BYTES)
            if len(data) != min(answer["ContentLength"], MAX_BYTES):
                raise S3Error("IncompleteRead", self.location, name)
            return Stored(data, answer["ETag"], answer["LastModified"].timestamp() - ahead)

        return self._absent_is_none(name, ask)

    def read(self, name: str, start: int, length: int) -> bytes:
        """The `length` bytes of the object `name` from byte `start` on; fewer if it ends before.

        Raises:
            FileNotFoundError: there is no such object.
        """
        if length <= 0:
            return b""

        def ask(client: Any) -> bytes:
            answer = client.get_object(
                Bucket=self.location.bucket, Key=self.location.key(name), Range=f"bytes={start}-{start + length - 1}"
            )
            with answer["Body"] as body:
                data: bytes = body.read(length)
            if len(data) != min(answer["ContentLength"], length):
                raise S3Error("IncompleteRead", self.location, name)
            return data

        try:
            found = self._absent_is_none(name, ask)
        except S3Error as error:
            if error.code == "InvalidRange":
                return b""
            raise
        if found is None:
            raise FileNotFoundError(f"{self.location}/{name}: there is no such object")
        return found

    def entries(self, below: str = "") -> Iterator[Entry]:
        """Every object whose name begins with `below`, in the order of names; as many requests as thousands."""
        prefix = self.location.key(below)
        skipped = len(self.location.key(""))
        token: dict[str, str] = {}
        while True:
            page = self._ask(below, partial(_list, Bucket=self.location.bucket, Prefix=prefix, **token))
            for item in page.get("Contents", ()):
                yield Entry(item["Key"][skipped:], int(item["Size"]), item["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def put(self, name: str, data: bytes, *, replacing: str | None = None, absent: bool = False) -> str:
        """Write the object `name` and return its ETag.

        Args:
            name: of the object.
            data: its whole content.
            replacing: the ETag that it must have had; any if None.
            absent: whether it must not have been there.

        Raises:
            Changed: the condition does not hold.
            Unconditional: the server knows no such condition.
        """
        condition = {"IfNoneMatch": "*"} if absent else {} if replacing is None else {"IfMatch": replacing}
        answer = self._ask(
            name,
            lambda client: client.put_object(
                Bucket=self.location.bucket,
                Key=self.location.key(name),
                Body=data,
                ContentType=_type(name),
                **condition,
            ),
            conditional=bool(condition),
        )
        return str(answer.get("ETag", ""))

    def delete(self, name: str, etag: str | None = None) -> None:
        """Remove the object `name`, if it has that ETag; one that is not there is fine. It raises what `put` does."""
        condition = {} if etag is None else {"IfMatch": etag}
        self._absent_is_none(
            name,
            lambda client: client.delete_object(Bucket=self.location.bucket, Key=self.location.key(name), **condition),
            conditional=bool(condition),
        )

    def connect(self) -> bool:
        """Find credentials, region and endpoint, which may take seconds; False: S3 itself was not asked."""
        return self._ask("", lambda _: False)

    def _client(self) -> Any:
        if self._connected is None:
            import boto3  # noqa: PLC0415  # see load_boto3
            from botocore.config import Config  # noqa: PLC0415

            connect_seconds, read_seconds = self._timeouts
            config = Config(
                connect_timeout=connect_seconds,
                read_timeout=read_seconds,
                retries={"total_max_attempts": 1},
                max_pool_connections=1,
            )
            # A session of our own: the default one is the training's, and shared between threads.
            self._connected = boto3.session.Session().client("s3", region_name=self.location.region, config=config)
        return self._connected

    def _absent_is_none(self, name: str, ask: Callable[[Any], _Result], *, conditional: bool = False) -> _Result | None:
        try:
            return self._ask(name, ask, conditional=conditional)
        except S3Error as error:
            if error.code in _NOT_THERE:
                return None
            raise

    def _ask(self, name: str, ask: Callable[[Any], _Result], *, conditional: bool = False) -> _Result:
        try:
            return ask(self._client())
        except S3Error:
            raise
        except Exception as error:  # botocore lets through what its own libraries raise
            raise self._error(error, name, conditional=conditional) from error

    def _error(self, error: Exception, name: str, *, conditional: bool) -> S3Error:
        response = getattr(error, "response", None)
        said = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
        code = said if isinstance(said, str) and _CODE.fullmatch(said) else type(error).__name__
        if code in _STALE_CREDENTIALS:
            self._connected = None
        if conditional and code in {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}:
            return Changed(code, self.location, name)
        if conditional and code in {
            "NotImplemented",
            "501",
            "InvalidRequest",
            "InvalidArgument",
            "ParamValidationError",
        }:
            return Unconditional(code, self.location, name)
        return S3Error(code, self.location, name, refused=_is_refusal(response, code))


def _is_refusal(response: Any, code: str) -> bool:
    if not isinstance(response, dict):
        return False
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return 400 <= status < 500 and status not in _LATER_STATUS and code not in _LATER


def _list(client: Any, **asked: str) -> Any:
    return client.list_objects_v2(**asked)


def _clock_offset(answer: Any, now: float) -> float:
    """How many seconds S3's clock is ahead of ours."""
    try:
        said = email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, TypeError, ValueError):
        return 0.0
    ahead = said.timestamp() - now
    # The header counts whole seconds.
    return ahead if abs(ahead) > 2 else 0.0


def _type(name: str) -> str:
    return "application/json" if name.endswith(".json") else "text/plain; charset=utf-8"
