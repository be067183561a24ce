"""What the log reader feeds to the collector of networks, and what one log that cannot be read costs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporter.transport.transport_tree import TransportTree, efa, nccl, socket
from tests.waiting import wait_until
from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.template import Template
from trainwarden_exporter.collectors.logs import reader
from trainwarden_exporter.collectors.logs.collector import LogsCollector, LogSettings
from trainwarden_exporter.collectors.transport import collector, run_transport
from trainwarden_exporter.core.shared_state import WatchedRun
from trainwarden_exporter.sampling.blocking_io import MAX_BLOCKED


def test_every_process_is_counted_once_however_often_it_is_listed(tree: TransportTree) -> None:
    tree.add_efa()
    tree.write("r", "".join(efa(pid) * 3 for pid in range(8)) + "".join(efa(pid, "node2") for pid in range(8)))
    tree.look()
    assert tree.used() == {("efa", "efa"): 16}
    assert tree.ok() == 1


def test_a_rank_on_sockets_shows_beside_15_on_efa(tree: TransportTree) -> None:
    tree.add_efa()
    tree.write("r", "".join(efa(pid) for pid in range(15)) + socket(99))
    tree.look()
    assert tree.used() == {("efa", "efa"): 15, ("socket", ""): 1}
    assert tree.ok() == 0


def test_good_and_bad_in_different_files_are_one_run(tree: TransportTree) -> None:
    tree.write("r", efa(1))
    tree.write("r", socket(2), "logs/rank1.txt")
    tree.look()
    assert tree.used() == {("efa", "efa"): 1, ("socket", ""): 1}
    assert tree.ok() == 0


def test_ranks_that_are_all_on_one_host_use_no_network_and_are_not_judged(tree: TransportTree) -> None:
    tree.add_efa()
    for run_id, world_size in (("one_host", 8), ("more_ranks", 9), ("unstated", None), ("two_hosts", 9)):
        tree.runs.metadata(run_id, world_size=world_size)
        tree.write(run_id, "".join(socket(pid) for pid in range(8)))
    tree.write("two_hosts", socket(1, "node2"))
    tree.look()
    assert [tree.ok(run_id) for run_id in ("one_host", "more_ranks", "unstated", "two_hosts")] == [None, 0, 0, 0]
    assert tree.used("one_host") == {("socket", ""): 8}


def test_what_a_log_does_not_hold_is_unknown(tree: TransportTree) -> None:
    tree.add_efa()
    tree.write("r", "step 1 loss 2.0\nNCCL version 2.21.5+cuda12.4\n" + nccl("NET/IB : No device found."))
    tree.look()
    assert tree.used() == {}
    assert tree.ok() is None
    assert tree.files("followed") == 1


def test_what_is_written_later_is_found_and_half_a_line_is_waited_for(tree: TransportTree) -> None:
    tree.add_efa()
    line = nccl("Using network Socket")
    tree.write("r", line[:-4])
    tree.look()
    assert tree.used() == {}
    tree.write("r", line[-4:])
    tree.look()
    assert (tree.used(), tree.ok()) == ({("socket", ""): 1}, 0)
    tree.write("r", efa(2))
    tree.look()
    assert tree.used() == {("efa", "efa"): 1, ("socket", ""): 1}


def test_a_new_attempt_starts_anew(tree: TransportTree) -> None:
    tree.add_efa()
    tree.write("r", socket(1))
    tree.look()
    assert tree.ok() == 0
    tree.runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    tree.look()
    assert tree.used() == {}
    tree.write("r", efa(2))
    tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert tree.ok() == 1


def test_a_rotated_log_is_not_read_again_under_its_new_name(tree: TransportTree) -> None:
    tree.add_efa()
    log = tree.write("r", socket(1), "logs/rank.txt")
    tree.look()
    tree.runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    tree.look()
    log.rename(log.with_name("rank.old.txt"))
    tree.write("r", efa(2), "logs/rank.txt")
    for _ in range(4):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}


def test_what_was_found_holds_after_the_end_and_the_logs_are_let_go(tree: TransportTree) -> None:
    tree.write("r", efa(1))
    tree.look()
    tree.runs.metadata("r", status="succeeded")
    tree.look()
    tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert tree.files("followed") == 0


def test_a_run_that_had_ended_before_costs_nothing(tree: TransportTree) -> None:
    tree.runs.metadata("old", status="succeeded")
    tree.write("old", socket(1))
    tree.look()
    assert tree.used("old") == {}
    assert tree.files("followed") == 0


def test_logs_elsewhere_are_read_by_their_template(tmp_path: Path) -> None:
    template = Template.parse(str(tmp_path / "slurm/{run_id}-*.out"))
    tree = TransportTree(tmp_path, (template,))
    tree.runs.metadata("r")
    (tmp_path / "slurm").mkdir()
    for rank in range(4):
        (tmp_path / f"slurm/r-{rank}.out").write_text(efa(rank))
    tree.look()
    assert tree.used() == {("efa", "efa"): 4}


def test_a_pipe_and_a_folder_in_place_of_a_log_cost_themselves_alone(
    tree: TransportTree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.write("r", efa(1))
    logs = tree.runs.path / "r/logs"
    os.mkfifo(logs / "pipe.txt")
    (logs / "folder.txt").mkdir()
    (logs / "outside.txt").symlink_to("/etc/hostname")
    for _ in range(2):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert (tree.files("followed"), tree.files("unreadable")) == (1, 3)
    assert len([record for record in caplog.records if "pipe.txt" in record.getMessage()]) == 1


def test_a_log_that_cannot_even_be_looked_for_costs_itself_alone(
    tree: TransportTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one below a folder that this user may not enter, which root cannot be refused."""
    tree.write("r", efa(1))
    tree.runs.metadata("s", log_path=f"{tmp_path}/runs/{{run_id}}/{'x' * 300}.log")
    for _ in range(2):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert tree.files("unreadable") == 1
    assert len([record for record in caplog.records if "xxx.log" in record.getMessage()]) == 1


