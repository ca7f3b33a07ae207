"""Why a sampler may not look at a process, and the command that solves it.

Samplers say "Operation not permitted" for half a dozen reasons. This module finds out which, from
/proc alone, and refuses to change anything by itself.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from unhang.collect.processes import Process

_CAP_SYS_PTRACE = 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_NOBODY = 3


class Refusal(NamedTuple):
    """Why it may not, and what to do."""

    reason: str
    hint: str


def refusal(
    process: Process,
    uid: int | None = None,
    proc: Path = Path("/proc"),
    *,
    again: str = "",
) -> Refusal:
    """Explain why this user cannot trace a process.

    Args:
        process: The one that refused.
        uid: Who asks; by default this process's user.
        proc: Where /proc is.
        again: The command to try again; by default the look at its stacks.
    """
    me = os.geteuid() if uid is None else uid
    again = again or f"unhang stacks --pid {process.pid}"
    scope = _yama()
    if process.tracer:
        return Refusal(
            f"process {process.pid} is already traced by process {process.tracer}",
            f"Detach that debugger first, or end it: kill {process.tracer}",
        )
    if scope == _NOBODY:
        return Refusal(
            "this kernel forbids tracing altogether (kernel.yama.ptrace_scope is 3)",
            "It can only be undone by a reboot; use the recorder's own dumps (unhang run).",
        )
    if me and process.uid not in (-1, me):
        owner = _user(process.uid)
        return Refusal(
            f"process {process.pid} belongs to user {owner}",
            f"Run it as that user or as root: sudo {again}",
        )
    if not _may_trace(proc):
        if me == 0 or _in_container(proc):
            return Refusal(
                "this container lacks the capability SYS_PTRACE",
                "Start it with: docker run --cap-add SYS_PTRACE … (Kubernetes: "
                "securityContext.capabilities.add: [SYS_PTRACE]); or look from the host.",
            )
        if scope:
            return Refusal(
                "this kernel lets a user trace only their own children "
                f"(kernel.yama.ptrace_scope is {scope})",
                f"As root: sudo {again}; or once for this machine: "
                "sudo sysctl -w kernel.yama.ptrace_scope=0",
            )
    return Refusal(
        f"the kernel does not let this user trace process {process.pid} "
        "(another user namespace, a security module, or a program that forbids it)",
        f"Try on the host itself: {again}" if me == 0 else f"Try as root on the host: sudo {again}",
    )


def _yama() -> int:
    try:
        return int(_YAMA.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def _may_trace(proc: Path) -> bool:
    """Whether this process has CAP_SYS_PTRACE in force."""
    try:
        status = (proc / "self" / "status").read_text(encoding="ascii", errors="replace")
        line = next(text for text in status.splitlines() if text.startswith("CapEff:"))
        return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    except (OSError, StopIteration, IndexError, ValueError):
        return False


def _in_container(proc: Path) -> bool:
    root = proc / "1" / "root"
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return (
        any(mark.exists() for mark in marks)
        or "KUBERNETES_SERVICE_HOST" in os.environ
        or (root.exists() and (root / ".dockerenv").exists())
    )
