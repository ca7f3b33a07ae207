"""What one node says of itself: settings, limits, versions, interfaces, clock."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from unhang.doctor.agents.machine import machine_now
from unhang.room import room_of, text_of
from unhang.surroundings import harmless_environment

SIOCGIFADDR, SIOCGIFMTU, SIOCGIFFLAGS = 0x8915, 0x8921, 0x8913
IFF_UP, IFF_RUNNING = 0x1, 0x40
PACKAGES = ("torch", "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "deepspeed", "accelerate",
            "lightning", "transformers", "megatron-core")  # fmt: skip


def settings() -> dict[str, str]:
    """Variables that matter to distributed jobs; values of secrets are left out."""
    return {name: value[:500] for name, value in harmless_environment(os.environ).items()}


def read(path: str, limit: int = 4096) -> str:
    """Text of a small file, or ""."""
    return text_of(Path(path), limit).strip()


def count_in(path: str) -> int:
    """Number of entries of a directory; 0 where there is none."""
    return sum(1 for _ in Path(path).iterdir()) if Path(path).is_dir() else 0


def limits() -> dict[str, int]:
    """Soft limits; -1 is unlimited. Sizes in bytes."""
    names = {"open_files": resource.RLIMIT_NOFILE, "locked_memory": resource.RLIMIT_MEMLOCK,
             "core": resource.RLIMIT_CORE, "processes": resource.RLIMIT_NPROC}  # fmt: skip
    found = {name: resource.getrlimit(number)[0] for name, number in names.items()}
    try:
        total, _, free = shutil.disk_usage("/dev/shm")  # noqa: S108 - that is its name
    except OSError:
        total = free = 0
    return {**found, "shm": total, "shm_free": free}


def versions() -> dict[str, str]:
    """Versions of what is installed for this Python, and of the driver; no import of torch."""
    found = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
    }
    for name in PACKAGES:
        version = _version(name)
        if version:
            found[name] = version
    driver = re.search(r"Module\s+([\d.]+)", read("/proc/driver/nvidia/version"))
    if driver:
        found["nvidia driver"] = driver.group(1)
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def kind_of(name: str) -> str:
    """Ethernet, infiniband, virtual, loopback or bridge, as far as sysfs tells."""
    base = "/sys/class/net/" + name
    if name == "lo":
        return "loopback"
    if read(base + "/type") == "32":  # ARPHRD_INFINIBAND
        return "infiniband"
    if Path(base, "bridge").is_dir() or re.match(r"(docker|br-|virbr|cni|lxcbr)", name):
        return "bridge"
    if Path(base, "device").exists():
        return "ethernet"
    return "virtual"


def interfaces() -> list[dict[str, Any]]:
    """All interfaces in the kernel's order, with address, state, MTU and speed (Mbit/s).

    The address is the IPv4 one, or else the first of IPv6 that is routed.
    """
    found, sixes = [], routed_sixes()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in sorted(socket.if_nameindex()):
            request = struct.pack("256s", name.encode()[:15])
            flags = _ask(probe, SIOCGIFFLAGS, request)
            address = _ask(probe, SIOCGIFADDR, request)
            mtu = _ask(probe, SIOCGIFMTU, request)
            state = struct.unpack_from("H", flags, 16)[0] if flags else 0
            speed = read("/sys/class/net/" + name + "/speed")
            found.append({
                "name": name,
                "address": socket.inet_ntoa(address[20:24]) if address else sixes.get(name, ""),
                "up": bool(state & IFF_UP) and bool(state & IFF_RUNNING),
                "mtu": struct.unpack_from("i", mtu, 16)[0] if mtu else 0,
                "speed": int(speed) if speed.isdigit() else 0,
                "kind": kind_of(name),
            })  # fmt: skip
    return found


def routed_sixes() -> dict[str, str]:
    """The first IPv6 address of each interface that is neither link-local nor the loopback's.

    A line of the kernel's table is: address, index, prefix length, scope, flags, name.
    """
    found: dict[str, str] = {}
    for line in read("/proc/net/if_inet6", 1 << 16).splitlines():
        words = line.split()
        if len(words) == 6 and words[3] == "00":  # noqa: PLR2004 - its columns
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
            found.setdefault(words[5], address)
    return found


def _ask(probe: socket.socket, request: int, data: bytes) -> bytes:
    try:
        return fcntl.ioctl(probe.fileno(), request, data)
    except OSError:
        return b""


def resolved(name: str) -> dict[str, Any]:
    """Addresses of a name on this node (IPv6 where it has no other), or the error's text."""
    if not name:
        return {"addresses": [], "error": ""}
    try:
        told = socket.getaddrinfo(name, None)
    except OSError as error:
        return {"addresses": [], "error": str(error)}
    found = {str(info[4][0]) for info in told if info[0] == socket.AF_INET}
    return {"addresses": sorted(found or {str(info[4][0]) for info in told}), "error": ""}


