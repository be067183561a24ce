"""The copy of a prefix, where its server answers what no server of a test does."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainwarden.clients.s3 import DENIED, INVALID, S3Entry, S3Error, S3Object, S3Page
from trainwarden.clients.s3_location import S3Location
from trainwarden_exporter.collectors.s3.local_copy import LocalCopy
from trainwarden_exporter.collectors.s3.prefix_sync import Bounds, PrefixSync
from trainwarden_exporter.core.exposition import encode_text


def test_a_listing_that_cannot_go_on_where_it_stopped_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, tokens = S3Location("bucket", "prefix"), ["first", None]

    def page(folder: str = "", token: str | None = None) -> S3Page:
        if folder:
            return S3Page([], [], None)
        if token is not None:
            raise S3Error("InvalidArgument", location, refused=True, reason=INVALID)
        return S3Page([], ["r"], tokens.pop(0))

    bucket: Any = SimpleNamespace(location=location, page=page, clock_offset=None, requests={}, is_aws=False)
    sync = PrefixSync(bucket, LocalCopy(tmp_path / "copy"), Bounds())
    monkeypatch.setattr("trainwarden_exporter.collectors.s3.prefix_sync.LONGEST_PAUSE_SECONDS", 0.0)
    ups = [encode_text(sync.sample()).decode().count('s3_up{bucket="bucket",prefix="prefix"} 1.0') for _ in range(2)]
    assert ups == [0, 1]


@pytest.mark.parametrize(("refused", "up", "copied"), [({"a"}, 1, {"b", "c"}), ({"a", "b", "c"}, 0, set())])
def test_an_object_that_may_not_be_read_keeps_no_other_run_from_being_copied(
    refused: set[str], up: int, copied: set[str], tmp_path: Path
) -> None:
    location = S3Location("bucket", "prefix")

    def page(folder: str = "", token: str | None = None) -> S3Page:
        entry = S3Entry("metadata.json", f"etag-{folder}", 2, time.time())
        return S3Page([entry], [], token) if folder else S3Page([], ["a", "b", "c"], token)

    def get_changed(key: str, *_: object, **__: object) -> S3Object:
        if key.partition("/")[0] in refused:
            raise S3Error("AccessDenied", location, key, refused=True, reason=DENIED)
        return S3Object(b"{}", "etag", time.time())

    bucket: Any = SimpleNamespace(
        location=location, page=page, get_changed=get_changed, clock_offset=None, requests={}, is_aws=False
    )
    sync = PrefixSync(bucket, LocalCopy(tmp_path / "copy"), Bounds())
    shown = encode_text(sync.sample()).decode()
    assert f'trainwarden_s3_up{{bucket="bucket",prefix="prefix"}} {up}.0' in shown
    assert f'errors_total{{bucket="bucket",prefix="prefix",reason="denied"}} {len(refused)}.0' in shown
    assert {path.parent.name for path in (tmp_path / "copy").glob("*/metadata.json")} == copied


def test_a_full_disk_is_named_with_the_file_that_it_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    copy = LocalCopy(tmp_path / "copy")
    copy.run("r")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*copy/r/metadata\.json'"):
        copy.write("r", "metadata.json", S3Object(b"{}", "etag", 0.0))
    monkeypatch.setattr("trainwarden_exporter.collectors.s3.local_copy.replace_file", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*copy/\.s3\.json'"):
        copy.save()
