"""What is printed by collectives and what brings ranks together."""

from trainwarden.failures.phrases.phrase import Phrases

DISTRIBUTED: Phrases = (
    ("deadlock", (
        "detected mismatch between collectives on ranks",
        "detected mismatch in the number of collectives",
        "deadlock detected",
    )),
    ("nccl_watchdog_timeout", (
        "watchdog caught collective operation timeout",
        "due to a collective timeout",
        "some nccl operations have failed or timed out",
        ("before timing out", r"worknccl\(.{0,300}before timing out"),
    )),
    ("nccl_watchdog_stuck", (
        "watchdog got stuck",
        "heartbeat monitor timed out",
    )),
    ("nccl_async_fatal", (
        ("async fatal event", "(?<!non-)(?<!non )async fatal event"),
        "communicator encountered a fatal error",
    )),
    ("nccl_net_ib", (
        ("net/ib", "net/ib ?: ?got completion from peer"),
        ("ibv_", r"\bibv_\w{1,40} failed"),
        "ibv_wc_",
    )),
    ("efa_fabric", (
        ("prov_errno", "completed with error.{0,80}prov_errno"),
        ("ofi", r"net/ofi.{0,80}(failed|error)|\bofi fi_\w{1,40} call failed"),
        "remote write completed with error",
        "unable to read from fi_cq_readerr",
    )),
    ("nccl_remote_closed", (
        "socketprogress: connection closed",
        "remote process exited or there was a network error",
        "ncclremoteerror",
        "nccl communicator was aborted",
    )),
    ("nccl_usage", (
        ("nccl", "ncclinvalid(usage|argument)|nccl.{0,200}invalid usage"),
        "mismatched nccl version",
        "duplicate gpu detected",
        ("message truncated", "message truncated ?: received"),
    )),
    ("nccl_system", (
        ("nccl", r"\bnccl(system|internal|unhandledcuda)error|\bnccl (error|failure)\b|\bncclcomm\b.{0,60}failed"),
        ("rccl", r"\brccl (error|failure)\b"),
        "unhandled system error",
        "unhandled cuda error",
        "failed to initialize any net plugin",
        "failed to initialize nccl communicator",
    )),
    ("cuda_error", (
        ("error", r"\b(cuda|hip|npu function) error\b|\bcu(dnn|blas|solver|sparse|fft) error\b"),
        ("cuda failure", r"\bcuda failure \d"),
        ("_status_", r"\bcu(blas|dnn|solver|sparse)_status_(?!success)|\brocblas_status_(?!success)"),
        "unable to find an engine to execute this computation",
        "cuda driver error: ",
        "triton error [",
    )),
    ("config_error", (
        ("expected, but not set", r"environment variable \w{1,40} expected, but not set"),
        "unable to find address for: ",
    )),
    ("rendezvous", (
        ("rendezvous", r"(?s)\w.*rendezvous|rendezvous.*\w"),  # the word alone is a key or a name
        "eaddrinuse",
        "address already in use",
        ("socket has timed out after", r"client socket has timed out after \d+ ?ms while trying to connect"),
        ("socket has failed", "(client|server) socket has failed to (connect|listen)"),
        ("cannot be retrieved", "network addresses of .{1,100}cannot be retrieved"),
        "connectfullmesh failed",
        ("failed to", "failed to (connect|listen).{0,80}(master|tcpstore)"),
    )),
    ("store_timeout", (
        ("monitoredbarrier", "failed to pass monitoredbarrier"),
        ("initializing process group", "timed? ?out initializing process group"),
        "application timeout caused pair closure",
        "wait timeout after",
        ("wait timeout", r"^wait timeout$"),
        ("socket timeout", r"^socket timeout$|got error: socket timeout\b"),
        "barrier timed out",
        ("operation to complete", r"timed out waiting \d+ ?ms for (recv|send) operation to complete"),
        ("time", r"\b(store|tcpstore|gloo|barrier|process group|init_process_group)\b.{0,120}\btimed? ?out"),
        ("timed out after", r"timed out after \d+ seconds waiting for (clients|workers|ranks)"),
    )),
)  # fmt: skip