def datagrams(address: str) -> socket.socket:
    """A socket of the address' family, through which nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM)


def first_of_ours(addresses: list[str]) -> str:
    """The first of these addresses that this node has, as torch tries it: by binding it."""
    for address in addresses:
        with datagrams(address) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return address
    return ""


def route_to(addresses: list[str]) -> dict[str, str]:
    """The address from which the kernel would send to the first of these; nothing is sent."""
    for address in addresses[:1]:
        with datagrams(address) as probe:
            try:
                probe.connect((address, 9))
                return {"to": address, "source": probe.getsockname()[0]}
            except OSError:
                break
    return {"to": "", "source": ""}


def machine() -> str:
    """The same for two names of one machine with one network, and only then."""
    boot = read("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return boot


def bad_kernel_lines() -> list[str]:
    """Lines of the kernel's log about GPUs and the out-of-memory killer, newest last."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, timeout=5, check=False)  # noqa: S607 - by PATH, as a user
    except (OSError, subprocess.SubprocessError):
        return []
    wanted = re.compile(
        r"NVRM: Xid|Out of memory: Killed|oom-kill|mlx5.*(error|failed)|AER:.*error"
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [line[:300] for line in lines if wanted.search(line)][-20:]


def iommu_types() -> list[str]:
    """How the IOMMU treats devices: "DMA" and "DMA-FQ" translate, "identity" passes through."""
    groups = Path("/sys/kernel/iommu_groups").glob("*/type")
    return sorted({read(str(path), 32) for path in groups})


def kernel_options() -> list[str]:
    """What the kernel's command line says about the IOMMU and PCIe."""
    words = read("/proc/cmdline").split()
    return [word[:80] for word in words if "iommu" in word or word.startswith("pci=")]


def examine(order: dict[str, Any]) -> dict[str, Any]:
    """All facts of this node."""
    del order
    host = socket.gethostname()
    own, master = resolved(host), resolved(os.environ.get("MASTER_ADDR", ""))
    return {
        "host": host,
        "machine": machine(),
        "time_ns": time.time_ns(),
        "settings": settings(),
        "limits": limits(),
        "versions": versions(),
        "interfaces": interfaces(),
        "own_name": own,
        "own_address": first_of_ours(own["addresses"]),
        "master": master,
        "route": route_to(master["addresses"]),
        "ptrace_scope": read("/proc/sys/kernel/yama/ptrace_scope"),
        "core_pattern": read("/proc/sys/kernel/core_pattern"),
        "numa_balancing": read("/proc/sys/kernel/numa_balancing"),
        "gpus": count_in("/proc/driver/nvidia/gpus"),
        "rdma": count_in("/sys/class/infiniband"),
        "iommu_groups": count_in("/sys/kernel/iommu_groups"),
        "iommu_types": iommu_types(),
        "kernel_options": kernel_options(),
        "room": asdict(room_of("self")),
        "node": asdict(machine_now()),
        "dmesg": bad_kernel_lines(),
    }  # fmt: skip
