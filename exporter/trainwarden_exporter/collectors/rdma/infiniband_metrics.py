"""The metrics of RDMA devices other than EFA."""

from trainwarden_exporter.core.metric import Metric, counter, gauge

_CLASS = "/sys/class/infiniband"
INFINIBAND_DEVICES = gauge(
    "infiniband_devices",
    "",
    "devices",
    "RDMA devices other than EFA that the node shows.",
    _CLASS,
    "changes(infiniband_devices[1h]) > 0",
)
INFINIBAND_DEVICE_UP = gauge(
    "infiniband_device_up",
    "device",
    "0/1",
    "1 while the node shows the device; 0 for one that it has shown since the exporter began and no longer shows.",
    _CLASS,
    "infiniband_device_up == 0",
)
INFINIBAND_INFO = gauge(
    "infiniband_info",
    "device pci_bus_id firmware numa_node model",
    "1",
    "Properties of the device; unknown labels are empty; always 1.",
    f"{_CLASS}/DEVICE/{{device,fw_ver,hca_type,device/numa_node}}",
    "count by (model, firmware) (infiniband_info)",
)
INFINIBAND_PORT_UP = gauge(
    "infiniband_port_up",
    "device port",
    "0/1",
    "1 while the port is active.",
    f"{_CLASS}/DEVICE/ports/PORT/state",
    "infiniband_port_up == 0",
)
INFINIBAND_PORT_STATE = gauge(
    "infiniband_port_state",
    "device port",
    "",
    "State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active with errors.",
    f"{_CLASS}/DEVICE/ports/PORT/state",
    "infiniband_port_state != 4",
)
INFINIBAND_PORT_PHYSICAL_STATE = gauge(
    "infiniband_port_physical_state",
    "device port",
    "",
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
    f"{_CLASS}/DEVICE/ports/PORT/phys_state",
    "infiniband_port_physical_state != 5",
)
INFINIBAND_PORT_RATE_BYTES_PER_SECOND = gauge(
    "infiniband_port_rate_bytes_per_second",
    "device port",
    "bytes/s",
    "Capacity of the link in one direction.",
    f"{_CLASS}/DEVICE/ports/PORT/rate",
    "rate(infiniband_tx_bytes_total[5m]) / on (instance, device, port) infiniband_port_rate_bytes_per_second",
)
INFINIBAND_READ_ERRORS_TOTAL = counter(
    "infiniband_read_errors_total",
    "device",
    "reads",
    "Reads of the device's files that gave no usable value.",
    "the exporter",
    "increase(infiniband_read_errors_total[10m]) > 0",
)

INFINIBAND_NODE_TX_PACKETS_TOTAL = counter(
    "infiniband_node_tx_packets_total",
    "",
    "packets",
    "Packets that all ports have sent since the exporter began to watch them.",
    "the sum of infiniband_tx_packets_total, without its resets",
    "rate(infiniband_node_tx_packets_total[5m])",
)
INFINIBAND_NODE_ERRORS_TOTAL = counter(
    "infiniband_node_errors_total",
    "error",
    "",
    (
        "Errors of all ports since the exporter began to watch them: symbol, link_recovery, link_downed, receive, "
        "transmit_discard; of drivers that count them ack_timeout, sequence, retransmission, receiver_not_ready, icrc, "
        "completion."
    ),
    "the sums of the ports' counters of errors, without their resets",
    "increase(infiniband_node_errors_total[15m]) > 0",
)


def _port(
    file: str,
    name: str,
    unit: str,
    text: str,
    factor: int = 1,
    example: str = "rate({}[5m])",
    folder: str = "counters",
) -> Metric:
    source = f"{_CLASS}/DEVICE/ports/PORT/{folder}/{file}" + (f", times {factor}" if factor != 1 else "")
    return counter(name, "device port", unit, text, source, example.format(name))


