"""The metrics of the networks that NCCL uses."""

from trainwarden_exporter.core.metric import WHILE_RUNNING, gauge

TRAINING_NCCL_TRANSPORT = gauge(
    "training_nccl_transport",
    "run_id transport provider",
    "processes",
    (
        "Processes of the attempt that use this network, by its logs: efa, ofi with another provider, ib, socket,"
        " other; absent where the logs name none."
    ),
    "lines of NCCL_DEBUG=INFO in the run's logs",
    'training_nccl_transport{transport="socket"} > 0' + WHILE_RUNNING,
)
TRAINING_NCCL_TRANSPORT_OK = gauge(
    "training_nccl_transport_ok",
    "run_id",
    "0/1",
    (
        "1 if every process that names its network uses a fast one, or there is none; 0 if one does not;"
        " absent where that is unknown, and where all ranks are on one host."
    ),
    "training_nccl_transport, the node's RDMA devices, the run's environment",
    "training_nccl_transport_ok == 0" + WHILE_RUNNING,
)
TRAINING_NCCL_TRANSPORT_REQUESTED = gauge(
    "training_nccl_transport_requested",
    "run_id transport",
    "processes",
    "Processes of the attempt whose environment requests this network: efa, ofi, ib, socket, not_ib.",
    "NCCL_NET, NCCL_NET_PLUGIN, FI_PROVIDER, NCCL_IB_DISABLE of the ranks on this node, else of the record",
    'training_nccl_transport_requested{transport="socket"} > 0' + WHILE_RUNNING,
)
TRAINWARDEN_TRANSPORT_FILES = gauge(
    "trainwarden_transport_files",
    "outcome",
    "files",
    "Logs that are searched for lines of NCCL, by outcome: followed, unreadable, dropped.",
    "the exporter",
    'trainwarden_transport_files{outcome="unreadable"} > 0',
)
