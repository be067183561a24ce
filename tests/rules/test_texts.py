"""What a person must be told to do, however it is worded: needles in the texts of each alert."""

from __future__ import annotations

from typing import Any

from tests.rules.rule_files import NAMES, of_alerts

RUNS = {
    "TrainRunFailed": ["hint", "training_log_latest.txt"],
    "TrainRunTimedOut": ["Log in to", "training_log_latest.txt", "nvidia-smi", "disk space"],
    "TrainRunStalled": ["captures/INCIDENT", "py-spy dump", "rendezvous", "compile cache", "df, mount"],
    "TrainRunNeverStarted": ["queued", "trainwarden.run()"],
    "TrainRunDegraded": ["process alive", "write to the"],
    "TrainRankSilent": ["node up", "process alive", "start again without it"],
    "TrainRunGpuTaken": ["nvidia-smi lists the processes", "GPUs of its own"],
    "TrainRunTwoLiveAttempts": ["end the older one", "trainwarden checkpoints"],
    "TrainLogSilent": ["nvidia-smi", "py-spy dump", "PYTHONUNBUFFERED=1"],
    "TrainRunSignalled": ["states that it", "scancel {{ end }}{{ . }}"],
    "TrainRunUnobserved": ["nothing watches them", "timeout 5 ls", "restart it"],
    "TrainRunSucceeded": ["Nothing to do"],
}

# Of an alert that is acted upon in another rule, where it is not: what contradicts is to be looked at first.
NOT_ACTED_UPON = {"TrainRunStalled": ["py-spy dump", "whether it works", "larger stall budget", "end it"]}

PACE = {
    "TrainRunSlow": ["throttled", "storage"],
    "TrainRunStraggler": ["nvidia-smi", "drain the node"],
    "TrainRunNonFinite": ["resume from a checkpoint before", "learning rate"],
    "TrainRunLossDiverging": ["resume", "learning rate"],
    "TrainNcclFallback": ["FI_PROVIDER=efa", "NCCL_DEBUG=INFO"],
    "TrainRunGpusIdle": ["CUDA_VISIBLE_DEVICES", "give the GPUs back"],
    "TrainJobGpusIdle": ["scancel", "trainwarden.run()"],
    "TrainRunLivelocked": ["_error.N", "Stop the restarts"],
    "TrainRunGoodputLow": ["run:training_use_seconds:sum", "checkpoints more often"],
}

HANGS = {
    "TrainRunCollectiveHung": ["captures/INCIDENT", "py-spy dump"],
    "TrainRunDataStalled": ["GPUs are idle"],
    "TrainRunCheckpointHung": ["df, mount", "half-written checkpoint"],
    "TrainRunStartupHung": ["rendezvous", "compile cache"],
    "TrainRunStepsUnreported": ['phase("eval")', "stall budget"],
    "TrainRankProcessGone": ["dmesg", "last checkpoint"],
    "TrainRankProcessStuck": ["kill -CONT", "/proc/PID/stack"],
}

GPUS = {
    "TrainGpuLost": ["Drain the node", "dmesg", "exchanged"],
    "TrainGpuCountLow": ["lspci", "nvidia-smi -L", "--expect.gpus"],
    "TrainGpuDriverFailed": ["nvidia-smi", "reboot"],
    "TrainGpuXidFatal": ["Drain the node", "nvidia-bug-report.sh"],
    "TrainGpuXidUnknown": ["catalogue", "drain the node first"],
    "TrainGpuXidRepeated": ["dcgmi diag", "fault in its code"],
    "TrainGpuKernelError": ["dmesg", "drain"],
    "TrainGpuEccUncorrected": ["reset the GPU", "exchanged"],
    "TrainGpuMemoryWearingOut": ["Reset the GPU", "exchanged"],
    "TrainGpuThrottled": ["temperatures", "power supplies", "drain"],
    "TrainGpuHot": ["cooler", "fans"],
    "TrainGpuRecoveryWanted": ["Drain the node", "release the GPUs", "nvidia-smi -r"],
    "TrainGpuLinkFaulty": ["nvidia-smi nvlink -s", "nvidia-fabricmanager", "Drain the node"],
    "TrainGpuLinkErrors": ["nvidia-smi nvlink -e", "Drain the node"],
}

FABRIC = {
    "TrainEfaDeviceMissing": ["fi_info", "--expect.efa-devices"],
    "TrainEfaPortDown": ["rdma link", "Drain the node"],
    "TrainEfaRetransmits": ["placement group", "one node"],
    "TrainEfaRemoteUnresponsive": ["security group", "peer"],
    "TrainEfaDriverSilent": ["dmesg", "drain the node"],
    "TrainInfinibandDeviceMissing": ["lspci", "Drain the node"],
    "TrainInfinibandPortDown": ["ibstat", "cable", "Drain the node"],
    "TrainInfinibandLinkSlow": ["ibstat", "mlxlink", "Drain the node"],
    "TrainInfinibandLinkFlapping": ["mlxlink", "drain the node"],
    "TrainInfinibandErrors": ["cable", "PFC and ECN"],
    "TrainFabricDriverError": ["dmesg", "reboot"],
}

