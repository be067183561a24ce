"""The metrics of EFA devices: their own, and one for each counter file of the driver."""

from __future__ import annotations

from types import MappingProxyType

from trainwarden_exporter.core.metric import Metric, counter, gauge, untyped

# What each counter of a port counts, by file name. Those from `retrans_bytes` on came with driver 2.17.
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
        "unresponsive_remote_events": "Times that the remote side did not answer.",
        "impaired_remote_conn_events": "Times that a connection was slowed down because it is impaired.",
    }
)
# The counters of the device itself.
DEVICE = MappingProxyType(
    {
        "submitted_cmds": "Commands given to the device.",
        "completed_cmds": "Commands that the device has completed.",
        "cmds_err": "Commands that failed.",
        "no_completion_cmds": "Commands that the device never completed.",
        "keep_alive_rcvd": "Keep-alives received from the device.",
        "alloc_pd_err": "Protection domains that could not be allocated.",
        "create_qp_err": "Queue pairs that could not be created.",
        "create_cq_err": "Completion queues that could not be created.",
        "reg_mr_err": "Memory regions that could not be registered.",
        "alloc_ucontext_err": "User contexts that could not be allocated.",
        "create_ah_err": "Address handles that could not be created.",
        "mmap_err": "Mappings of device memory that failed.",
        "alloc_mr_err": "Memory regions that could not be allocated.",
        "get_dma_mr_err": "DMA memory regions that could not be obtained.",
    }
)
# For how long the driver caches its answers, milliseconds: no counter.
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
    """Return the metric of a counter: of `rdma_read_wr_err`, efa_rdma_read_work_request_errors_total."""
    return f"efa_{_NAMES.get(counter) or '_'.join(_WORDS.get(word, word) for word in counter.split('_'))}_total"


_CLASS = "/sys/class/infiniband"
_UNITS = ("bytes", "packets", "work_requests", "commands")
_EXAMPLES = {
    "no_completion_cmds": "increase(efa_no_completion_commands_total[10m]) > 0",
    "keep_alive_rcvd": "rate(efa_keep_alives_received_total[5m]) == 0",
    "rdma_read_resp_bytes": "sum without (device, port) (rate(efa_rdma_read_response_bytes_total[5m]))",
    "retrans_pkts": "rate(efa_retransmitted_packets_total[5m]) / rate(efa_tx_packets_total[5m]) > 0.01",
}
EFA_DEVICES = gauge(
    "efa_devices", "", "devices", "EFA devices that the node shows.", _CLASS, "efa_devices < efa_devices_expected"
)
EFA_DEVICES_EXPECTED = gauge(
    "efa_devices_expected",
    "",
    "devices",
    "EFA devices expected on the node: by a flag, else its instance type, else its PCI bus.",
    "--expect.efa-devices, /sys/class/dmi/id/product_name, /sys/bus/pci/devices",
    "efa_devices_expected - efa_devices > 0",
)
EFA_DEVICE_UP = gauge(
    "efa_device_up",
    "device",
    "0/1",
    "1 while the node shows the device; 0 for one that it has shown since the exporter began and no longer shows.",
    _CLASS,
    "efa_device_up == 0",
)
EFA_NODE_DEVICES_DOWN = gauge(
    "efa_node_devices_down",
    "",
    "devices",
    "EFA devices that the node has shown since the exporter began and no longer shows.",
    "the number of efa_device_up that are 0",
    "efa_node_devices_down > 0",
)
EFA_NODE_PORTS_DOWN = gauge(
    "efa_node_ports_down",
    "",
    "ports",
    "Ports of the node's EFA devices that are not active; a device that is gone has none.",
    f"{_CLASS}/DEVICE/ports/PORT/state",
    "efa_node_ports_down > 0",
)
EFA_NODE_TX_BYTES_TOTAL = counter(
    "efa_node_tx_bytes_total",
    "",
    "bytes",
    "Bytes that all EFA devices have sent since the exporter began to watch them.",
    "the sum of efa_tx_bytes_total, without its resets",
    "rate(efa_node_tx_bytes_total[5m])",
)
EFA_NODE_RX_BYTES_TOTAL = counter(
    "efa_node_rx_bytes_total",
    "",
    "bytes",
    "Bytes that all EFA devices have received since the exporter began to watch them.",
    "the sum of efa_rx_bytes_total, without its resets",
    "rate(efa_node_rx_bytes_total[5m])",
)
EFA_NODE_RETRANSMITTED_BYTES_TOTAL = counter(
    "efa_node_retransmitted_bytes_total",
    "",
    "bytes",
    "Bytes that all EFA devices have sent again since the exporter began to watch them; since driver 2.17.",
    "the sum of efa_retransmitted_bytes_total, without its resets",
    "rate(efa_node_retransmitted_bytes_total[5m]) / rate(efa_node_tx_bytes_total[5m]) > 0.01",
)


def _node(name: str, unit: str, text: str, example: str) -> Metric:
    return counter(
        f"efa_node_{name}_total",
        "",
        unit,
        f"{text} since the exporter began to watch them.",
        f"the sum of efa_{name}_total, without its resets",
        example,
    )


