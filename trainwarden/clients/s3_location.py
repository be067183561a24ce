"""A place in S3: how users write it, and which one the environment names."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The prefix below which existing monitors look for records.
MONITORING_PREFIX = "training-runs"

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
# A key has at most 1024 bytes; the run id and the file's name come after the prefix.
_MAX_PREFIX_BYTES = 700


class InvalidLocation(ValueError):
    """The text names no place in S3; the message quotes it, with what was expected."""


@dataclass(frozen=True)
class S3Location:
    """A prefix in a bucket, without a slash at either end; `""` is the whole bucket. `region` is boto3's if None."""

    bucket: str
    prefix: str = ""
    region: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def below(self, name: str) -> S3Location:
        """Return the place called `name` in this one."""
        return replace(self, prefix=self.key(name))

    def key(self, name: str) -> str:
        """Return the key of the object called `name`."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def console_url(self, name: str) -> str:
        """Return the address of the page that shows what is called `name` in the console of AWS."""
        from urllib.parse import quote  # noqa: PLC0415  # slow to import, and seldom needed

        region = f"region={self.region}&" if self.region else ""
        prefix = quote(self.key(name), safe="")
        return f"https://s3.console.aws.amazon.com/s3/buckets/{self.bucket}?{region}prefix={prefix}"


def parse_s3_url(url: object, region: str | None = None, *, source: str = "s3") -> S3Location:
    """Return the place that `url` names.

    Args:
        url: `s3://bucket/prefix`, the prefix taken letter by letter.
        region: of the bucket.
        source: where the text comes from, for the message.

    Raises:
        InvalidLocation: `url` is no such text.
    """
    if not isinstance(url, str) or not url.startswith("s3://"):
        raise InvalidLocation(f"{source}={_shown(url)} is no place in S3: expected s3://bucket/prefix")
    bucket, _, prefix = url[len("s3://") :].partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise InvalidLocation(
            f"{source}={_shown(url)}: the bucket's name is not usable: "
            "expected 3 to 255 letters, digits, '.', '-' or '_' after s3://"
        )
    prefix = prefix.strip("/")
    if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in prefix):
        raise InvalidLocation(f"{source}={_shown(url)}: the prefix holds control characters")
    if len(prefix.encode()) > _MAX_PREFIX_BYTES:
        raise InvalidLocation(f"{source}={_shown(url)}: the prefix is longer than {_MAX_PREFIX_BYTES} bytes")
    return S3Location(bucket, prefix, region)


def records_location(given: object = None, environ: Mapping[str, str] = os.environ) -> S3Location | None:
    """Return where records are copied to; None for nowhere.

    Args:
        given: `s3://bucket/prefix`; None or "" to read the environment.
        environ: may hold TRAINWARDEN_S3_URL, MONITORING_BUCKET and MONITORING_REGION.

    Raises:
        InvalidLocation: the first one that is set names no place in S3.
    """
    region = environ.get("MONITORING_REGION") or None
    if given is not None and given != "":
        return parse_s3_url(given, region)
    if url := environ.get("TRAINWARDEN_S3_URL"):
        return parse_s3_url(url, region, source="TRAINWARDEN_S3_URL")
    if bucket := environ.get("MONITORING_BUCKET"):
        if "/" in bucket:
            raise InvalidLocation(f"MONITORING_BUCKET={_shown(bucket)}: expected the name of a bucket alone")
        return parse_s3_url(f"s3://{bucket}/{MONITORING_PREFIX}", region, source="MONITORING_BUCKET")
    return None


def _shown(value: object) -> str:
    # What stands before an @ in a URL may be a secret.
    if isinstance(value, str) and "@" in value:
        value = f"…@{value.rpartition('@')[2]}"
    shown = repr(value)
    return shown if len(shown) <= 120 else f"{shown[:120]}…"
