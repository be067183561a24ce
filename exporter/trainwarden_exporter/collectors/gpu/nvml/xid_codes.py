"""What the codes of NVIDIA's driver errors (Xid) mean, and what clears them, after NVIDIA's catalogue of Xids."""

from __future__ import annotations

from typing import NamedTuple

# What clears an error: nothing; a restart of the job; a reset of the GPU; a reboot of the node; a look at the NVLinks
# and at both of their ends, then a reset; what `gpu_recovery_action` requests.
NOTHING, RESTART_JOB, RESET_GPU, REBOOT, CHECK_NVLINK, RECOVERY_ACTION = (
    "none",
    "restart_job",
    "reset_gpu",
    "reboot",
    "check_nvlink",
    "recovery_action",
)


class XidCode(NamedTuple):
    """The meaning of a code, and what clears the error."""

    meaning: str
    action: str


CODES = {
    13: XidCode("a kernel of the job failed, mostly by its own fault", RESTART_JOB),
    31: XidCode("the job accessed memory that is not its own", RESTART_JOB),
    43: XidCode("the job failed and was ended; the GPU is well", NOTHING),
    45: XidCode("the job was ended, often after another error", NOTHING),
    48: XidCode("an error of memory that could not be corrected", RESET_GPU),
    62: XidCode("the GPU's own controller stopped", RESET_GPU),
    63: XidCode("a row of memory is to be replaced", NOTHING),
    64: XidCode("a row of memory could not be replaced", RESET_GPU),
    74: XidCode("an error of an NVLink", CHECK_NVLINK),
    79: XidCode("the GPU has fallen off the bus", REBOOT),
    92: XidCode("many errors of memory were corrected", NOTHING),
    94: XidCode("an error of memory that ended one job", RESTART_JOB),
    95: XidCode("an error of memory that may concern every job", RESET_GPU),
    119: XidCode("the GPU's system processor does not answer", RESET_GPU),
    120: XidCode("the GPU's system processor failed", RESET_GPU),
    140: XidCode("an error of memory that the driver could not confine", RESET_GPU),
    144: XidCode("an error of an NVLink 5, in its unit SAW", CHECK_NVLINK),
    145: XidCode("an error of an NVLink 5, in its unit RLW", CHECK_NVLINK),
    146: XidCode("an error of an NVLink 5, in its unit TLW", CHECK_NVLINK),
    147: XidCode("an error of an NVLink 5, in its unit TREX", CHECK_NVLINK),
    148: XidCode("an error of an NVLink 5, in its unit NVLPW", CHECK_NVLINK),
    149: XidCode("an NVLink 5 went down or has errors (NETIR)", CHECK_NVLINK),
    150: XidCode("an error of an NVLink 5, in its unit MSE", CHECK_NVLINK),
    154: XidCode("the driver requests another recovery action", RECOVERY_ACTION),
}
UNKNOWN_ACTION = "unknown"
ACTIONS = (NOTHING, RESTART_JOB, RESET_GPU, REBOOT, CHECK_NVLINK, RECOVERY_ACTION, UNKNOWN_ACTION)
# Each GPU has these from the start, so that `increase` sees the first error.
ACTION_CODES = tuple(CODES)


def action_of(code: int) -> str:
    """Return what clears the error of a code."""
    return CODES[code].action if code in CODES else UNKNOWN_ACTION
