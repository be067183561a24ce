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


def _port(file: str, name: str, unit: str, text: str, factor: int = 1, example: str = "rate({}[5m])") -> Metric:
    source = f"{_CLASS}/DEVICE/ports/PORT/counters/{file}" + (f", times {factor}" if factor != 1 else "")
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