def test_no_more_logs_are_followed_than_may_be(tmp_path: Path) -> None:
    tree = TransportTree(tmp_path, max_files=3)
    tree.runs.metadata("r")
    for rank in range(5):
        tree.write("r", efa(rank), f"logs/{rank}.txt")
    tree.look()
    assert tree.used() == {("efa", "efa"): 3}
    assert tree.files("dropped") == 2


def test_a_long_log_takes_several_looks_and_keeps_no_other_waiting(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ROUND_BYTES", 2**20)
    tree.write("r", b"x" * 99 + b"\n", "logs/a.txt")
    tree.write("r", (b"y" * 99 + b"\n") * 40_000 + socket(1).encode(), "logs/b.txt")
    tree.write("r", efa(2), "logs/c.txt")
    tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    for _ in range(4):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1, ("socket", ""): 1}


def restart_logs(tree: TransportTree, **settings: Any) -> None:
    """Start another log reader, which follows logs from where they end."""
    settings = {**vars(tree.settings), "first_read": 1, **settings}
    tree.logs = LogsCollector(
        tree.shared, LogSettings(**settings), None, now=tree.runs.wall, monotonic=lambda: tree.runs.now
    )


def bytes_read(tree: TransportTree) -> float:
    families = {family.metric.name: family for family in tree.logs.collect()}
    return families["trainwarden_log_read_bytes_total"].samples[0].value


def test_each_byte_of_a_log_is_read_once_for_signals_and_networks(tree: TransportTree) -> None:
    path = tree.write("r", (b"y" * 99 + b"\n") * 20_000 + efa(1).encode())
    for _ in range(3):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert bytes_read(tree) == path.stat().st_size


def test_the_beginning_of_a_log_that_is_followed_from_its_end_is_read_for_networks_alone(tree: TransportTree) -> None:
    restart_logs(tree)
    path = tree.write("r", efa(1) + "line\n" * 200_000)
    for _ in range(3):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    size = path.stat().st_size
    assert size - 10 < bytes_read(tree) <= size
    tree.write("r", socket(2))
    tree.look()
    assert tree.used() == {("efa", "efa"): 1, ("socket", ""): 1}


def test_of_a_long_log_only_so_much_of_the_beginning_is_read(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "HEAD_BYTES", 1000)
    monkeypatch.setattr(reader, "HEAD_ROUND_BYTES", 400)
    monkeypatch.setattr(reader, "SLICE_BYTES", 400)
    restart_logs(tree)
    tree.write("r", efa(1) + "line\n" * 400 + socket(2) + "line\n" * 20)
    for _ in range(6):
        tree.look()
    assert tree.used() == {("efa", "efa"): 1}
    assert bytes_read(tree) <= 1100


def test_a_collector_that_is_switched_on_later_reads_the_beginnings(tree: TransportTree) -> None:
    tree.collector.close()
    tree.write("r", efa(1))
    tree.look()
    assert tree.used() == {}
    tree.collector = tree.new_collector()
    tree.look()
    assert tree.used() == {("efa", "efa"): 1}


