"""The doctor's checks: what each one inspects, why it matters, and what to do if it fails.

Each is a row and a kind of finding (`Check.kind`). A code belongs to one check for ever. The rows
stand apart from the checks themselves (`unhang.doctor`), so that a reader of a saved report knows
what kind its findings are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from unhang.kinds import Family, Kind, Trait

HARD_XIDS: Final = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140})
"""Xid numbers that mean hardware (NVIDIA's table): the others may be a program's fault."""

Part: TypeAlias = Literal["env", "net", "gpu", "comm"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is checked.

    Attributes:
        part: The subcommand of the doctor that it belongs to.
        family: What sort of trouble it shows.
        why: Why it matters to a distributed job, one sentence.
        action: What to do when it fails, one sentence.
        name: What is looked at, for a checklist: true of a check that passes as well.
    """

    code: str
    slug: str
    part: Part
    family: Family
    why: str
    action: str
    name: str

    @property
    def kind(self) -> Kind:
        """The kind of finding that it makes where it fails."""
        traits = Trait.CHECKED if self.part == "env" else Trait.CHECKED | Trait.ON_THE_WAY
        return Kind(
            self.code, self.slug, self.family, self.why, traits=traits, actions=(self.action,)
        )


# fmt: off
SETTINGS_CONTRADICT: Final = Check(
    "UH801", "settings-contradict", "env", "environment",
    "Two settings exclude each other: one of them is silently ignored.",
    "Keep one and unset the other.",
    "settings together",
)
SETTING_UNKNOWN: Final = Check(
    "UH802", "setting-unknown", "env", "environment",
    "A misspelt variable has no effect, and no library warns.",
    "Correct the name, or unset it.",
    "names of settings",
)
SETTING_DEPRECATED: Final = Check(
    "UH803", "setting-deprecated", "env", "environment",
    "The next version may drop the old name.",
    "Use the new name.",
    "old names of settings",
)
RECORDER_SWITCHED_OFF: Final = Check(
    "UH804", "recorder-switched-off", "env", "evidence",
    "Without the Flight Recorder a hang leaves no dump to read.",
    "Unset the variable, set it to 2000, or start the job with unhang run.",
    "Flight Recorder",
)
OPEN_FILES_LOW: Final = Check(
    "UH805", "open-files-low", "env", "environment",
    "NCCL opens many sockets and files per peer; a low limit causes 'Too many open files'.",
    "Run ulimit -n 65536 in the shell that launches.",
    "open files",
)
LOCKED_MEMORY_LOW: Final = Check(
    "UH806", "locked-memory-low", "env", "environment",
    "RDMA locks the memory that it registers; a low limit fails at startup.",
    "Run ulimit -l unlimited in the shell that launches.",
    "locked memory",
)
SHM_SMALL: Final = Check(
    "UH807", "shm-small", "env", "environment",
    "NCCL and data loaders pass data through /dev/shm.",
    "Enlarge it: docker --shm-size=16g, or an emptyDir of medium Memory.",
    "shared memory",
)
CORES_OFF: Final = Check(
    "UH808", "cores-off", "env", "evidence",
    "A crash in native code leaves no core file.",
    "Set ulimit -c unlimited, and a core_pattern on a disk with free space.",
    "core files",
)
VERSIONS_DIFFER: Final = Check(
    "UH809", "versions-differ", "env", "environment",
    "Ranks with different libraries may disagree about protocols and shapes.",
    "Use one environment on all nodes.",
    "versions",
)
VERSION_KNOWN_BAD: Final = Check(
    "UH810", "version-known-bad", "env", "environment",
    "This version has a known fault that hangs or crashes jobs.",
    "Update it.",
    "known faults",
)
PTRACE_RESTRICTED: Final = Check(
    "UH811", "ptrace-restricted", "env", "evidence",
    "unhang cannot read the stacks of running ranks.",
    "Set sysctl kernel.yama.ptrace_scope=0, or --cap-add=SYS_PTRACE for a container.",
    "ptrace",
)
CLOCKS_APART: Final = Check(
    "UH812", "clocks-apart", "env", "evidence",
    "Timestamps of different nodes cannot be compared.",
    "Run chrony or ntpd on all nodes.",
    "clocks",
)
SETTINGS_DIFFER: Final = Check(
    "UH813", "settings-differ", "env", "environment",
    "Ranks with different communication settings may choose different transports.",
    "Set the variable to one value on all nodes, or unset it everywhere.",
    "settings of nodes",
)
GROUP_STARVED: Final = Check(
    "UH814", "group-starved", "env", "environment",
    "A cgroup that is throttled or at its memory limit makes its ranks late in every call.",
    "Raise it: docker --cpus and --memory, resources.limits, --cpus-per-task and --mem of SLURM.",
    "cgroup",
)
IOMMU_TRANSLATES: Final = Check(
    "UH815", "iommu-translates", "env", "transport",
    "An IOMMU that translates sends traffic between GPUs through the root: P2P is slow or hangs.",
    "Add iommu=pt to the kernel's command line, or turn the IOMMU off in the BIOS.",
    "IOMMU",
)
PROCESSES_LOW: Final = Check(
    "UH816", "processes-low", "env", "environment",
    "Every rank starts dozens of threads; at the limit its startup fails or hangs.",
    "Run ulimit -u unlimited in the shell that launches; check docker --pids-limit, TasksMax=.",
    "processes",
)
HUGE_PAGES_IDLE: Final = Check(
    "UH817", "huge-pages-idle", "env", "environment",
    "Reserved huge pages that no process uses are memory that no rank gets.",
    "Set sysctl vm.nr_hugepages=0, or to the number in use.",
    "huge pages",
)
NODE_SHORT: Final = Check(
    "UH818", "node-short", "env", "environment",
    "On a node that is short of cores or memory, ranks are late in every call.",
    "Run top there; give the job its own cores and memory (--exclusive in SLURM).",
    "memory",
)
THREADS_MANY: Final = Check(
    "UH819", "threads-many", "env", "environment",
    "More threads than cores wait for each other in every parallel section.",
    "Set OMP_NUM_THREADS to the cores of the node divided by its ranks.",
    "threads",
)
INTERFACE_UNWISE: Final = Check(
    "UH820", "interface-unwise", "net", "transport",
    "NCCL or Gloo would advertise an address that its peers cannot use.",
    "Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface between the nodes.",
    "choice of interface",
)
INTERFACE_MISSING: Final = Check(
    "UH821", "interface-missing", "net", "transport",
    "A setting names an interface that does not exist, is down, or has no address.",
    "Correct NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME on that host.",
    "interface",
)
NAME_UNRESOLVED: Final = Check(
    "UH822", "name-unresolved", "net", "transport",
    "A rank that cannot resolve the master's name never joins.",
    "Correct /etc/hosts or DNS, or use an address.",
    "host name",
)
PORT_BLOCKED: Final = Check(
    "UH823", "port-blocked", "net", "transport",
    "Ranks cannot connect to each other: the job hangs at its start.",
    "Open the port in the firewall of that host, or choose another one.",
    "ports",
)
WRONG_ANSWER: Final = Check(
    "UH824", "wrong-answer", "net", "transport",
    "Another program answers where a rank is expected.",
    "Compare addresses and /etc/hosts; end the program that holds the port.",
    "who answers",
)
SLOW_LINK: Final = Check(
    "UH825", "slow-link", "net", "slow",
    "One slow pair slows every collective to its speed.",
    "Check cable, port counters, duplex and drops of that pair.",
    "speed of links",
)
MTU_DIFFERS: Final = Check(
    "UH826", "mtu-differs", "net", "transport",
    "Large packets vanish between nodes whose MTU differs: small messages pass, then a hang.",
    "Use one MTU on all interfaces of that network, switches included.",
    "MTU",
)
HOST_SILENT: Final = Check(
    "UH827", "host-silent", "net", "absent",
    "unhang cannot start a program on this node, so the job cannot either.",
    "Log in by hand with the same command.",
    "reachable",
)
PORT_TAKEN: Final = Check(
    "UH828", "port-taken", "net", "transport",
    "Another process already uses the master port.",
    "ss -ltnp shows the process; end it or choose another port.",
    "master port",
)
GPU_MISSING: Final = Check(
    "UH840", "gpu-missing", "gpu", "device",
    "Fewer GPUs than expected are visible.",
    "Run nvidia-smi -L or amd-smi list on that host; check CUDA_VISIBLE_DEVICES and dmesg.",
    "GPUs",
)
GPU_MEMORY_LEFT: Final = Check(
    "UH841", "gpu-memory-left", "gpu", "device",
    "A dead process or another job holds memory that this job needs.",
    "nvidia-smi or amd-smi process shows the owner; end it or reset the GPU.",
    "GPU memory",
)
GPU_ECC: Final = Check(
    "UH842", "gpu-ecc", "gpu", "device",
    "An uncorrectable memory error ends the process that reads that memory.",
    "Drain the node and reset the GPU; replace it if rows cannot be remapped.",
    "GPU ECC",
)
GPU_XID: Final = Check(
    "UH843", "gpu-xid", "gpu", "device",
    "The driver reported a fault of a GPU.",
    "Look the number up in NVIDIA's Xid table; drain the node if it is a hardware fault.",
    "GPU errors (Xid)",
)
GPU_THROTTLED: Final = Check(
    "UH844", "gpu-throttled", "gpu", "slow",
    "A slow GPU makes its rank arrive last in every collective.",
    "Check temperature and power; nvidia-smi -q -d PERFORMANCE, amd-smi metric --throttle.",
    "GPU clocks",
)
NVLINK_DOWN: Final = Check(
    "UH845", "nvlink-down", "gpu", "transport",
    "Traffic takes a slower path, or fails.",
    "Run nvidia-smi nvlink -s or amd-smi xgmi -l; reset the GPUs or the node.",
    "NVLink",
)
FABRIC_MANAGER: Final = Check(
    "UH846", "fabric-manager", "gpu", "device",
    "Without its fabric manager an NVSwitch machine cannot start NCCL.",
    "Run systemctl start nvidia-fabricmanager, in the driver's version.",
    "fabric manager",
)
PCIE_NARROW: Final = Check(
    "UH847", "pcie-narrow", "gpu", "slow",
    "A link narrower or slower than the card supports slows every transfer.",
    "Reseat the card; check BIOS settings.",
    "PCIe links",
)
P2P_MISSING: Final = Check(
    "UH848", "p2p-missing", "gpu", "transport",
    "GPUs that cannot reach each other directly go through host memory.",
    "Check IOMMU and ACS, and that all GPUs are visible to each process.",
    "peer access",
)
ACS_ON: Final = Check(
    "UH849", "acs-on", "gpu", "transport",
    "PCIe access control sends GPU traffic through the root: P2P is slow or hangs.",
    "Turn ACS off in the BIOS or with setpci; add iommu=pt to the kernel's command line.",
    "PCIe ACS",
)
GPU_MIG: Final = Check(
    "UH851", "gpu-mig", "gpu", "environment",
    "NCCL cannot join MIG slices of one GPU as if they were GPUs.",
    "Run nvidia-smi -mig 0, or start one rank per GPU.",
    "MIG",
)
GPU_PERSISTENCE: Final = Check(
    "UH852", "gpu-persistence", "gpu", "environment",
    "Without persistence mode the first use of each GPU takes seconds.",
    "nvidia-smi -pm 1.",
    "persistence mode",
)
COMM_RANKS_MISSING: Final = Check(
    "UH860", "comm-ranks-missing", "comm", "absent",
    "Missing ranks block all others.",
    "Inspect the hosts of these ranks: unhang stacks, unhang doctor net.",
    "ranks start",
)
COMM_WRONG_VALUES: Final = Check(
    "UH861", "comm-wrong-values", "comm", "failure",
    "A collective returned wrong numbers: memory, a link or a library is broken.",
    "Isolate the rank; run the GPU's diagnostics.",
    "values",
)
COMM_STUCK: Final = Check(
    "UH862", "comm-stuck", "comm", "transport",
    "All ranks are in the call and it does not finish: the transport, a GPU or a library fails.",
    "Change the transport as shown, then check the remaining link.",
    "collectives",
)
COMM_ISOLATED: Final = Check(
    "UH863", "comm-isolated", "comm", "transport",
    "Halving the nodes leaves this as the only explanation.",
    "Take it out, or keep the setting that makes the job work.",
    "pairs of ranks",
)
COMM_SLOW_PAIR: Final = Check(
    "UH864", "comm-slow-pair", "comm", "slow",
    "One slow pair slows every collective to its speed.",
    "Check the link between the two.",
    "speed of pairs",
)
COMM_NOT_STARTED: Final = Check(
    "UH865", "comm-not-started", "comm", "failure",
    "The test could not start its own ranks.",
    "Read the ranks' output below.",
    "test job",
)
COMM_BANDWIDTH: Final = Check(
    "UH866", "comm-bandwidth", "comm", "slow",
    "Collectives run at the speed of the slowest link.",
    "Compare with your other nodes.",
    "bandwidth",
)
COMM_ALLOCATION: Final = Check(
    "UH867", "comm-allocation", "comm", "device",
    "A rank that cannot use the memory of its device never joins its peers.",
    "Run unhang doctor gpu to see what else uses that device.",
    "device memory",
)
# fmt: on

_ALL: Final = (
    SETTINGS_CONTRADICT,
    SETTING_UNKNOWN,
    SETTING_DEPRECATED,
    RECORDER_SWITCHED_OFF,
    OPEN_FILES_LOW,
    LOCKED_MEMORY_LOW,
    SHM_SMALL,
    CORES_OFF,
    VERSIONS_DIFFER,
    VERSION_KNOWN_BAD,
    PTRACE_RESTRICTED,
    CLOCKS_APART,
    SETTINGS_DIFFER,
    GROUP_STARVED,
    IOMMU_TRANSLATES,
    PROCESSES_LOW,
    HUGE_PAGES_IDLE,
    NODE_SHORT,
    THREADS_MANY,
    INTERFACE_UNWISE,
    INTERFACE_MISSING,
    NAME_UNRESOLVED,
    PORT_BLOCKED,
    WRONG_ANSWER,
    SLOW_LINK,
    MTU_DIFFERS,
    HOST_SILENT,
    PORT_TAKEN,
    GPU_MISSING,
    GPU_MEMORY_LEFT,
    GPU_ECC,
    GPU_XID,
    GPU_THROTTLED,
    NVLINK_DOWN,
    FABRIC_MANAGER,
    PCIE_NARROW,
    P2P_MISSING,
    ACS_ON,
    GPU_MIG,
    GPU_PERSISTENCE,
    COMM_RANKS_MISSING,
    COMM_WRONG_VALUES,
    COMM_STUCK,
    COMM_ISOLATED,
    COMM_SLOW_PAIR,
    COMM_NOT_STARTED,
    COMM_BANDWIDTH,
    COMM_ALLOCATION,
)

CHECKS: Final[dict[str, Check]] = {check.code: check for check in _ALL}
"""All checks by code."""
