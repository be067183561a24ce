"""The metrics of RDMA devices other than EFA: rows of the catalogue."""

from trainwarden_exporter.metric import Entry

_CLASS = "/sys/class/infiniband"

# File, metric, unit, what it counts, and by how much the file's number is to be multiplied.
COUNTERS = (
    ("port_xmit_data", "infiniband_tx_bytes_total", "bytes", "Bytes sent, on all lanes.", 4),
    ("port_rcv_data", "infiniband_rx_bytes_total", "bytes", "Bytes received, on all lanes.", 4),
    ("port_xmit_packets", "infiniband_tx_packets_total", "packets", "Packets sent.", 1),
    ("port_rcv_packets", "infiniband_rx_packets_total", "packets", "Packets received.", 1),
    ("symbol_error", "infiniband_symbol_errors_total", "errors", "Symbols received with a small error of the link.", 1),
    ("link_downed", "infiniband_link_downed_total", "times", "Times that the link failed to recover and went down.", 1),
    (
        "link_error_recovery",
        "infiniband_link_error_recoveries_total",
        "times",
        "Times that the link recovered from an error by itself.",
        1,
    ),
    ("port_rcv_errors", "infiniband_rx_errors_total", "packets", "Packets received with an error.", 1),
    ("port_xmit_discards", "infiniband_tx_discards_total", "packets", "Packets to send that were dropped.", 1),
    (
        "port_xmit_wait",
        "infiniband_tx_wait_ticks_total",
        "ticks",
        "Ticks in which there was data to send and no leave to send it; how long one is, the device knows.",
        1,
    ),
)

_EXAMPLES = {
    name: f"increase({name}[1h]) > 0"
    for _, name, unit, _, _ in COUNTERS
    if unit in {"errors", "times"} or name in {"infiniband_rx_errors_total", "infiniband_tx_discards_total"}
}

INFINIBAND_ROWS: tuple[Entry, ...] = (
    Entry(
        "infiniband_devices",
        "gauge",
        "",
        "devices",
        "RDMA devices other than EFA that the node shows.",
        _CLASS,
        "changes(infiniband_devices[1h]) > 0",
    ),
    Entry(
        "infiniband_device_up",
        "gauge",
        "device",
        "0/1",
        "1 while the node shows the device; 0 for one that it has shown since the exporter began and shows no more.",
        _CLASS,
        "infiniband_device_up == 0",
    ),
    Entry(
        "infiniband_info",
        "gauge",
        "device pci_bus_id firmware numa_node model",
        "1",
        "What the device is; a label is empty where it is not known; always 1.",
        f"{_CLASS}/DEVICE/{{device,fw_ver,hca_type,device/numa_node}}",
        "count by (model, firmware) (infiniband_info)",
    ),
    Entry(
        "infiniband_port_up",
        "gauge",
        "device port",
        "0/1",
        "1 while the port is active.",
        f"{_CLASS}/DEVICE/ports/PORT/state",
        "infiniband_port_up == 0",
    ),
    Entry(
        "infiniband_port_state",
        "gauge",
        "device port",
        "",
        "State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active with errors.",
        f"{_CLASS}/DEVICE/ports/PORT/state",
        "infiniband_port_state != 4",
    ),
    Entry(
        "infiniband_port_physical_state",
        "gauge",
        "device port",
        "",
        "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
        f"{_CLASS}/DEVICE/ports/PORT/phys_state",
        "infiniband_port_physical_state != 5",
    ),
    Entry(
        "infiniband_port_rate_bytes_per_second",
        "gauge",
        "device port",
        "bytes/s",
        "What the link can carry in one direction.",
        f"{_CLASS}/DEVICE/ports/PORT/rate",
        "rate(infiniband_tx_bytes_total[5m]) / on (instance, device, port) infiniband_port_rate_bytes_per_second",
    ),
    Entry(
        "infiniband_read_errors_total",
        "counter",
        "device",
        "reads",
        "Reads of the device's files that brought nothing that can be used.",
        "the exporter",
        "increase(infiniband_read_errors_total[10m]) > 0",
    ),
    *(
        Entry(
            name,
            "counter",
            "device port",
            unit,
            text,
            f"{_CLASS}/DEVICE/ports/PORT/counters/{file}" + (f", times {factor}" if factor != 1 else ""),
            _EXAMPLES.get(name, f"rate({name}[5m])"),
        )
        for file, name, unit, text, factor in COUNTERS
    ),
)