def test_the_beginning_is_that_of_the_file_that_was_followed_though_another_has_its_name_since(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("first 1\nfirst 2\n" * 30)
    follower = Follower(str(path), [str(tmp_path)])
    follower.poll()
    piece = follower.read(2**20)
    assert piece is not None
    follower.consume(len(piece.data))
    assert follower.position is not None
    for rotated in ("a.log.1", None):
        head = reader.LogHead(str(path), [str(tmp_path)], follower.position)
        path.replace(tmp_path / rotated) if rotated else (tmp_path / "a.log.1").unlink()
        path.write_text("second 1\nsecond 2\n" * 30)
        read = b"".join(iter(head.read, None))
        assert read == (piece.data if rotated else b"")


def test_a_collector_that_is_switched_off_is_fed_no_more(tree: TransportTree) -> None:
    tree.look()
    tree.collector.close()
    tree.write("r", efa(1))
    tree.look()
    assert tree.used() == {}


def test_a_log_that_is_cut_and_written_anew_is_read_from_its_beginning(tree: TransportTree) -> None:
    path = tree.write("r", "padding\n" * 1000 + efa(1))
    tree.look()
    path.write_text(socket(2))
    tree.look()
    assert tree.used() == {("efa", "efa"): 1, ("socket", ""): 1}


def test_a_line_without_end_is_read_all_the_same(tree: TransportTree) -> None:
    tree.write("r", b"z" * (3 * reader.SLICE_BYTES) + b"\n" + efa(1).encode())
    tree.look()
    assert tree.used() == {("efa", "efa"): 1}


def test_a_log_that_never_answers_is_named_by_its_run_and_costs_no_other(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, real = threading.Event(), Follower.poll

    def poll(follower: Follower) -> None:
        if "/r/" in follower.path:
            ends.wait()
        real(follower)

    monkeypatch.setattr(Follower, "poll", poll)
    for run_id in ("q", "r", "s"):
        tree.runs.metadata(run_id)
        tree.write(run_id, efa(1))
    try:
        for _ in range(2):
            tree.look()
            assert [tree.used(run_id) for run_id in ("q", "r", "s")] == [{("efa", "efa"): 1}, {}, {("efa", "efa"): 1}]
            stuck = {"collector": "transport", "device": "r", "call": "stat"}
            assert tree.samples["trainwarden_collector_stuck"] == {frozenset(stuck.items()): 1}
    finally:
        ends.set()

    def is_told() -> bool:
        tree.look()
        return tree.used("r") == {("efa", "efa"): 1}

    wait_until(is_told)
    assert "trainwarden_collector_stuck" not in tree.samples


def test_a_log_that_names_many_providers_and_processes_makes_few_series(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_transport, "MAX_PROCESSES", 500)
    tree.write("r", "".join(nccl(f"NET/OFI Selected Provider is made-up-{pid}", pid) for pid in range(1000)))
    tree.look()
    used = tree.used()
    assert len(used) == run_transport.MAX_PROVIDERS + 1
    assert used["ofi", "made-up-0"] == 1
    assert sum(used.values()) == 500
    assert used["ofi", "other"] == 500 - run_transport.MAX_PROVIDERS


def test_of_few_logs_the_line_that_is_not_complete_is_kept_and_none_of_an_earlier_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_transport, "MAX_RESTS", 2)
    run = run_transport.RunTransport(WatchedRun("r", attempt="0"))
    lines = [nccl("NET/OFI Selected Provider is efa", pid).encode() for pid in range(3)]
    for source, line in enumerate(lines):
        run.feed(str(source), line[:-20], 9)
    for source, line in enumerate(lines):
        run.feed(str(source), line[-20:], 9)
    assert run.processes == 2
    run.feed("0", lines[0][:-20], 9)
    run.update(WatchedRun("r", attempt="1"))
    run.feed("0", lines[0][-20:], 9)
    assert run.processes == 0


def test_a_user_with_many_processes_in_its_logs_leaves_room_for_those_of_another(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_PROCESSES_OF_USER", 5)
    monkeypatch.setattr(collector, "_user_of", lambda run: 1 if run.run.run_id.startswith("many") else 2)
    for run_id in ("few", "many-1", "many-2"):
        tree.runs.metadata(run_id)
        tree.write(run_id, "".join(efa(pid) for pid in range(2 if run_id == "few" else 4)))
    tree.look()
    assert sum(sum(tree.used(run_id).values()) for run_id in ("many-1", "many-2")) == 5
    assert tree.used("few") == {("efa", "efa"): 2}


def test_a_user_whose_folders_hang_hides_the_network_of_no_other(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, real = threading.Event(), run_transport.RunTransport.read_environment

    def read(run: run_transport.RunTransport, *rest: Any) -> None:
        if run.run.run_id.startswith("hung"):
            ends.wait()
        real(run, *rest)

    monkeypatch.setattr(run_transport.RunTransport, "read_environment", read)
    monkeypatch.setattr(collector, "_user_of", lambda run: 1 if run.run.run_id.startswith("hung") else 2)
    tree.collector = tree.new_collector(timeout=0.05)
    for number in range(MAX_BLOCKED + 2):
        tree.runs.metadata(f"hung-{number:02d}")
    tree.write("r", efa(1))
    try:
        for _ in range(3):
            tree.look()
        assert tree.used("r") == {("efa", "efa"): 1}
    finally:
        ends.set()