NODES = {
    "TrainNodeOomKill": ["dmesg", "--mem", "workers"],
    "TrainNodeHungTask": ["dmesg", "file server", "reboot"],
    "TrainNodeHardwareError": ["ras-mc-ctl", "Drain the node"],
    "TrainNodeKernelFault": ["Keep dmesg", "reboot"],
    "TrainNodeStorageError": ["dmesg", "drain the node"],
    "TrainNodeLinkFlapping": ["ethtool -S", "Drain the node"],
    "TrainNodeClockSkewed": ["chronyc tracking", "between runs"],
    "TrainNodeClockJumped": ["chronyc tracking"],
    "TrainNodeKernelLogUnreadable": ["CAP_SYSLOG", "/dev/kmsg"],
}

SCHEDULERS = {
    "TrainSlurmJobFailed": ["sacct -j", "_error"],
    "TrainSlurmNodeFailed": ["scontrol show node", "drained until its GPUs are checked"],
    "TrainSlurmJobPreempted": ["scontrol requeue"],
    "TrainSlurmTimeLimitNear": ["TimeLimit=", "checkpoint"],
    "TrainSlurmTimeLimitReached": ["--dependency=afterany", "trainwarden checkpoints"],
    "TrainSlurmJobHeld": ["scontrol release"],
    "TrainSlurmPrologLoop": ["sacct -j", "drain that node"],
    "TrainSlurmNodeDraining": ["scontrol show node", "checkpoint"],
    "TrainSlurmUnreachable": ["scontrol ping", "trainwarden_slurm_errors_total"],
    "TrainRayJobFailed": ["ray job logs"],
    "TrainRayResourcesUnused": ["--entrypoint-num-gpus", "use_gpu=True"],
    "TrainRayUnreachable": ["ray status"],
}

CHECKPOINTS = {
    "TrainCheckpointOverdue": ["save"],
    "TrainCheckpointIncomplete": ["trainwarden checkpoints", "do not delete older"],
    "TrainCheckpointFailing": ["df -i", "quota"],
    "TrainDiskFilling": ["df -i", "never the newest complete one"],
    "TrainFilesystemSlow": ["time stat"],
    "TrainFilesystemNotAnswering": ["dmesg", "state D"],
}

MONITORING = {
    "TrainExporterDown": ["systemctl status trainwarden-exporter", "in danger"],
    "TrainCollectorFailing": ["journalctl -u trainwarden-exporter"],
    "TrainCollectorStuck": ["dmesg", "nvidia-smi"],
    "TrainMonitoringBlind": ["alert"],
    "TrainRunsLeftOut": ["--collector.runs.max-", "names the files"],
    "TrainS3Unreachable": ["aws s3 ls", "trainwarden_s3_errors_total"],
    "TrainLogsBehind": ["--collector.logs.max-files"],
    "TrainExporterConfigInvalid": ["journalctl"],
    "TrainWatchdog": ["Nothing to do"],
    "TrainCanaryNotHealed": ["squeue --name=trainwarden-canary", "amtool alert query run_id=trainwarden-canary"],
    "TrainDeadMansSwitch": ["repeat_interval", "alertmanager_notifications_failed_total"],
}

REMEDIATOR = {
    "TrainRunRestartExhausted": ["by hand", "/api/v1/incidents"],
    "TrainRemediationIneffective": ["drain it", "_error"],
    "TrainRemediationStuck": ["trainwarden-remediator decisions", "scontrol release"],
    "TrainRemediatorBlind": ["amtool", "scontrol ping"],
    "TrainRunNotRecoverable": ["start"],
    "TrainRemediatorDown": ["--state-dir", "repeat nothing by hand"],
    "TrainRemediatorConfigInvalid": ["journalctl"],
}

NEEDLES: dict[str, list[str]] = {
    **RUNS,
    **PACE,
    **HANGS,
    **GPUS,
    **FABRIC,
    **NODES,
    **SCHEDULERS,
    **CHECKPOINTS,
    **MONITORING,
    **REMEDIATOR,
}


def test_every_alert_has_needles_and_no_needle_is_for_none() -> None:
    assert sorted(NEEDLES) == NAMES


@of_alerts
def test_the_message_states_what_to_do(rule: dict[str, Any]) -> None:
    text = rule["annotations"]["action"] + rule["annotations"]["description"]
    acted_upon = rule["labels"]["remediate"] == "true"
    for needle in NEEDLES[rule["alert"]] if acted_upon else NOT_ACTED_UPON.get(rule["alert"], NEEDLES[rule["alert"]]):
        assert needle in text
