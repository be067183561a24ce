"""What is printed by schedulers, servers, launchers and settings."""

from trainwarden.failures.phrases.phrase import Phrases

OUTSIDE: Phrases = (
    ("time_limit", (
        ("due to time limit", r"\*\*\* (job|step) .{1,120}due to time limit"),
    )),
    ("preempted", (
        ("due to preemption", r"\*\*\* (job|step) .{1,120}due to preemption"),
    )),
    ("node_fail", (
        ("due to node failure", r"\*\*\* (job|step) .{1,120}due to node failure"),
        ("node failure on", r"\bsrun: error: node failure on"),
    )),
    ("cancelled", (
        ("cancelled at", r"\*\*\* (job|step) .{1,80}cancelled at"),
        ("got signal", r"process \d+ got signal: (1|2|15)\b"),
    )),
    ("slurm_refused", (
        ("submission failed",
         ("batch job submission failed: (?!.{0,40}(socket timed out|unable to contact|zero bytes"
          "|unexpected message))")),
        ("unable to",
         (r"unable to (create step for job \d+|allocate resources): (?!.{0,40}(socket timed out"
          "|unable to contact|zero bytes))")),
        ("limit", r"\b(assoc|qos)(grp|max)\w{1,40}limit\b"),
    )),
    ("slurm_failure", (
        "unable to contact slurm controller",
        ("socket timed out on send/recv", "socket timed out on send/recv operation"),
        "slurm_persist_conn_open",
        "slurm_load_jobs error",
    )),
    ("ray_node_died", (
        ("node has died", r"because its node has died|\bthe node has died"),
        "node was terminated unexpectedly",
    )),
    ("straggler", (
        "node is a straggler",
    )),
    ("ray_setup", (
        "runtime environment setup failed",
        "failed to set up runtime environment",
        ("could not be scheduled", r"\b(actor|task) .{0,80}could not be scheduled"),
    )),
    ("hub_auth", (
        ("client error", r"\b(401|403|404) client error|client error '(401|403|404)"),
        ("http error", r"\bhttp error (401|403|404)\b"),
        "unauthorized",
        "gated repo",
        ("access to model", r"access to model \S{1,100} is restricted"),
        "invalid username or password",
        "api_key not configured",
        "invalid api key",
        "unable to locate credentials",
        "repository not found for url",
        ("an error occurred (",
         (r"an error occurred \((40[134]|accessdenied|nosuchbucket|expiredtoken\w{0,10}|invalidaccesskeyid"
          r"|signaturedoesnotmatch|invalidtoken|unauthorized\w{0,10})\)")),
        ("returned error", r"returned error (401|403|404)\b"),
    )),
    ("hub_network", (
        "max retries exceeded",
        ("read timed out", r"https?connectionpool\(.{1,200}read timed out"),
        "name or service not known",
        "temporary failure in name resolution",
        "nodename nor servname provided",
        "certificate_verify_failed",
        "ssl: unexpected_eof",
        ("error",
         (r"\b(429|5\d\d) (client|server) error|(client|server) error '(429|5\d\d)|\bhttp ?error (429|5\d\d)\b")),
        "too many requests",
        ("couldn't", "couldn't (reach|connect to) (?!.{0,20}(master|rank|store))"),
        "could not connect to the endpoint url",
        "cannot find the requested files in",
        "cannot find the appropriate snapshot folder",
        "cannot find an appropriate cached snapshot",
        "connection broken: incompleteread",
        "remote end closed connection without response",
        "server disconnected",
        ("an error occurred (",
         (r"an error occurred \((5\d\d|slowdown|internalerror|serviceunavailable|requesttimeout\w{0,10}"
          r"|throttling\w{0,20}|requesttimetooskewed)\)")),
    )),
    ("storage_missing", (
        "an error occurred (nosuchkey)",
        ("parent directory", "parent directory .{1,300} does not exist"),
    )),
    ("crash_signal", (
        "fatal python error: segmentation fault",
        "fatal python error: bus error",
        "fatal python error: aborted",
        ("sig", r"(terminated with signal|died with <signals\.) ?sig(segv|abrt|bus|ill|fpe)"),
    )),
    ("killed", (
        ("sigkill", r"(terminated with signal|died with <signals\.) ?sigkill"),
        "process pool was terminated abruptly",
    )),
    ("peer_reset", (
        ("connection", r"\bconnection (was )?(reset|closed|lost|aborted|refused)\b"),
        "broken pipe",
        "closed the connection",
        ("peer", r"\bpeer\b.{0,40}\b(closed|gone|went away)"),
        ("got 0 bytes", "failed to recv, got 0 bytes"),
    )),
    ("peer_timeout", (
        ("timed out", r"\b(connection|socket|peer|recv|send|(read|write|handshake) operation)\b.{0,60}timed out"),
    )),
    ("config_error", (
        "unrecognized arguments",
        "unrecognized argument",
        "the following arguments are required",
        "invalid choice",
        "you selected an invalid",
        ("divisible by", r"\b(is not|must be|should be|not) (evenly )?divisible by"),
        "should range in [pp=",
        "mutually exclusive",
        ("invalid", r"\binvalid (configuration|config|argument for|value for|option)\b"),
        "got an unexpected keyword argument",
        "check batch related parameters",
        ("must be",
         (r"\bmust be (>=|<=|>|<|one of|set|specified|provided|greater than|less than|at least|at most|between"
          "|a positive|positive)")),
        ("one of", r"\b(should be|is not|expected) one of\b"),
        ("compatible", r"\b(is not compatible|is incompatible|are not compatible|are incompatible) with\b"),
        ("requires", r"\brequires an? `?\w{1,40}`?\.?$"),
    )),
    ("data_exception", (
        ("dataloader worker process", r"caught \w{1,60} in dataloader worker process"),
    )),
    ("ray_worker_died", (
        "actor died unexpectedly",
        "worker died unexpectedly",
        "the actor died because",
    )),
    ("launcher_child", (
        "childfailederror",
        ("terminated with exit code", r"process \d+ terminated with exit code"),
    )),
)  # fmt: skip
