"""Recognises events in lines of the kernel's log.

The kernel puts texts of its users into its lines: names of programs (15 bytes of anything, at the beginning of some
lines), of control groups and of files. Each pattern begins at the beginning of a line and has more than 15 bytes that a
user does not choose, so that no such text makes an event.
"""

from __future__ import annotations

import re

from trainwarden_exporter.core.slurm_cgroup import job_of_group

_PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# A NIC, an HCA: driver, PCI address or bus, and, mostly, the name of the interface. Not disks, whose links are logged
# alike. Some old drivers name the interface alone.
_NIC = (
    rf"^(?:(?!ata|pcieport|nvme)[\w-]{{2,20}} {_PCI}:?(?: [\w.@-]{{1,20}})?: (?:\w{{2,15}}: [\w.@-]{{1,20}} )?(?:NIC )?"
    r"|(?:e1000e?|igb|ixgbe): [\w.@-]{1,20} NIC |mlx4_en: [\w.@-]{1,20}: )"
)
_HCA = (
    r"^(?:infiniband \w{2,32}"
    rf"|(?:efa|mlx[45]_core|mlx[45]_ib|bnxt_re|bnxt_en|irdma|ionic_rdma) {_PCI})(?: [\w.-]{{1,20}})?: "
)
# The lines with severity and data that follow report the same fault.
_SXID = r"^nvidia-nvswitch\d*: SXid \(PCI:[0-9a-fA-F:.]{7,20}\): \d{1,6}, "
_AMDGPU = rf"^amdgpu {_PCI}: (?:amdgpu: )?"

