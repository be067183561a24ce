"""What fails between ranks, between nodes, and on the way to the world outside."""

from trainwarden.failures.failure import Failure

_STOP, _AGAIN = False, True

COLLECTIVES: tuple[Failure, ...] = (
    Failure(
        "nccl_watchdog_timeout", "nccl_timeout", "network", "distributed", "unknown",
        "critical", "check_node", _AGAIN,
        "A collective did not end in time. The rank that is missing or slowest is the cause: look at its log first. "
        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 record which rank it was.",
    ),
    Failure(
        "nccl_watchdog_stuck", "hang", "network", "distributed", "unknown",
        "critical", "check_node", _AGAIN,
        "NCCL's watchdog thread itself did not answer. A rank may be saving a checkpoint or compiling for long: raise "
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC then. Otherwise dump the stacks of the ranks.",
    ),
    Failure(
        "deadlock", "deadlock", "training", "distributed", "user",
        "critical", "restart", _AGAIN,
        "The ranks are in different collectives. Look for a branch or an exception that only some ranks take, and for "
        "batches of unequal number; TORCH_DISTRIBUTED_DEBUG=DETAIL names the two calls.",
    ),
    Failure(
        "nccl_remote_closed", "nccl", "network", "distributed", "unknown",
        "error", "restart", _AGAIN,
        "Another rank went away in the middle of a collective. The cause is in the log of the rank that ended first.",
        cascade=True,
    ),
    Failure(
        "nccl_async_fatal", "nccl", "network", "network", "network",
        "critical", "check_node", _AGAIN,
        "The network adapter reported a fatal event to NCCL. Look at `dmesg` and the port's counters on that node; "
        "keep it out if the same port shows it again.",
    ),
    Failure(
        "nccl_usage", "nccl", "configuration", "distributed", "user",
        "critical", "stop", _STOP,
        "A collective was called wrongly, two ranks use one GPU, or the ranks run different NCCL versions. Compare the"
        " images, LOCAL_RANK and the shapes.",
    ),
    Failure(
        "nccl_system", "nccl", "network", "distributed", "unknown",
        "critical", "restart", _AGAIN,
        "NCCL failed. Run with NCCL_DEBUG=WARN; the line before the error names the device or the interface.",
    ),
    Failure(
        "rendezvous", "distributed_timeout", "network", "launcher", "unknown",
        "error", "restart", _AGAIN,
        "The ranks did not find each other. Check MASTER_ADDR and MASTER_PORT, that the port is free, and that every "
        "node started.",
        retryable_in_process=True,
    ),
    Failure(
        "store_timeout", "distributed_timeout", "network", "distributed", "unknown",
        "error", "restart", _AGAIN,
        "A rank waited too long for the others. Find the rank that did not arrive; raise the timeout if it was slow.",
    ),
)  # fmt: skip

NETWORK: tuple[Failure, ...] = (
    Failure(
        "peer_reset", "communication", "network", "distributed", "network",
        "error", "restart", _AGAIN,
        "The connection to another rank or server broke or was refused. See whether that one ended first; otherwise "
        "look at the network between the two.",
        retryable_in_process=True, cascade=True,
    ),
    Failure(
        "peer_timeout", "communication", "network", "distributed", "network",
        "error", "restart", _AGAIN,
        "Another rank or server did not answer in time. See whether it hangs, and look at the network between the two.",
        retryable_in_process=True, cascade=True,
    ),
    Failure(
        "nccl_net_ib", "communication", "network", "network", "network",
        "critical", "check_node", _AGAIN,
        "An InfiniBand transfer failed. Look at the port's counters (`perfquery`, `ibstat`) on both ends, at "
        "NCCL_IB_HCA and NCCL_IB_GID_INDEX; keep the node out if the same port fails again.",
    ),
    Failure(
        "efa_fabric", "communication", "network", "network", "network",
        "critical", "check_node", _AGAIN,
        "An EFA transfer failed, or the provider could not be opened. Check the security group (all traffic to "
        "itself), `fi_info -p efa`, the devices given to the container, and that versions of aws-ofi-nccl match.",
    ),
    Failure(
        "efa_fallback", "communication", "configuration", "network", "configuration",
        "warning", "stop", _STOP,
        "NCCL uses TCP sockets where EFA was expected: nothing fails, everything is slow. Put aws-ofi-nccl on "
        "LD_LIBRARY_PATH, set FI_PROVIDER=efa, and give the container its EFA devices.",
    ),
    Failure(
        "ib_flap", "communication", "network", "network", "hardware",
        "error", "exclude_node", _AGAIN,
        "A network link goes down and up again. Keep the node out, and reseat or replace the cable, transceiver or "
        "port.",
    ),
    Failure(
        "hub_network", "auth_network", "network", "network", "network",
        "error", "restart", _AGAIN,
        "A download or an upload failed. Check name resolution, certificates and proxies, or fetch the files before "
        "the job starts and set HF_HUB_OFFLINE=1.",
        retryable_in_process=True,
    ),
    Failure(
        "hub_auth", "auth_network", "network", "network", "configuration",
        "error", "stop", _STOP,
        "A server refused the credentials or does not have the requested name. Check the name, the token (HF_TOKEN, "
        "WANDB_API_KEY, the AWS profile), and that it may read this model, data set or bucket.",
    ),
)  # fmt: skip
