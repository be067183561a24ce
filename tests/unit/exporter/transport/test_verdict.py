"""Whether a run uses the network that it should."""

from __future__ import annotations

from tests.cases import cases
from trainwarden_exporter.collectors.transport.environment import requested_network
from trainwarden_exporter.collectors.transport.run_transport import Fabric, NetworkUse, is_ok

EFA = NetworkUse("efa", "efa", local=True)
IB = NetworkUse("ib", "", local=True)
SOCKET, SOCKET_ELSEWHERE = NetworkUse("socket", "", local=True), NetworkUse("socket", "", local=False)
TCP, CXI = NetworkUse("ofi", "tcp;ofi_rxm", local=True), NetworkUse("ofi", "cxi", local=True)
UNNAMED, OTHER = NetworkUse("ofi", "", local=True), NetworkUse("other", "", local=True)
BARE, ON_EFA, ON_IB = Fabric(), Fabric(efa=True), Fabric(ib=True)


@cases(
    ("uses", "fabric", "asks", "ok"),
    [
        ([], ON_EFA, {"efa"}, None),
        ([EFA], ON_EFA, set(), True),
        ([EFA] * 8, BARE, set(), True),
        ([IB], ON_IB, set(), True),
        ([SOCKET], ON_EFA, set(), False),
        ([SOCKET], ON_IB, set(), False),
        ([SOCKET], BARE, {"efa"}, False),
        ([SOCKET], BARE, {"ofi"}, False),
        ([SOCKET], BARE, {"ib"}, False),
        ([SOCKET], BARE, {"socket"}, True),
        ([SOCKET], BARE, set(), True),
        ([SOCKET_ELSEWHERE], BARE, set(), None),
        ([EFA, SOCKET_ELSEWHERE], BARE, set(), False),
        ([EFA, EFA, SOCKET], ON_EFA, set(), False),
        ([IB, SOCKET], BARE, set(), False),
        ([TCP], ON_EFA, set(), False),
        ([TCP], ON_IB, set(), False),
        ([TCP], BARE, set(), True),
        ([EFA, TCP], BARE, set(), False),
        ([CXI], BARE, set(), True),
        ([CXI], ON_EFA, set(), False),
        ([CXI], BARE, {"efa"}, False),
        ([UNNAMED], ON_EFA, set(), None),
        ([UNNAMED, EFA], ON_EFA, set(), True),
        ([UNNAMED, SOCKET], ON_EFA, set(), False),
        ([OTHER], BARE, set(), None),
        ([OTHER, SOCKET], ON_IB, set(), False),
    ],
)
def test_one_good_line_never_hides_a_bad_one(
    uses: list[NetworkUse], fabric: Fabric, asks: set[str], ok: bool | None
) -> None:
    assert is_ok(uses, fabric, asks) is ok
    assert is_ok(reversed(uses), fabric, asks) is ok


@cases(
    ("environment", "word"),
    [
        ({}, None),
        ({"NCCL_NET": "ofi"}, "ofi"),
        ({"NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "efa"}, "efa"),
        ({"NCCL_NET_PLUGIN": "ofi"}, "ofi"),
        ({"FI_PROVIDER": "efa"}, "efa"),
        ({"FI_PROVIDER": "tcp"}, None),
        ({"NCCL_NET": "IB", "FI_PROVIDER": "efa"}, "ib"),
        ({"NCCL_NET": "Socket", "FI_PROVIDER": "efa"}, "socket"),
        ({"NCCL_IB_DISABLE": "1"}, "not_ib"),
        ({"NCCL_IB_DISABLE": "0"}, None),
        ({"NCCL_IB_DISABLE": "1", "FI_PROVIDER": "efa"}, "efa"),
        ({"NCCL_NET": "my-own-plugin"}, None),
    ],
)
def test_what_the_environment_asks_for(environment: dict[str, str], word: str | None) -> None:
    assert requested_network(environment) == word
