"""What the environment of a run asks for, as far as this exporter may look."""

from __future__ import annotations

import os

import pytest

from tests.unit.exporter.runs_tree import HOST
from tests.unit.exporter.transport.transport_tree import KEY, TransportTree, efa, socket
from trainwarden.environment import read_environment
from trainwarden.record.clock import to_iso
from trainwarden_exporter.collectors.transport import environment, run_transport


def test_the_ranks_of_this_node_state_what_they_ask_for(tree: TransportTree) -> None:
    for rank in range(3):
        tree.runs.rank("r", rank, pid=500 + rank)
    tree.environ(500, "RANK=0", "HOME=/root", "FI_PROVIDER=efa", "AWS_SECRET_ACCESS_KEY=hunter2")
    tree.environ(501, "SLURM_PROCID=1", "NCCL_NET=Socket")
    tree.environ(502, "RANK=2", "PATH=/bin")
    tree.write("r", socket(1))
    tree.look(1.0)
    assert tree.requested() == {"efa": 1, "socket": 1}
    assert tree.ok() == 0
    assert "hunter2" not in str(tree.samples)


def test_the_ranks_in_the_file_of_this_node_are_looked_at(tree: TransportTree) -> None:
    tree.runs.rank("r", 0, pid=500)
    ranks = tree.runs.folder("r") / "ranks"
    own = ranks / "0.json"
    (ranks / "node1-0123abcd.json").write_text(f'{{"ranks": [{own.read_text()}]}}')
    own.unlink()
    tree.environ(500, "RANK=0", "NCCL_NET=Socket")
    tree.look(1.0)
    assert tree.requested() == {"socket": 1}


@pytest.mark.parametrize(
    "beat",
    [{"host": "node2"}, {"attempt_key": "local:77-1:5"}, {"time": "2020-01-01T00:00:00Z"}, {"pid": None}, {"pid": 404}],
)
def test_a_process_that_may_be_another_is_not_looked_at(tree: TransportTree, beat: dict[str, object]) -> None:
    tree.runs.rank("r", 0, **{"pid": 500, "attempt_key": KEY, **beat})
    tree.environ(500, "RANK=0", "FI_PROVIDER=efa")
    tree.look(1.0)
    assert tree.requested() == {}


def test_the_process_of_another_user_is_not_looked_at(tree: TransportTree) -> None:
    tree.environ(500, "RANK=0", "FI_PROVIDER=efa")
    owner = os.getuid()
    assert environment.of_process(tree.node.procfs, 500, owner, 0) == {"FI_PROVIDER": "efa"}
    assert environment.of_process(tree.node.procfs, 500, owner + 1, 0) is None


def test_a_process_that_is_another_rank_or_none_does_not_count_and_the_record_does(tree: TransportTree) -> None:
    tree.runs.metadata("r", environment={"nccl_net": "ofi"})
    tree.runs.rank("r", 0, pid=22)
    for variables in (("FI_PROVIDER=efa",), ("RANK=3", "FI_PROVIDER=efa"), ()):
        tree.environ(22, *variables)
        tree.look(1.0)
        assert tree.requested() == {"ofi": 1}


def test_where_no_process_can_be_read_the_record_counts(tree: TransportTree) -> None:
    tree.runs.metadata("r", environment={"nccl_net": "ofi", "fi_provider": "efa", "slurm_job_name": "ib"})
    tree.write("r", socket(1))
    tree.look(1.0)
    assert tree.requested() == {"efa": 1}
    assert tree.ok() == 0


def test_the_library_records_what_the_environment_asks_for() -> None:
    environ = {"NCCL_NET": "ofi", "FI_PROVIDER": "efa", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}
    assert read_environment(environ, "/nonexistent") == {
        "nccl_net": "ofi",
        "fi_provider": "efa",
        "nccl_ib_disable": "1",
    }


def test_sockets_are_fine_where_there_is_nothing_better(tree: TransportTree) -> None:
    tree.write("r", socket(1))
    tree.look()
    assert tree.ok() == 1


@pytest.mark.parametrize("add", ["add_efa", "add_ib"])
def test_sockets_on_a_node_with_a_fast_network_are_not(tree: TransportTree, add: str) -> None:
    getattr(tree, add)()
    tree.write("r", socket(1))
    tree.look()
    assert tree.ok() == 0


def test_a_device_of_software_is_no_fast_network(tree: TransportTree) -> None:
    (tree.node.sysfs / "class/infiniband/rxe0").mkdir(parents=True)
    tree.write("r", socket(1))
    tree.look()
    assert tree.ok() == 1


def test_the_environment_is_looked_for_again_in_the_next_attempt(tree: TransportTree) -> None:
    tree.runs.rank("r", 0, pid=500)
    tree.environ(500, "RANK=0", "NCCL_NET=Socket")
    tree.look(1.0)
    assert tree.requested() == {"socket": 1}
    tree.runs.metadata("r", attempt=1, attempt_key="local:77-1:1")
    tree.runs.rank("r", 0, pid=501, attempt_key="local:77-1:1")
    tree.environ(501, "RANK=0", "NCCL_NET=ofi")
    tree.write("r", efa(1))
    tree.look(1.0)
    assert tree.requested() == {"ofi": 1}


def test_of_thousands_of_ranks_the_record_alone_is_read(tree: TransportTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_transport, "MAX_RANKS", 2)
    tree.runs.metadata("r", environment={"fi_provider": "efa"})
    for rank in range(3):
        tree.runs.rank("r", rank, pid=500)
    tree.environ(500, "RANK=0", "NCCL_NET=Socket")
    tree.look(1.0)
    assert tree.requested() == {"efa": 1}


def test_of_a_run_on_many_hosts_only_the_file_of_this_host_is_read(
    tree: TransportTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_transport, "MAX_RANKS", 2)
    for host in ("node2", "node3", HOST):
        beat = {"rank": 0, "pid": 500, "time": to_iso(tree.runs.now), "host": host, "attempt_key": KEY}
        tree.runs.write("r", f"ranks/{host}-0123abcd.json", {"host": host, "ranks": [beat]})
    tree.environ(500, "RANK=0", "NCCL_NET=Socket")
    tree.look(1.0)
    assert tree.requested() == {"socket": 1}
