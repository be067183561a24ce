"""What NCCL prints of its network, in the words of its versions and with the marks of launchers before it."""

from __future__ import annotations

from tests.cases import cases
from trainwarden.signals.nccl_lines import NcclLine, ProcessNetworks, parse_lines, transport_of

INFO = "ip-10-0-0-1:22:31 [3] NCCL INFO"


def networks(*lines: str) -> set[tuple[str, str]]:
    process = ProcessNetworks()
    for said in parse_lines("".join(f"{INFO} {line}\n" for line in lines).encode()):
        process = process.with_line(said)
    return process.networks


@cases(
    ("lines", "found"),
    [
        (["NET/OFI Selected Provider is efa"], {("efa", "efa")}),
        (["NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"], {("efa", "efa")}),
        (["NET/OFI Selected Provider is efa;ofi_rxr (found 4 nics)", "Using network AWS Libfabric"], {("efa", "efa")}),
        (["NET/OFI Selected Provider is EFA", "NET/OFI Using transport protocol RDMA"], {("efa", "efa")}),
        (["NET/OFI Selected Provider is tcp;ofi_rxm", "Using network Libfabric"], {("ofi", "tcp;ofi_rxm")}),
        (["NET/OFI Selected Provider is cxi"], {("ofi", "cxi")}),
        (["Using network AWS Libfabric"], {("ofi", "")}),
        (["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", "Using network IB"], {("ib", "")}),
        (["NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]", "Using network IBext_v8"], {("ib", "")}),
        (["NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket"], {("socket", "")}),
        (["Initialized NET plugin Socket", "Assigned NET plugin Socket to comm"], {("socket", "")}),
        (["NET/Socket : Using [0]ens3:<0>", "NET/IB : Using [0]mlx5_0:1/IB ; OOB ens3:<0>"], {("ib", "")}),
        (["NET/OFI Selected Provider is efa", "Using network Socket"], {("socket", "")}),
        (["Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0"], {("socket", "")}),
        (["Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA"], {("ofi", "")}),
        (["Using network IB", "Using network Socket"], {("ib", ""), ("socket", "")}),
        (["Using network FasTrak"], {("other", "")}),
        (["NET/IB : No device found.", "NET/Plugin : No plugin found (libnccl-net.so)."], set()),
        (["Bootstrap : Using eth0:10.0.0.1<0>", "NCCL_SOCKET_IFNAME set by environment to eth0"], set()),
        (["Using non-device net plugin version 0", "NET/OFI Initializing aws-ofi-nccl 1.16.2"], set()),
    ],
)
def test_what_a_process_uses(lines: list[str], found: set[tuple[str, str]]) -> None:
    assert networks(*lines) == found


@cases(
    "before",
    [
        "node1:22:31 [3] ",
        "node1.cluster.local:22:31 [3] ",
        "NODE1:22:31 ",
        "0: node1:22:31 [0] ",
        "[1,0]<stdout>:node1:22:31 [0] ",
        "[2025-10-16 22:16:08] node1:22:31 [0] ",
        "\x1b[36m(RayTrainWorker pid=22, ip=10.0.0.1)\x1b[0m node1:22:31 [0] ",
        "2025-05-16T16:39:51.208-07:00 node1:22:31 [0] ",
    ],
)
def test_the_rank_of_a_line_is_found_behind_a_launchers_prefix(before: str) -> None:
    assert list(parse_lines(f"x\n{before}NCCL INFO Using network IB\ny\n".encode())) == [
        NcclLine("node1", 22, used="ib")
    ]


def test_a_line_without_its_process_counts_all_the_same() -> None:
    assert list(parse_lines(b"NCCL INFO Using network Socket\n")) == [NcclLine("", 0, used="socket")]


@cases("name", ["efa\nx", "a" * 100, "<script>", "{}"])
def test_a_provider_is_only_what_looks_like_one(name: str) -> None:
    (found,) = networks(f"NET/OFI Selected Provider is {name}") or {("", "")}
    assert found in {("efa", "efa"), ("ofi", "other"), ("ofi", "a" * 64), ("", "")}
    assert len(found[1]) <= 32


def test_a_process_that_names_a_thousand_providers_is_bounded() -> None:
    assert len(networks(*(f"NET/OFI Selected Provider is p{n}" for n in range(1000)))) == 4


def test_names_of_networks() -> None:
    assert [transport_of(name) for name in ("Socket", "IB", "IBext", "Libfabric", "ofi", "UCX", "")] == [
        "socket", "ib", "ib", "ofi", "ofi", "other", "other",
    ]  # fmt: skip
