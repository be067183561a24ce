"""What the counters of an EFA device are called: by the driver, and as metrics.

A file's name is taken apart into words, and the words are written out: `rdma_read_wr_err` is
`efa_rdma_read_work_request_errors_total`.
"""

from __future__ import annotations

from types import MappingProxyType

# What each counts, for the catalogue. Those from `retrans_bytes` on came with driver 2.17.
PORT = MappingProxyType(
    {
        "tx_bytes": "Bytes sent.",
        "tx_pkts": "Packets sent.",
        "rx_bytes": "Bytes received.",
        "rx_pkts": "Packets received.",
        "rx_drops": "Packets received and dropped.",
        "send_bytes": "Bytes sent by send work requests.",
        "send_wrs": "Send work requests completed.",
        "recv_bytes": "Bytes received by receive work requests.",
        "recv_wrs": "Receive work requests completed.",
        "rdma_read_wrs": "RDMA read work requests completed.",
        "rdma_read_bytes": "Bytes fetched by RDMA reads of this device.",
        "rdma_read_wr_err": "RDMA read work requests that failed.",
        "rdma_read_resp_bytes": "Bytes sent in answer to RDMA reads of others.",
        "rdma_write_wrs": "RDMA write work requests completed.",
        "rdma_write_bytes": "Bytes sent by RDMA writes of this device.",
        "rdma_write_wr_err": "RDMA write work requests that failed.",
        "rdma_write_recv_bytes": "Bytes received from RDMA writes of others.",
        "retrans_bytes": "Bytes sent again.",
        "retrans_pkts": "Packets sent again.",
        "retrans_timeout_events": "Times that an answer was so late that the path was changed.",
        "unresponsive_remote_events": "Times that the other side did not answer.",
        "impaired_remote_conn_events": "Times that a connection was slowed down because it is impaired.",
    }
)
DEVICE = MappingProxyType(
    {
        "submitted_cmds": "Commands given to the device.",
        "completed_cmds": "Commands that the device has completed.",
        "cmds_err": "Commands that failed.",
        "no_completion_cmds": "Commands that the device never completed.",
        "keep_alive_rcvd": "Signs of life received from the device.",
        "alloc_pd_err": "Protection domains that could not be allocated.",
        "create_qp_err": "Queue pairs that could not be created.",
        "create_cq_err": "Completion queues that could not be created.",
        "reg_mr_err": "Memory regions that could not be registered.",
        "alloc_ucontext_err": "User contexts that could not be allocated.",
        "create_ah_err": "Address handles that could not be created.",
        "mmap_err": "Mappings of device memory that failed.",
        "alloc_mr_err": "Memory regions that could not be allocated.",
        "get_dma_mr_err": "DMA memory regions that could not be had.",
    }
)
# For how long the driver answers from its memory, milliseconds: no counter.
NO_COUNTERS = frozenset(("lifespan",))

_WORDS = {
    "pkts": "packets",
    "wrs": "work_requests",
    "wr": "work_request",
    "err": "errors",
    "resp": "response",
    "cmds": "commands",
    "rcvd": "received",
    "conn": "connection",
    "retrans": "retransmitted",
}
_NAMES = {
    "cmds_err": "command_errors",
    "keep_alive_rcvd": "keep_alives_received",
    "retrans_timeout_events": "retransmission_timeouts",
    "unresponsive_remote_events": "unresponsive_remotes",
    "impaired_remote_conn_events": "impaired_remote_connections",
}


def metric_name(counter: str) -> str:
    """Return the name of the metric that a counter is shown as."""
    return f"efa_{_NAMES.get(counter) or '_'.join(_WORDS.get(word, word) for word in counter.split('_'))}_total"
