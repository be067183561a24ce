"""Objects in S3, read, written and listed through boto3."""

import contextlib
import email.utils
import socket
import ssl
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from trainwarden.clients import s3 as s3_client
from trainwarden.clients.s3 import S3Bucket, S3ConditionsUnsupported, S3Conflict, S3Error
from trainwarden.clients.s3_location import S3Location


def bucket_of(store: Store, prefix: str = "a/b", seconds: float = 30.0) -> S3Bucket:
    return S3Bucket(S3Location(store.bucket, prefix), connect_seconds=seconds, read_seconds=seconds)


def test_what_is_put_is_read_whole_and_in_parts(store: Store) -> None:
    bucket = bucket_of(store)
    bucket.put("x.bin", b"0123456789")
    stored = bucket.get("x.bin")
    assert stored is not None and stored.data == b"0123456789" and abs(stored.modified - time.time()) < 60
    assert [bucket.read("x.bin", 2, 3), bucket.read("x.bin", 8, 9), bucket.read("x.bin", 99, 1)] == [b"234", b"89", b""]
    assert bucket.get("y.bin") is None
    with pytest.raises(FileNotFoundError, match=r"a/b/y\.bin"):
        bucket.read("y.bin", 0, 1)


@pytest.mark.parametrize("prefix", ["", "ünï/日本 語", "a+b/c d&e=f%20?g#h", "deep/er/still", "~tilde*'()"])
def test_any_prefix_is_taken_letter_by_letter(store: Store, prefix: str) -> None:
    bucket = bucket_of(store, prefix)
    bucket.put("r/metadata.json", b"{}")
    assert [entry.name for entry in bucket.entries("r/")] == ["r/metadata.json"]
    found = store.client.list_objects_v2(Bucket=store.bucket)["Contents"]
    assert [item["Key"] for item in found] == [f"{prefix}/r/metadata.json".lstrip("/")]


def test_a_listing_of_many_pages_is_whole_and_shows_sizes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "PAGE_NAMES", 3)
    for number in range(10):
        store.client.put_object(Bucket=store.bucket, Key=f"a/b/step_1/{number}", Body=b"x" * number)
    store.client.put_object(Bucket=store.bucket, Key="a/bc", Body=b"of another prefix")
    entries = list(bucket_of(store).entries())
    assert [(entry.name, entry.size) for entry in entries] == [(f"step_1/{n}", n) for n in range(10)]


def test_a_condition_that_does_not_hold_writes_nothing(store: Store) -> None:
    bucket = bucket_of(store)
    etag = bucket.put("_error", b"first", absent=True)
    with pytest.raises(S3Conflict):
        bucket.put("_error", b"second", absent=True)
    bucket.put("_error", b"third", replacing=etag)
    with pytest.raises(S3Conflict):
        bucket.put("_error", b"fourth", replacing=etag)
    with pytest.raises(S3Conflict):
        bucket.delete("_error", etag)
    stored = bucket.get("_error")
    assert stored is not None and stored.data == b"third"
    bucket.delete("_error", stored.etag)
    bucket.delete("_error")
    assert bucket.get("_error") is None


@pytest.mark.parametrize(
    ("fault", "code", "refused"),
    [
        ("forbidden", "AccessDenied", True),
        ("slow down", "SlowDown", False),
        ("broken", "InternalError", False),
        ("full", "InsufficientStorage", False),
        ("black hole", "ReadTimeoutError", False),
        ("reset", "ConnectionClosedError", False),
    ],
)
def test_a_failure_is_a_code_and_holds_no_secret(
    store: Store, s3: FaultyServer, fault: str, code: str, refused: bool
) -> None:
    s3.fault = fault
    with pytest.raises(S3Error) as raised:
        bucket_of(store, seconds=0.3 if fault == "black hole" else 30.0).put("x", b"1")
    assert (raised.value.code, raised.value.refused) == (code, refused)
    assert "SECRET" not in str(raised.value) and store.bucket in str(raised.value)
    # One try: whoever asks decides when to ask again.
    assert s3.touched == ["PUT a/b/x"]


def test_an_answer_that_breaks_off_is_no_content(store: Store, s3: FaultyServer) -> None:
    bucket = bucket_of(store)
    bucket.put("x", b"0123456789")
    s3.fault = "half"
    with pytest.raises(S3Error):
        bucket.get("x")
    with pytest.raises(S3Error):
        bucket.read("x", 0, 10)


def test_nobody_listening_and_no_bucket_have_codes_of_their_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(S3Error, match="NoSuchBucket"):
        S3Bucket(S3Location("not-there", "a")).get("x")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(S3Error, match="EndpointConnectionError"):
        bucket_of(store).get("x")


@pytest.mark.parametrize(
    ("days", "bundle", "why"),
    [
        (-1, "authority.pem", "certificate has expired"),
        (1, "other.pem", "unable to get local issuer certificate"),
        (1, "missing.pem", "no such file or directory"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_named_with_what_is(
    days: int, bundle: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = Authority.create(tmp_path).issue("server", "127.0.0.1", days=days)
    Authority.create(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / bundle))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refused_once() -> None:
            with server.accept()[0] as connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        threading.Thread(target=refused_once, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"https://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(S3Error, match=f"SSLError: {why}; .*{bundle}$") as caught:
            S3Bucket(S3Location("bucket", "a"), connect_seconds=30.0, read_seconds=30.0).get("x")
    assert not caught.value.refused


def test_a_server_without_conditions_shows_it(store: Store, s3: FaultyServer) -> None:
    s3.fault = "unconditional"
    with pytest.raises(S3ConditionsUnsupported):
        bucket_of(store).put("x", b"1", absent=True)


def test_an_object_is_as_old_as_it_is_whatever_the_servers_clock_shows(store: Store) -> None:
    bucket = bucket_of(store)
    store.client.put_object(Bucket=store.bucket, Key="a/b/x", Body=b"1")
    an_hour_ahead = time.time() + 3600

    def ahead(parsed: dict[str, Any], **_: object) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = email.utils.formatdate(an_hour_ahead, usegmt=True)
        parsed["LastModified"] = datetime.fromtimestamp(an_hour_ahead - 100, timezone.utc)

    bucket._client().meta.events.register("after-call.s3.GetObject", ahead)
    stored = bucket.get("x")
    assert stored is not None and 90 < time.time() - stored.modified < 130


def test_credentials_that_were_renewed_where_they_came_from_are_taken(
    store: Store, s3: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = bucket_of(store)
    s3.fault = "expired"
    with pytest.raises(S3Error, match="ExpiredToken") as caught:
        bucket.put("x", b"1")
    assert not caught.value.refused
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIARENEWED")
    s3.fault = ""
    bucket.put("x", b"2")
    assert "AKIARENEWED" in s3.signed


def test_an_object_from_what_is_not_s3_is_an_s3_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Portal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "8")
            self.end_headers()
            self.wfile.write(b"sign in!")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        bucket = bucket_of(store)
        try:
            for read in (bucket.get, bucket.get_changed, lambda name: bucket.read(name, 0, 9)):
                with pytest.raises(S3Error, match="what answers is not S3"):
                    read("metadata.json")
        finally:
            server.shutdown()
