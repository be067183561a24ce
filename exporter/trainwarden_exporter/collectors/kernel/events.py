"""Recognises events in lines of the kernel's log."""

from __future__ import annotations

import re

# A NIC, an HCA: driver, PCI address and, mostly, the name of the interface. Not disks, whose links are logged alike.
_NIC = (
    r"^(?!ata|pcieport|nvme)[\w-]{2,20}(?: [0-9a-f:.]{7,14}:? [\w.@-]{1,20}| [0-9a-f:.]{7,14})?: "
    r"(?:\w{2,15}: [\w.@-]{1,20} )?"
)
_HCA = r"^(?:infiniband|efa|mlx[45]_core|mlx[45]_ib|bnxt_re|bnxt_en|irdma|ionic_rdma) [^ ]{2,20}(?: [\w.-]{1,20})?: "

# A line counts as the first event that it matches. Of a fault that fills several lines exactly one is matched.
EVENTS = {
    "xid": r"^NVRM: Xid \(",
    "nvswitch_sxid": r"^nvidia-nvswitch\d*: SXid \(",
    "gpu_fallen_off_bus": r"^NVRM: .*fallen off the bus|amdgpu.*: device lost from bus!",
    "amdgpu_reset": r"amdgpu.*: GPU reset begin!",
    "amdgpu_uncorrectable_error": r"amdgpu.*\b[1-9]\d* uncorrectable hardware errors? detected in ",
    "hung_task": r"^INFO: task .{1,40} blocked (?:on .{1,80} )?for more than \d+ seconds",
    "soft_lockup": r"BUG: soft lockup - CPU#",
    "hard_lockup": r"[Ww]atchdog(?:: CPU\d+)?:? [Dd]etected hard LOCKUP",
    "rcu_stall": r"^(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on",
    "kernel_oops": r"^[A-Z].*: [0-9a-f]{4,16} \[#\d+\]",
    "cgroup_oom_kill": r"^Memory cgroup out of memory: Killed process \d+ ",
    "oom_kill": r"^(?:Out of memory[^:]*: )?Killed process \d+ ",
    "segfault": r"^.{1,40}\[\d+\]: segfault at ",
    "machine_check": r"\[Hardware Error\]: (?:Machine check events logged|CPU \d+: Machine Check)",
    "hardware_error_corrected": r"\[Hardware Error\]: event severity: corrected",
    "hardware_error": r"\[Hardware Error\]: event severity: ",
    "memory_error_corrected": r"^EDAC .*: \d+ CE ",
    "memory_error_uncorrected": r"^EDAC .*: \d+ UE ",
    "pcie_error": r"PCIe Bus Error: severity=Uncorrect\w+|pciehp: Slot\([^)]*\): Link Down|DPC: containment event",
    "link_down": _NIC + r"(?:NIC )?[Ll]ink(?: is)? [Dd]own\b",
    "link_up": _NIC + r"(?:NIC )?[Ll]ink(?: is)? [Uu]p\b",
    "ib_error": (
        _HCA + r".*(?:dump error cqe|health compromised|Fatal error|[Tt]imeout\b|timed out|"
        r"didn't send any completion|Cable error|Keep alive watchdog)"
    ),
    "nvme_error": (
        r"^nvme nvme\d+: .*(?:timeout, (?:aborting|reset controller|disable controller)|controller is down|"
        r"after probe failure|after reset failure|Device not ready)"
    ),
    "io_error": r"^(?:blk_update_request: )?(?:I/O|critical \w+) error, dev \S+, sector",
    "filesystem_error": (
        r"^EXT4-fs error|^XFS \([^)]*\): .*(?:[Cc]orruption|shut ?down|I/O error)|Remounting filesystem read-only"
    ),
    "nfs_timeout": r"^nfs: server \S+ not responding",
    "lustre_connection_lost": r"^Lustre: .*Connection to \S+ .*was lost",
}
# Every such line holds one of these texts, and few others do: a storm of other lines costs little.
# fmt: off
_HINTS = (
    "Xid (", "fallen off", "lost from bus", "reset begin", "uncorrectable hardware", "blocked", "lockup", "LOCKUP",
    "stall", "[#", "Killed process", "segfault", "[Hardware Error]", "EDAC", "PCIe Bus", "pciehp", "DPC:", "ink is",
    "ink down", "ink up", "ink Up", "ink Down", "error", "health", "Fatal", "imeout", "timed out", "completion",
    "watchdog", "is down", "failure", "not ready", "XFS", "Remounting", "not responding", "was lost",
)
# fmt: on
_ANY = re.compile("|".join(f"(?P<{event}>{pattern})" for event, pattern in EVENTS.items()))
_KILLED = re.compile(r"Killed process (\d+) \((.*)\),? (?:UID|total-vm)", re.DOTALL)
_TO_BE_KILLED = re.compile(r"^oom-kill:constraint=.*task_memcg=(\S*),task=.*,pid=(\d+),uid=")
_SLURM_JOB = re.compile(r"/job_(\d+)(?:/|$)")


def event_of(text: str) -> str | None:
    """Return the event of `EVENTS` of a line, if any."""
    if not any(hint in text for hint in _HINTS):
        return None
    match = _ANY.search(text)
    return match.lastgroup if match else None


def killed_process(text: str) -> tuple[int, str] | None:
    """Return pid and name of the process that the line of an OOM kill names."""
    match = _KILLED.search(text)
    return (int(match[1]), match[2]) if match else None


def oom_victim(text: str) -> tuple[int, str] | None:
    """Return pid and SLURM job (empty: none) of the process that the line before an OOM kill names."""
    match = _TO_BE_KILLED.match(text)
    if match is None:
        return None
    job = _SLURM_JOB.search(match[1])
    return int(match[2]), job[1] if job else ""