_FAULT = "increase({}[1h]) > 0"
INFINIBAND_TX_BYTES_TOTAL = _port(
    "port_xmit_data", "infiniband_tx_bytes_total", "bytes", "Bytes sent, on all lanes.", 4
)
INFINIBAND_RX_BYTES_TOTAL = _port(
    "port_rcv_data", "infiniband_rx_bytes_total", "bytes", "Bytes received, on all lanes.", 4
)
INFINIBAND_TX_PACKETS_TOTAL = _port("port_xmit_packets", "infiniband_tx_packets_total", "packets", "Packets sent.")
INFINIBAND_RX_PACKETS_TOTAL = _port("port_rcv_packets", "infiniband_rx_packets_total", "packets", "Packets received.")
INFINIBAND_SYMBOL_ERRORS_TOTAL = _port(
    "symbol_error",
    "infiniband_symbol_errors_total",
    "errors",
    "Symbols received with a small error of the link.",
    example=_FAULT,
)
INFINIBAND_LINK_DOWNED_TOTAL = _port(
    "link_downed",
    "infiniband_link_downed_total",
    "times",
    "Times that the link failed to recover and went down.",
    example=_FAULT,
)
INFINIBAND_LINK_ERROR_RECOVERIES_TOTAL = _port(
    "link_error_recovery",
    "infiniband_link_error_recoveries_total",
    "times",
    "Times that the link recovered from an error by itself.",
    example=_FAULT,
)
INFINIBAND_RX_ERRORS_TOTAL = _port(
    "port_rcv_errors", "infiniband_rx_errors_total", "packets", "Packets received with an error.", example=_FAULT
)
INFINIBAND_TX_DISCARDS_TOTAL = _port(
    "port_xmit_discards",
    "infiniband_tx_discards_total",
    "packets",
    "Packets to send that were dropped.",
    example=_FAULT,
)
INFINIBAND_TX_WAIT_TICKS_TOTAL = _port(
    "port_xmit_wait",
    "infiniband_tx_wait_ticks_total",
    "ticks",
    "Ticks in which there was data to send and no credit to send it; their length is the device's.",
)


def _hardware(file: str, name: str, unit: str, text: str, example: str = "rate({}[5m])") -> Metric:
    return _port(file, f"infiniband_{name}_total", unit, text, example=example, folder="hw_counters")


# By file name, as mlx5 has them; other drivers have some. Most are of reliable connections, over RoCE and InfiniBand.
HARDWARE_COUNTERS = {
    "out_of_sequence": _hardware(
        "out_of_sequence",
        "rx_out_of_sequence_packets",
        "packets",
        "Packets received out of sequence: packets before them were lost, or took another path.",
    ),
    "packet_seq_err": _hardware(
        "packet_seq_err",
        "sequence_error_naks",
        "packets",
        "NAKs received for a wrong sequence: the peer misses packets, which are sent again.",
    ),
    "implied_nak_seq_err": _hardware(
        "implied_nak_seq_err",
        "implied_nak_sequence_errors",
        "times",
        "Acknowledgements that skip a read or an atomic of which the response was lost.",
    ),
    "rnr_nak_retry_err": _hardware(
        "rnr_nak_retry_err",
        "receiver_not_ready_naks",
        "packets",
        "NAKs received because the peer had no buffer posted; what was sent is tried again.",
    ),
    "local_ack_timeout_err": _hardware(
        "local_ack_timeout_err",
        "ack_timeouts",
        "times",
        "Times that no acknowledgement came in time; what was sent is tried again.",
    ),
    "duplicate_request": _hardware(
        "duplicate_request",
        "rx_duplicate_requests",
        "packets",
        "Requests received twice: the peer sent them again.",
    ),
    "out_of_buffer": _hardware(
        "out_of_buffer", "rx_out_of_buffer_packets", "packets", "Packets dropped because no buffer was posted."
    ),
    "rx_icrc_encapsulated": _hardware(
        "rx_icrc_encapsulated", "rx_icrc_errors", "packets", "RoCE packets received with a wrong checksum.", _FAULT
    ),
    "np_cnp_sent": _hardware(
        "np_cnp_sent",
        "congestion_notifications_sent",
        "packets",
        "Congestion notifications (CNP) sent, because packets arrived with a mark of congestion.",
    ),
    "rp_cnp_handled": _hardware(
        "rp_cnp_handled",
        "congestion_notifications_handled",
        "packets",
        "Congestion notifications (CNP) received that slowed a sender of this port down.",
    ),
    "rp_cnp_ignored": _hardware(
        "rp_cnp_ignored",
        "congestion_notifications_ignored",
        "packets",
        "Congestion notifications (CNP) received and ignored.",
    ),
    "np_ecn_marked_roce_packets": _hardware(
        "np_ecn_marked_roce_packets",
        "rx_congestion_marked_packets",
        "packets",
        "RoCE packets received that a switch marked for congestion (ECN).",
    ),
    "roce_adp_retrans": _hardware(
        "roce_adp_retrans", "adaptive_retransmissions", "times", "Adaptive retransmissions of RoCE packets."
    ),
    "roce_adp_retrans_to": _hardware(
        "roce_adp_retrans_to",
        "adaptive_retransmission_timeouts",
        "times",
        "Times that RoCE reached its time-out because of adaptive retransmission.",
    ),
    "roce_slow_restart": _hardware(
        "roce_slow_restart", "slow_restarts", "times", "Times that a RoCE sender started anew at a slow rate."
    ),
    "req_cqe_error": _hardware(
        "req_cqe_error", "requester_completion_errors", "completions", "Requests that completed with an error.", _FAULT
    ),
    "resp_cqe_error": _hardware(
        "resp_cqe_error",
        "responder_completion_errors",
        "completions",
        "Receptions that completed with an error.",
        _FAULT,
    ),
}