EFA_NODE_TX_PACKETS_TOTAL = _node(
    "tx_packets", "packets", "Packets that all EFA devices have sent", "rate(efa_node_tx_packets_total[5m])"
)
EFA_NODE_RX_DROPS_TOTAL = _node(
    "rx_drops",
    "packets",
    "Packets that all EFA devices have received and dropped",
    "rate(efa_node_rx_drops_total[5m]) > 0",
)
EFA_NODE_RETRANSMITTED_PACKETS_TOTAL = _node(
    "retransmitted_packets",
    "packets",
    "Packets that all EFA devices have sent again",
    "rate(efa_node_retransmitted_packets_total[5m]) / rate(efa_node_tx_packets_total[5m]) > 0.01",
)
EFA_NODE_RETRANSMISSION_TIMEOUTS_TOTAL = _node(
    "retransmission_timeouts",
    "",
    "Times that an answer to any EFA device was so late that the path was changed",
    "increase(efa_node_retransmission_timeouts_total[10m]) > 0",
)
EFA_NODE_UNRESPONSIVE_REMOTES_TOTAL = _node(
    "unresponsive_remotes",
    "",
    "Times that a remote side did not answer any EFA device",
    "increase(efa_node_unresponsive_remotes_total[10m]) > 0",
)
EFA_NODE_IMPAIRED_REMOTE_CONNECTIONS_TOTAL = _node(
    "impaired_remote_connections",
    "",
    "Times that a connection of any EFA device was slowed down because it is impaired",
    "increase(efa_node_impaired_remote_connections_total[10m]) > 0",
)
EFA_NODE_WORK_REQUEST_ERRORS_TOTAL = counter(
    "efa_node_work_request_errors_total",
    "",
    "work requests",
    "RDMA reads and writes of all EFA devices that failed since the exporter began to watch them.",
    "the sum of efa_rdma_read_work_request_errors_total and efa_rdma_write_work_request_errors_total",
    "increase(efa_node_work_request_errors_total[10m]) > 0",
)
EFA_NODE_NO_COMPLETION_COMMANDS_TOTAL = _node(
    "no_completion_commands",
    "commands",
    "Commands that any EFA device never completed",
    "increase(efa_node_no_completion_commands_total[10m]) > 0",
)
EFA_NODE_KEEP_ALIVE_TIMESTAMP_SECONDS = gauge(
    "efa_node_keep_alive_timestamp_seconds",
    "",
    "Unix seconds",
    "When the count of keep-alives last moved, of the EFA device where that is longest ago.",
    "efa_keep_alives_received_total",
    "time() - efa_node_keep_alive_timestamp_seconds > 120",
)
EFA_DEVICE_INFO = gauge(
    "efa_device_info",
    "device pci_bus_id firmware numa_node driver",
    "1",
    "Properties of the device; unknown labels are empty; always 1.",
    f"{_CLASS}/DEVICE/{{device,fw_ver,device/numa_node}}, /sys/module/efa/version",
    "count by (driver, firmware) (efa_device_info)",
)
EFA_PORT_UP = gauge(
    "efa_port_up",
    "device port",
    "0/1",
    "1 while the port is active.",
    f"{_CLASS}/DEVICE/ports/PORT/state",
    "efa_port_up == 0",
)
EFA_PORT_STATE = gauge(
    "efa_port_state",
    "device port",
    "",
    "State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active with errors.",
    f"{_CLASS}/DEVICE/ports/PORT/state",
    "efa_port_state != 4",
)
EFA_PORT_PHYSICAL_STATE = gauge(
    "efa_port_physical_state",
    "device port",
    "",
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
    f"{_CLASS}/DEVICE/ports/PORT/phys_state",
    "efa_port_physical_state != 5",
)
EFA_PORT_RATE_BYTES_PER_SECOND = gauge(
    "efa_port_rate_bytes_per_second",
    "device port",
    "bytes/s",
    "Capacity of the link in one direction.",
    f"{_CLASS}/DEVICE/ports/PORT/rate",
    "rate(efa_tx_bytes_total[5m]) / on (instance, device, port) efa_port_rate_bytes_per_second",
)
EFA_READ_ERRORS_TOTAL = counter(
    "efa_read_errors_total",
    "device",
    "reads",
    "Reads of the device's files that gave no usable value.",
    "the exporter",
    "increase(efa_read_errors_total[10m]) > 0",
)
EFA_HW_VALUE = untyped(
    "efa_hw_value",
    "device port name",
    "",
    "Value of a counter without a metric of its own, by the name of its file; no port: one of the device.",
    f"{_CLASS}/DEVICE[/ports/PORT]/hw_counters/NAME",
    "count by (name) (efa_hw_value)",
)


def _counter(file: str, text: str, labels: str, folder: str) -> Metric:
    name = metric_name(file)
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}_total")), "")
    example = _EXAMPLES.get(file) or (f"rate({name}[5m])" if unit else f"increase({name}[10m]) > 0")
    return counter(name, labels, unit.replace("_", " "), text, f"{folder}/hw_counters/{file}", example)


# By the name of the file.
PORT_COUNTERS = {
    name: _counter(name, text, "device port", f"{_CLASS}/DEVICE/ports/PORT") for name, text in PORT.items()
}
DEVICE_COUNTERS = {name: _counter(name, text, "device", f"{_CLASS}/DEVICE") for name, text in DEVICE.items()}
