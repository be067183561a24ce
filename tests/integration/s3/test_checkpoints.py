"""Checkpoints in S3 are judged like those in a folder: by one listing and a few ranges."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import trainwarden
from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from tests.unit.checkpoint import formats
from trainwarden.checkpoint import find, newest, s3_tree, search, size_of, verify
from trainwarden.cli import main
from trainwarden.clients import s3
from trainwarden.clients.s3 import S3Bucket


def _put(store: Store, place: str, files: Mapping[str, bytes]) -> str:
    for name, data in files.items():
        store.client.put_object(Bucket=store.bucket, Key=f"{place}/{name}", Body=data)
    return f"s3://{store.bucket}/{place}"


def _delete(store: Store, key: str) -> None:
    store.client.delete_object(Bucket=store.bucket, Key=key)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        pytest.param("iter_0000010", formats.megatron_distributed(), marks=pytest.mark.nightly),
        pytest.param(
            "checkpoint-10",
            formats.transformers_trainer(10, formats.transformers_model(2)),
            marks=pytest.mark.nightly,
        ),
        ("global_step10", formats.deepspeed(2, 1)),
    ],
)
def test_without_any_one_object_it_is_not_complete(store: Store, name: str, files: dict[str, bytes]) -> None:
    url = _put(store, f"run1/{name}", files)
    assert verify(url).answer == "complete", verify(url)
    for missing, data in files.items():
        _delete(store, f"run1/{name}/{missing}")
        assert verify(url).answer != "complete", f"without {missing}"
        _put(store, f"run1/{name}", {missing: data[: len(data) // 2]})
        assert verify(url).answer == "incomplete", f"with {missing} cut off"
        _put(store, f"run1/{name}", {missing: data})


def test_the_newest_complete_one_below_a_prefix_is_found(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (90, 200, 1000):
        _put(store, f"run1/step_{step}", formats.dcp())
    _delete(store, "run1/step_1000/__0_0.distcp")
    _put(store, "run10/step_5000", formats.dcp())
    _put(store, "run1", {"latest": b"step_90"})
    url = f"s3://{store.bucket}/run1"
    assert [one.step for one in find(url)] == [1000, 200, 90], "run10 is another run's"
    found = newest(f"{url}/")
    assert found is not None
    assert (found[0].path, found[1].answer) == (f"{url}/step_200", "complete")
    assert search(url).remarks == ("latest names step_90, and step 1000 is there as well",)
    assert main(["checkpoints", "--format", "json", url]) == 0
    assert json.loads(capsys.readouterr().out)["newest"]["path"] == f"{url}/step_200"


def test_a_single_object_is_a_checkpoint_too(store: Store) -> None:
    url = _put(store, "run1", {"step-10.pt": formats.torch_file(), "step-10.pt.sha256": b"x"})
    assert verify(f"{url}/step-10.pt").answer == "complete"
    found = newest(f"{url}/step-10.pt")
    assert found is not None
    assert found[0].step == 10


def test_only_ends_and_beginnings_of_large_objects_are_fetched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    url = _put(store, "run1/step_10", {"model.safetensors": formats.safetensors(of_bytes=10**7), "config.json": b"{}"})
    fetched: list[int] = []
    read = S3Bucket.read

    def counting(asked: S3Bucket, name: str, start: int, length: int) -> bytes:
        data = read(asked, name, start, length)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(S3Bucket, "read", counting)
    assert verify(url).answer == "complete"
    assert 0 < sum(fetched) < 10**5


def test_what_s3_does_not_let_us_see_is_unverifiable_and_never_missing(
    store: Store, s3: FaultyServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = _put(store, "run1/step_10", formats.dcp())
    for fault in ("forbidden", "slow down", "broken", "reset", "half"):
        s3.fault = fault
        verdict = verify(url)
        assert verdict.answer == "unverifiable", fault
        assert "SECRET" not in str(verdict)
        assert newest(f"s3://{store.bucket}/run1")[1].answer == "unverifiable"  # type: ignore[index]  # never none
        assert main(["checkpoints", url]) == 2
        assert "SECRET" not in capsys.readouterr().err
    s3.fault = "black hole"
    assert verify(url, seconds=0.5).answer == "unverifiable"
    s3.fault = ""
    assert verify(f"s3://{store.bucket}/absent").answer == "incomplete"
    assert verify("s3://no-such-bucket-here/x").answer == "unverifiable"
    assert main(["checkpoints", f"s3://{store.bucket}/absent"]) == 2


def test_a_listing_of_many_pages_is_whole_and_one_that_is_too_long_proves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PAGE_NAMES", 3)
    url = _put(store, "run1/step_10", formats.dcp(ranks=20))
    assert verify(url).answer == "complete"
    assert size_of(url) == sum(map(len, formats.dcp(ranks=20).values()))
    monkeypatch.setattr(s3_tree, "MAX_FILES", 10)
    assert verify(url).answer == "unverifiable"


def test_a_training_resumes_from_what_it_saved_to_s3(store: Store, tmp_path: Path) -> None:
    urls = [_put(store, f"run1/step_{step}", {"a.bin": b"\x80opaque", "b.bin": b"\x80opaque"}) for step in (10, 20)]
    with trainwarden.run("r", dir=tmp_path) as run:
        for step, url in zip((10, 20), urls, strict=True):
            run.checkpoint_saved(url, step)
    _delete(store, "run1/step_20/b.bin")
    with trainwarden.run("r", dir=tmp_path) as run:
        assert run.resume_checkpoint() == urls[0]
