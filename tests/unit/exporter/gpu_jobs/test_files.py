"""The files of SLURM's prolog: by index or UUID, gone at any moment, and nothing else is read through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import NodeTree, job, jobs_of, samples, uuid
from trainwarden_exporter.collectors.gpu_jobs import claims as module


def test_a_file_named_by_index_is_read_as_dcgm_exporter_reads_it(node: NodeTree) -> None:
    (node.files / "1").write_text("4711\n")
    (node.files / "2").write_text("4711\n4712\n")
    assert jobs_of(node.page()) == {job(1, "4711"), job(2, "4711"), job(2, "4712")}


def test_a_file_named_by_uuid_may_state_more(node: NodeTree) -> None:
    (node.files / uuid(3)).write_text("4711 user=alice partition=main run_id=r1\n")
    assert jobs_of(node.page()) == {job(3, "4711", user="alice", partition="main", run="r1")}


def test_parts_of_a_gpu_are_listed_once_under_it(node: NodeTree) -> None:
    for part in ("0.1", "0.2"):
        (node.files / part).write_text("4711\n")
    assert jobs_of(node.page()) == {job(0, "4711")}


def test_a_file_that_vanishes_before_it_is_opened_costs_nothing(
    node: NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.files / "0").write_text("1\n")
    (node.files / "1").write_text("2\n")
    read = module.prolog_lines

    def epilog_was_faster(path: Path) -> list[str]:
        (node.files / "0").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(module, "prolog_lines", epilog_was_faster)
    page = node.page()
    assert jobs_of(page) == {job(1, "2")}
    assert 'trainwarden_gpu_jobs_unreadable{source="files"} 0.0' in page


def test_what_is_no_file_of_a_gpu_is_counted_and_costs_no_other(node: NodeTree, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("12345\n")
    (node.files / "0").symlink_to(secret)
    (node.files / "9").write_text("1\n")
    (node.files / "GPU-unknown").write_text("1\n")
    (node.files / "1").write_bytes(b"\xff\xfe ../../etc\n")
    os.mkfifo(node.files / "2")
    (node.files / ".3.tmp").write_text("5\n")
    (node.files / "3").write_text("4711 run_id=../x\n")
    page = node.page()
    assert jobs_of(page) == {job(3, "4711")}
    assert 'trainwarden_gpu_jobs_unreadable{source="files"} 4.0' in page


def test_a_folder_that_is_not_there_yet_is_counted_and_used_once_it_is(node: NodeTree) -> None:
    collector = node.collector()
    node.files.rmdir()
    assert 'trainwarden_gpu_jobs_unreadable{source="files"}' in samples(collector)
    node.files.mkdir()
    (node.files / "0").write_text("1\n")
    assert jobs_of(samples(collector)) == {job(0, "1")}


def test_without_a_folder_nothing_is_missing(node: NodeTree) -> None:
    assert 'trainwarden_gpu_jobs_unreadable{source="files"} 0.0' in samples(node.collector(files=False))


def test_a_folder_that_is_not_there_is_logged_once_even_where_there_is_no_gpu(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = NodeTree(tmp_path, gpus=0)
    node.files.rmdir()
    collector = node.collector()
    for _ in range(2):
        samples(collector)
    (record,) = caplog.records
    assert record.getMessage() == f"--collector.gpu-jobs.path {node.files}: No such file or directory"


def test_the_comment_of_a_job_gives_its_gpu_to_no_run_of_another_user(node: NodeTree) -> None:
    (node.rootfs / "etc/passwd").write_text("alice:x:1000:0::/:/bin/sh\nmallory:x:1001:0::/:/bin/sh\n")
    (node.files / uuid(0)).write_text("4711 user=alice run_id=r1\n")
    (node.files / uuid(1)).write_text("4712 user=mallory run_id=r1\n")
    (node.files / uuid(2)).write_text("4713 user=root run_id=r1\n")
    (node.files / uuid(3)).write_text("4714 user=mallory run_id=unknown\n")
    assert jobs_of(node.page({"r1": 1000})) == {
        job(0, "4711", user="alice", run="r1"),
        job(1, "4712", user="mallory"),
        job(2, "4713", user="root", run="r1"),
        job(3, "4714", user="mallory", run="unknown"),
    }
    # Of a user without a name there is nothing to compare.
    assert job(1, "4712", user="mallory", run="r1") in jobs_of(node.page({"r1": 4242}))