# A line counts as the first event that it matches. Of a fault that fills several lines exactly one is matched.
EVENTS = {
    "xid": r"^NVRM: Xid \((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}[^)]{0,40}\): \d{1,4}\b",
    "nvswitch_sxid_nonfatal": _SXID + r"Non-fatal\b",
    "nvswitch_sxid": _SXID + r"(?!Severity \d|Data \{)",
    "gpu_fallen_off_bus": (
        rf"^NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?[0-9a-fA-F:.]{{7,20}}.*fallen off the bus"
        rf"|{_AMDGPU}device lost from bus!"
    ),
    "amdgpu_reset": _AMDGPU + r"GPU reset begin!",
    "amdgpu_uncorrectable_error": _AMDGPU + r"(?:[\w:, ]*\s)?[1-9]\d* uncorrectable hardware errors? detected in ",
    "hung_task": r"^INFO: task .{1,40} blocked (?:on .{1,80} )?for more than \d+ seconds",
    "soft_lockup": r"^(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for ",
    "hard_lockup": r"^(?:NMI )?watchdog: (?:CPU ?\d+:? )?(?:Watchdog |self-)?[Dd]etected hard LOCKUP",
    "rcu_stall": r"^(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stalls? on",
    "kernel_oops": (
        r"^(?:Oops|Internal error|general protection fault|invalid opcode|divide error|double fault|stack segment|int3"
        r"|alignment check|bounds|invalid TSS|segment not present|control protection|BUG|Kernel)\b[^\[\]]*"
        r": [0-9a-f]{4,16} \[#\d+\](?: [A-Z_]+)*\s*$"
    ),
    "cgroup_oom_kill": r"^Memory cgroup out of memory: Killed process \d+ ",
    "oom_kill": r"^(?:Out of memory[^:]{0,40}: )?Killed process \d+ \(",
    "segfault": r"^(?!process ').{1,15}\[\d+\]: segfault at [0-9a-f]+ ip [0-9a-f]+ sp [0-9a-f]+ error ",
    "machine_check": r"^(?:mce: )?\[Hardware Error\]: (?:Machine check events logged|CPU \d+: Machine Check)",
    "hardware_error_corrected": r"^(?:\{\d+\})?\[Hardware Error\]: event severity: corrected",
    "hardware_error": r"^(?:\{\d+\})?\[Hardware Error\]: event severity: ",
    "memory_error_corrected": r"^EDAC (?:\w+ )?MC\d+: \d+ CE ",
    "memory_error_uncorrected": r"^EDAC (?:\w+ )?MC\d+: \d+ UE ",
    "pcie_error": (
        rf"^[\w-]{{2,32}} {_PCI}: (?:AER: )?PCIe Bus Error: severity=Uncorrect\w+"
        rf"|^pcieport {_PCI}: (?:pciehp: Slot\([^)]{{1,20}}\): Link Down|DPC: containment event)"
    ),
    "link_down": _NIC + r"[Ll]ink(?: is)? [Dd]own\b",
    "link_up": _NIC + r"[Ll]ink(?: is)? [Uu]p\b",
    "ib_error": (
        _HCA + r".*(?:dump error cqe|health compromised|Fatal error|[Tt]imeout\b|timed out|"
        r"didn't send any completion|Cable error|Keep alive watchdog)"
    ),
    "nvme_error": (
        r"^nvme nvme\d+: .*(?:timeout, (?:aborting|reset controller|disable controller)|controller is down|"
        r"after probe failure|after reset failure|Device not ready)"
    ),
    "io_error": r"^(?:blk_update_request: )?(?:I/O|critical \w+) error, dev [\w!-]{1,32}, sector \d",
    "filesystem_error": (
        r"^EXT4-fs error \(device [\w.!-]{1,32}\): \w+:\d+:"
        r"|^XFS \([\w.!-]{1,32}\): .*(?:[Cc]orruption|shut ?down|I/O error)"
        r"|^[\w-]{2,12} \((?:device )?[\w.!-]{1,32}\): Remounting filesystem read-only"
    ),
    "nfs_timeout": r"^nfs: server \S+ not responding, ",
    "lustre_connection_lost": r"^Lustre: [\w.-]+: Connection to \S+ \(at \S+\) was lost",
}
# Lines that begin with the name of a program and hold other texts of users: none of the events but the first.
_NAMES_PROGRAM = re.compile(
    r"^(?!INFO: task ).{0,15}?(?:\[\d+\]:? | ?\(\d+\):? |/\d+: | invoked oom-killer|: page allocation|: vmalloc)",
    re.DOTALL,
)
_OF_PROGRAMS = ("segfault",)
# Every such line holds one of these texts, and few others do: a storm of other lines costs little.
# fmt: off
_HINTS = (
    "Xid (", "fallen off", "lost from bus", "reset begin", "uncorrectable hardware", "blocked", "lockup", "LOCKUP",
    "stall", "[#", "Killed process", "segfault", "[Hardware Error]", "EDAC", "PCIe Bus", "pciehp", "DPC:", "ink is",
    "ink down", "ink up", "ink Up", "ink Down", "error", "health", "Fatal", "imeout", "timed out", "completion",
    "watchdog", "is down", "failure", "not ready", "XFS", "Remounting", "not responding", "was lost",
)
# fmt: on


def _compiled(events: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{event}>{pattern})" for event, pattern in events.items()), re.DOTALL)


_ANY = _compiled(EVENTS)
_ANY_OF_PROGRAMS = _compiled({event: EVENTS[event] for event in _OF_PROGRAMS})
_KILLED = re.compile(r"Killed process (\d+) \((.*)\),? (?:UID|total-vm)", re.DOTALL)
# What follows the control group is read from the end of the line, for a name of a program may hold the same texts.
_TO_BE_KILLED = re.compile(r"^oom-kill:constraint=.*,task_memcg=(.*),task=.{0,15},pid=(\d+),uid=\d+\s*$", re.DOTALL)


def event_of(text: str) -> str | None:
    """Return the event of `EVENTS` of a line, if any."""
    if not any(hint in text for hint in _HINTS):
        return None
    match = (_ANY_OF_PROGRAMS if _NAMES_PROGRAM.match(text) else _ANY).match(text)
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
    # A user chooses the names of control groups below his own: one that repeats the text before it names no job.
    job = "" if text.count("task_memcg=") > 1 else job_of_group(match[1])
    return int(match[2]), job
