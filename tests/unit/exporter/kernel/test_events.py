"""Lines as kernels and drivers write them, and which event each tells of."""

from __future__ import annotations

from tests.cases import cases
from trainwarden_exporter.collectors.kernel.events import EVENTS, event_of, killed_process, oom_victim

LINES = [
    ("xid", "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ("xid", "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004a6d42 0x00000000)"),
    ("xid", "NVRM: Xid (0000:03:00): 31, Ch 0000001b"),
    ("nvswitch_sxid", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 19084, Fatal, Link 27 AN1 Heartbeat Timeout Error"),
    ("nvswitch_sxid", "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 10003, IO failure"),
    ("nvswitch_sxid_nonfatal", "nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 12028, Non-fatal, Link 46 egress NACK"),
    ("gpu_fallen_off_bus", "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."),
    ("gpu_fallen_off_bus", "amdgpu 0000:c1:00.0: amdgpu: device lost from bus!"),
    ("amdgpu_reset", "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"),
    ("amdgpu_reset", "amdgpu 0000:28:00.0: GPU reset begin!. Source:  1"),
    (
        "amdgpu_uncorrectable_error",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 0, die: 0 2 uncorrectable hardware errors detected in umc block",
    ),
    ("hung_task", "INFO: task python3:4321 blocked for more than 120 seconds."),
    ("hung_task", "INFO: task kworker/u64:2+ev:88 blocked for more than 241 seconds."),
    ("hung_task", "INFO: task pt_data_worker:777 blocked on a mutex likely owned by x:1 for more than 122 seconds."),
    ("soft_lockup", "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:99]"),
    ("hard_lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("hard_lockup", "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3"),
    ("rcu_stall", "rcu: INFO: rcu_sched self-detected stall on CPU"),
    (
        "rcu_stall",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 21 jiffies s: 77 root: 0x2/.",
    ),
    ("kernel_oops", "Oops: 0000 [#1] PREEMPT SMP NOPTI"),
    ("kernel_oops", "Internal error: Oops: 0000000096000004 [#1] SMP"),
    ("oom_kill", "Out of memory: Killed process 15784 (python3) total-vm:11964kB, anon-rss:4288kB, UID:0 pgtables:8kB"),
    ("oom_kill", "Killed process 42453 (python), UID 0, total-vm:7296kB, anon-rss:96kB"),
    ("cgroup_oom_kill", "Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, anon-rss:16kB"),
    ("segfault", "python[24590]: segfault at 0 ip 00007fdcad785ad8 sp 00007ffe1f9adc38 error 4 in libc.so.6[167ad8]"),
    ("machine_check", "mce: [Hardware Error]: Machine check events logged"),
    ("machine_check", "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: 8c00004000010090"),
    ("hardware_error_corrected", "{1}[Hardware Error]: event severity: corrected"),
    ("hardware_error", "{2}[Hardware Error]: event severity: fatal"),
    ("memory_error_corrected", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)"),
    ("memory_error_uncorrected", "EDAC MC1: 1 UE memory scrubbing error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0)"),
    (
        "pcie_error",
        "pcieport 0000:64:01.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
    ),
    ("pcie_error", "nvidia 0000:65:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"),
    ("pcie_error", "pcieport 0000:00:1c.4: pciehp: Slot(4): Link Down"),
    ("pcie_error", "pcieport 0000:64:01.0: DPC: containment event, status:0x1f01 source:0x0000"),
    ("link_down", "mlx5_core 0000:5e:00.0 ens1f0np0: Link down"),
    ("link_up", "mlx5_core 0000:5e:00.0 ens1f0np0: Link up"),
    ("link_down", "ena 0000:00:05.0 ens5: Link is down"),
    ("link_up", "ena 0000:00:05.0 ens5: Link is up"),
    ("link_up", "ice 0000:31:00.0 ens1f0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC"),
    ("link_down", "bnxt_en 0000:3b:00.0 eno1np0: NIC Link is Down"),
    ("link_up", "igb 0000:02:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX"),
    ("ib_error", "infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe"),
    ("ib_error", "mlx5_core 0000:5e:00.0: poll_health:955:(pid 0): device's health compromised - reached miss count"),
    ("ib_error", "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C)"),
    ("ib_error", "efa 0000:10:1c.0 rdmap16s28: The device didn't send any completion for admin cmd CREATE_QP(3)"),
    ("nvme_error", "nvme nvme1: I/O 775 QID 2 timeout, aborting"),
    ("nvme_error", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
    ("nvme_error", "nvme nvme2: Removing after probe failure status: -19"),
    (
        "io_error",
        "blk_update_request: I/O error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    ),
    ("io_error", "I/O error, dev nvme0n1, sector 1336320 op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2"),
    ("io_error", "critical medium error, dev sda, sector 6160872 op 0x0:(READ) flags 0x0"),
    (
        "filesystem_error",
        "EXT4-fs error (device nvme1n1): ext4_find_entry:1455: inode #2: comm python: reading directory",
    ),
    ("filesystem_error", "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2)."),
    ("nfs_timeout", "nfs: server fs1.cluster not responding, still trying"),
    (
        "lustre_connection_lost",
        "Lustre: fs-OST0001-osc-ffff: Connection to fs-OST0001 (at 10.0.0.1@tcp) was lost; in progress operations wait",
    ),
]
OTHERS = [
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
    "IPv6: ADDRCONF(NETDEV_CHANGE): ens1f0np0: link becomes ready",
    "bond0: (slave ens1f0): link status definitely down, disabling slave",
    "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 19084, Severity 1 Engine instance 27 Sub-engine instance 00",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 19084, Data {0x00000001, 0x00000000, 0x00000000, 0x00000000}",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15",
    "amdgpu 0000:c1:00.0: amdgpu: GPU reset(2) succeeded!",
    "amdgpu 0000:c1:00.0: amdgpu: socket: 0, die: 0 0 uncorrectable hardware errors detected in umc block",
    "oom_reaper: reaped process 63214 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
    "systemd[1]: train.service: A process of this unit has been killed by the OOM killer.",
    "Memory cgroup out of memory: Kill process 42453 (python) score 0 or sacrifice child",
    "mce: [Hardware Error]: TSC 0 ADDR 4a0d75900 MISC 21405cdc86",
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
    "pcieport 0000:64:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
    "pcieport 0000:00:1c.4: pciehp: Slot(4): Link Up",
    "nvme nvme1: Abort status: 0x6",
    "Buffer I/O error on dev nvme0n1, logical block 0, async page read",
    "EXT4-fs (nvme0n1p2): re-mounted fc7a1f9e r/w. Quota mode: none.",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
]


@cases(("event", "text"), LINES)
def test_a_fault_is_reported(event: str, text: str) -> None:
    assert event_of(text) == event


@cases("text", OTHERS)
def test_what_is_no_fault_or_was_reported_by_another_line_is_left(text: str) -> None:
    assert event_of(text) is None


def test_every_event_has_a_line_of_its_own() -> None:
    assert {event for event, _ in LINES} == set(EVENTS)


def test_an_oom_kill_names_process_and_slurm_job() -> None:
    assert oom_victim(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
        "oom_memcg=/system.slice/slurmstepd.scope/job_4711,"
        "task_memcg=/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0,task=python,pid=63214,uid=1000"
    ) == (63214, "4711")
    assert oom_victim(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=python,pid=7,uid=0"
    ) == (7, "")
    assert killed_process("Out of memory: Killed process 15925 ((resolved)) total-vm:168kB") == (15925, "(resolved)")
    assert killed_process("Killed process 42453 (memcg test), UID 0, total-vm:7296kB") == (42453, "memcg test")


# What the kernel prints of a process and its control group; `{comm}` is 15 bytes, `{file}` and `{group}` 255 of a
# user's choice.
OF_USERS = [
    "{comm}[1234]: segfault at 0 ip 00007fdcad785ad8 sp 00007ffe1f9adc38 error 4 in {file}[167ad8]",
    "{comm}[1234] trap invalid opcode ip:7f sp:7f error:0 in {file}[167ad8]",
    "traps: {comm}[1234] general protection fault ip:7f sp:7f error:0 in {file}[167ad8]",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{comm}: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={group},mems_allowed=0",
    "{comm} (1234): drop_caches: 3",
    "{comm}/1234: potentially unexpected fatal signal 11.",
    "process '{file}' started with executable stack",
    "CPU: 3 PID: 1234 Comm: {comm} Not tainted 6.8.0 #1",
    "oom-kill:constraint=CONSTRAINT_MEMCG,cpuset={group},oom_memcg=/{group},task_memcg=/{group},task={comm},pid=7,uid=1",
    "Memory cgroup stats for /user.slice/{group}: anon 0",
    "Task in /user.slice/{group} killed as a result of limit of /user.slice/{group}",
    "cgroup: fork rejected by pids controller in /user.slice/{group}",
    "[  63214]  1000 63214  100  100    65536        0             0 {comm}",
    "audit: type=1326 audit(1.1:1): auid=1000 uid=1000 comm={comm} exe={file}",
    "Memory cgroup out of memory: Killed process 63214 ({comm}) total-vm:3149468kB, anon-rss:16kB",
    "INFO: task {comm}:4321 blocked for more than 120 seconds.",
]


def pieces(text: str, size: int) -> set[str]:
    """Every text of that size in a line, and every shorter end and beginning."""
    inner = {text[start : start + size] for start in range(max(1, len(text) - size + 1))}
    return inner | {text[:end] for end in range(1, size)}


@cases("template", OF_USERS)
def test_no_name_of_a_program_a_file_or_a_control_group_makes_an_event(template: str) -> None:
    true = event_of(template.format(comm="python", file="libc.so.6", group="user-1000.slice"))
    for _, line in LINES:
        names = [line, f"x\n{line}", f"{line}\n", line[15:]]
        comms = sorted(pieces(line, 15)) if "{comm}" in template else ["python"]
        if "{file}" not in template and "{group}" not in template:
            names = [""]
        for comm in comms:
            for name in [*names, line[len(comm) :]]:
                forged = template.format(comm=comm, file=name.replace("/", "_"), group=name.replace("/", "_"))
                assert event_of(forged) == true, forged
                victim = oom_victim(forged)
                assert victim is None or victim[1] == ""


@cases(
    "group",
    [
        "/user.slice/user-1000.slice/user@1000.service/job_4711/step_0",
        "/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_4711/step_0",
        "/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_4711",
        "/user.slice/x,task_memcg=/system.slice/slurmstepd.scope/job_4711/step_0",
        "/system.slice/slurmstepd.scope/x/job_4711/step_0",
        "/system.slice/my.service/job_4711",
    ],
)
def test_a_control_group_that_slurm_did_not_make_names_no_job(group: str) -> None:
    line = f"oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg={group},task=python,pid=7,uid=1000"
    assert oom_victim(line) == (7, "")


@cases(
    "group",
    [
        "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
        "/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user",
        "/slurm/uid_1000/job_4711/step_0/task_0",
        "/slurm_node7/uid_1000/job_4711",
        f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'a' * 64}.scope/system.slice/slurmstepd.scope/job_4711",
    ],
)
def test_slurms_own_control_groups_name_the_job(group: str) -> None:
    line = f"oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg={group},task=a,pid=1,uid=1,pid=7,uid=1000"
    assert oom_victim(line) == (7, "4711")
