"""What surrounds the ranks of a node: process state, versions, GPUs, kernel log, network, disks.

Every program is bounded in time and output; one that is absent is simply not there. The kernel log
is cut to lines about GPUs, memory and machine checks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang.collect.ranks import Target
from unhang.rasclient import DEFAULT_ADDRESS, ask_about
from unhang.room import text_of
from unhang.surroundings import describe_node, harmless_environment

PROGRAM_S = 10.0
MAX_TEXT = 4 << 20
MAX_ENVIRON = 1 << 20
_MOST_ADDRESSES = 4

_COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvidia-smi.txt", ("nvidia-smi", "-q")),
    ("nvidia-topology.txt", ("nvidia-smi", "topo", "-m")),
    ("rocm-smi.txt", ("rocm-smi", "--showallinfo")),
    ("network.txt", ("ip", "-s", "addr")),
    ("infiniband.txt", ("ibstat",)),
    ("disks.txt", ("df", "-h", "-x", "tmpfs", "-x", "devtmpfs")),
)
_KERNEL = re.compile(
    r"xid|nvrm|nvidia|amdgpu|out of memory|oom|killed process|mce|machine check|hardware error|"
    r"hung task|blocked for more than|i/o error|nfs|lustre|mlx5|link is (down|up)",
    re.IGNORECASE,
)
_TORCH = re.compile(r"(/\S.*/torch)/lib/libtorch[\w.]*\.so")
_VERSION = re.compile(r"__version__\s*=\s*'([^']+)'")


def take_system(targets: Sequence[Target]) -> dict[str, bytes]:
    """Files that describe this node, by name."""
    files = dict(_outputs())
    if kernel := _kernel_log():
        files["kernel.txt"] = kernel
    torch = next((version for target in targets if (version := _torch(target))), "")
    node = describe_node({}, torch, next(filter(None, map(_folder, targets)), ""))
    node["nccl"] = sorted({v for target in targets for v in _nccl(target)})
    driver = Path("/proc/driver/nvidia/version")
    node["driver"] = text_of(driver).splitlines()[:1]
    files["node.json"] = _json(node)
    return files


def describe_ranks(targets: Sequence[Target]) -> bytes:
    """State, limits and harmless environment of each rank, as JSON by rank."""
    return _json({str(target.rank): _process(target) for target in targets})


def _process(target: Target) -> dict[str, object]:
    folder = Path(f"/proc/{target.process.pid}")
    environ: dict[str, str] = {}
    with contextlib.suppress(OSError), (folder / "environ").open("rb") as file:
        words = file.read(MAX_ENVIRON).decode("utf-8", "replace").split("\0")
        environ = dict(word.split("=", 1) for word in words if "=" in word)
    return {
        "pid": target.process.pid,
        "command": target.process.command.split(),
        "status": _fields(text_of(folder / "status")),
        "limits": text_of(folder / "limits").splitlines(),
        "wait_channel": target.process.wait_channel,
        "kernel_stack": text_of(folder / "stack").splitlines(),
        "cgroup": text_of(folder / "cgroup").splitlines(),
        "oom_score": text_of(folder / "oom_score").strip(),
        "open_files": _count(folder / "fd"),
        "environment": harmless_environment(environ),
    }


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def _count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return -1


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()


def _outputs() -> Iterator[tuple[str, bytes]]:
    for name, command in _COMMANDS:
        if output := _run(command):
            yield name, output


def _run(command: Sequence[str]) -> bytes:
    program = shutil.which(command[0]) or shutil.which(command[0], path="/usr/sbin:/sbin")
    if program is None:
        return b""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed list of programs
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROGRAM_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {PROGRAM_S:g} s\n".encode()
    except OSError as error:
        return f"{command[0]}: {error.strerror}\n".encode()
    return (done.stdout + done.stderr)[:MAX_TEXT]


def _kernel_log() -> bytes:
    text = _run(("dmesg", "--ctime")).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if _KERNEL.search(line) or "dmesg:" in line]
    return "".join(f"{line}\n" for line in lines[-2_000:]).encode()


def take_ras(targets: Sequence[Target]) -> list[bytes]:
    """What NCCL's RAS tells of these ranks: by default, and where they were told to listen."""
    pids = {target.process.pid for target in targets}
    answers = (ask_about(pids, address) for address in _ras_addresses(targets))
    return [answer.encode() for answer in answers if answer]


def _ras_addresses(targets: Sequence[Target]) -> list[str]:
    """Where NCCL's RAS listens: where the ranks were told to by NCCL_RAS_ADDR, and by default."""
    found = [DEFAULT_ADDRESS]
    for target in targets:
        host, _, port = (target.process.environ or {}).get("NCCL_RAS_ADDR", "").rpartition(":")
        if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16:
            found.append(f"{host or 'localhost'}:{int(port)}")
    return list(dict.fromkeys(found))[:_MOST_ADDRESSES]


def _torch_folder(target: Target) -> Path | None:
    found = _TORCH.search(text_of(Path(f"/proc/{target.process.pid}/maps")))
    return Path(found[1]) if found else None


def _torch(target: Target) -> str:
    """Version of the torch that a rank has loaded, read from its files, not imported."""
    folder = _torch_folder(target)
    found = _VERSION.search(text_of(folder / "version.py")) if folder else None
    return found[1] if found else ""


def _folder(target: Target) -> str:
    """Where a rank works; "" where that may not be looked at."""
    try:
        return os.readlink(f"/proc/{target.process.pid}/cwd")  # noqa: PTH115 - as a text
    except OSError:
        return ""


def _nccl(target: Target) -> list[str]:
    folder = _torch_folder(target)
    if folder is None:
        return []
    try:
        return [
            path.name.removesuffix(".dist-info")
            for path in folder.parent.glob("nvidia_nccl*.dist-info")
        ]
    except OSError:
        return []
