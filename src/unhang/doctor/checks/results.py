"""What a check found, and the catalogue of checks with their codes.

A code belongs to one check for ever. `explain` and the docs read this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from unhang.report import Subject

__all__ = ["CHECKS", "Check", "CheckResult", "Level", "check_of", "host_subject"]

Level: TypeAlias = Literal["ok", "info", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is checked.

    Attributes:
        why: Why it matters to a distributed job, one sentence.
        action: What to do when it fails, one sentence.
    """

    code: str
    slug: str
    part: Literal["env", "net", "gpu", "comm"]
    why: str
    action: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check saw.

    Attributes:
        code: The check's code.
        seen: What was seen, one sentence.
        evidence: Details, one sentence each.
        action: Overrides the check's own advice where more is known.
    """

    code: str
    level: Level
    seen: str
    subjects: tuple[Subject, ...] = ()
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    action: str = ""
    confidence: Literal["high", "medium", "low"] = "high"


_ALL: Final = (
    Check("UH801", "settings-contradict", "env",
          "Two settings that exclude each other make one of them silently ignored.",
          "Keep the one that you mean and unset the other."),
    Check("UH802", "setting-unknown", "env",
          "A misspelt variable has no effect, and nothing says so.",
          "Correct the name, or unset it."),
    Check("UH803", "setting-deprecated", "env",
          "An old name works until the next version drops it.",
          "Use the new name."),
    Check("UH804", "recorder-switched-off", "env",
          "Without the Flight Recorder a hang leaves nothing to read.",
          "Unset the variable, set it to 2000, or start the job with unhang run."),
    Check("UH805", "open-files-low", "env",
          "NCCL opens many sockets and files per peer; a low limit ends in 'Too many open files'.",
          "ulimit -n 65536 in the shell that launches."),
    Check("UH806", "locked-memory-low", "env",
          "RDMA registers memory as locked; a low limit fails at start-up.",
          "ulimit -l unlimited in the shell that launches."),
    Check("UH807", "shm-small", "env",
          "NCCL and data loaders pass data through /dev/shm.",
          "Enlarge it: docker --shm-size=16g, or an emptyDir of medium Memory."),
    Check("UH808", "cores-off", "env",
          "A crash in C leaves no core file to look into.",
          "ulimit -c unlimited and a core_pattern that writes to a disk with room."),
    Check("UH809", "versions-differ", "env",
          "Ranks with different libraries may disagree about protocols and shapes.",
          "Use one environment on all nodes."),
    Check("UH810", "version-known-bad", "env",
          "This version has a known fault that hangs or crashes jobs.",
          "Update it."),
    Check("UH811", "ptrace-restricted", "env",
          "Stacks of running ranks cannot be read from outside.",
          "sysctl kernel.yama.ptrace_scope=0, or --cap-add=SYS_PTRACE for a container."),
    Check("UH812", "clocks-apart", "env",
          "Stamps of different nodes cannot be compared.",
          "Let chrony or ntpd run on all nodes."),
    Check("UH813", "settings-differ", "env",
          "Ranks with different communication settings may choose different transports.",
          "Set it alike on all nodes, or nowhere."),
    Check("UH820", "interface-unwise", "net",
          "NCCL or Gloo would advertise an address that its peers cannot use.",
          "Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface between the nodes."),
    Check("UH821", "interface-missing", "net",
          "An interface that a setting names is not there, is down, or has no address.",
          "Correct NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME on that host."),
    Check("UH822", "name-unresolved", "net",
          "A rank that cannot resolve the master's name never joins.",
          "Mend /etc/hosts or DNS, or use an address."),
    Check("UH823", "port-blocked", "net",
          "Ranks cannot connect where they must: the job hangs at its start.",
          "Open the port in the firewall of that host, or choose another one."),
    Check("UH824", "wrong-answer", "net",
          "Something else answers where a rank is expected.",
          "Compare addresses and /etc/hosts; end the program that has the port."),
    Check("UH825", "slow-link", "net",
          "One slow pair slows every collective down to its speed.",
          "Check cable, port counters, duplex and drops of that pair."),
    Check("UH826", "mtu-differs", "net",
          "Large packets vanish between nodes whose MTU differs: small messages pass, then a hang.",
          "Use one MTU on all interfaces of that network, switches included."),
    Check("UH827", "host-silent", "net",
          "A node on which nothing can be started cannot take part.",
          "Log in to it by hand with the same command."),
    Check("UH828", "port-taken", "net",
          "The master port is in use already.",
          "ss -ltnp shows who has it; end it or choose another port."),
    Check("UH840", "gpu-missing", "gpu",
          "Fewer GPUs than expected are visible.",
          "nvidia-smi -L or amd-smi list on that host; check CUDA_VISIBLE_DEVICES and dmesg."),
    Check("UH841", "gpu-memory-left", "gpu",
          "Memory that a dead process left, or another job, leaves too little for this one.",
          "nvidia-smi or amd-smi process shows the owner; end it or reset the GPU."),
    Check("UH842", "gpu-ecc", "gpu",
          "Uncorrectable memory errors end the process that meets them.",
          "Drain the node and reset the GPU; replace it if rows cannot be remapped."),
    Check("UH843", "gpu-xid", "gpu",
          "The driver reported a fault of a GPU.",
          "Look the number up in NVIDIA's Xid table; drain the node for hardware faults."),
    Check("UH844", "gpu-throttled", "gpu",
          "A slow GPU makes its rank arrive last in every collective.",
          "Check temperature and power; nvidia-smi -q -d PERFORMANCE, amd-smi metric --throttle."),
    Check("UH845", "nvlink-down", "gpu",
          "Traffic takes a slower way, or fails.",
          "nvidia-smi nvlink -s or amd-smi xgmi -l; reset the GPUs or the node."),
    Check("UH846", "fabric-manager", "gpu",
          "Without its fabric manager an NVSwitch machine cannot start NCCL.",
          "systemctl start nvidia-fabricmanager, in the driver's version."),
    Check("UH847", "pcie-narrow", "gpu",
          "A link that is narrower or slower than the card's slows every transfer.",
          "Reseat the card; check BIOS settings."),
    Check("UH848", "p2p-missing", "gpu",
          "GPUs that cannot reach each other directly go through host memory.",
          "Check IOMMU and ACS, and that all GPUs are visible to each process."),
    Check("UH849", "acs-on", "gpu",
          "PCIe access control sends GPU traffic through the root: P2P is slow or hangs.",
          "Switch ACS off in the BIOS or with setpci; iommu=pt."),
    Check("UH851", "gpu-mig", "gpu",
          "NCCL cannot join MIG slices of one GPU as if they were GPUs.",
          "nvidia-smi -mig 0, or one rank per GPU."),
    Check("UH852", "gpu-persistence", "gpu",
          "Without persistence mode the first use of each GPU takes seconds.",
          "nvidia-smi -pm 1."),
    Check("UH860", "comm-ranks-missing", "comm",
          "Ranks that did not arrive hold up all others.",
          "Look at these ranks' hosts: unhang stacks, unhang doctor net."),
    Check("UH861", "comm-wrong-values", "comm",
          "A collective gave wrong numbers: memory, link or library are broken.",
          "Isolate the rank; run the GPU's diagnostics."),
    Check("UH862", "comm-stuck", "comm",
          "All ranks are in the call and it does not finish: transport, GPU or library.",
          "Swap the transport as shown, then check the link that is left."),
    Check("UH863", "comm-isolated", "comm",
          "What is left as the only explanation after halving.",
          "Take it out, or change the setting that makes it work."),
    Check("UH864", "comm-slow-pair", "comm",
          "One slow pair slows every collective down to its speed.",
          "Check the link between the two."),
    Check("UH865", "comm-not-started", "comm",
          "The test's own ranks could not be started.",
          "Read the ranks' output below."),
    Check("UH866", "comm-bandwidth", "comm",
          "Collectives run at the speed of the slowest link.",
          "Compare with your other nodes."),
    Check("UH867", "comm-allocation", "comm",
          "A rank that cannot use its own device's memory never joins the others.",
          "See what else is on that device: unhang doctor gpu."),
)  # fmt: skip

CHECKS: Final[dict[str, Check]] = {check.code: check for check in _ALL}


def host_subject(name: str) -> tuple[Subject, ...]:
    """A host as what a result is about."""
    return (Subject("host", name, host=name),)


def check_of(code: str) -> Check | None:
    """The check of a code such as "UH823", or None."""
    return CHECKS.get(code)
