"""The environment of the child: the recorder's settings under every name that its torch reads.

torch's version comes from the metadata of the installed package in the interpreter that the
command will use; torch is never imported and no process is started for it. What the user has
set, under any name that torch knows for it, stays as it is, and is set under the other name too:
parts of one torch read different names (the dump pipe of 2.9 to 2.11 only the older one). Where the
newer name does, the older one that we have set is taken back (`unhang.torchenv`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from unhang.errors import UsageError
from unhang.run.child.ranklogs import rank_log_settings
from unhang.torchenv import (
    BUFFER_SIZE,
    CPP_STACK,
    OLDER_NAMES,
    ON_TIMEOUT,
    SETTINGS,
    TEMP_FILE,
    WAIT_TIMEOUT,
    can_go,
    release_of,
)

RECORDER_SINCE = (2, 2)
"""The first torch whose recorder can be asked for its entries from Python."""

DEFAULT_BUFFER_SIZE = 2000

BLOCKING = (
    ("CUDA_LAUNCH_BLOCKING", "1"),
    ("HIP_LAUNCH_BLOCKING", "1"),
    ("AMD_SERIALIZE_KERNEL", "3"),
    ("TORCH_SHOW_CPP_STACKTRACES", "1"),
)
"""What makes errors of kernels appear at the call that causes them."""

BLOCKING_HANGS = ((1, 13), (2, 1))
"""Torch versions, first and first good, whose NCCL (2.13 to 2.16) deadlocks when launches block.

NVIDIA/nccl#750, mended by NVIDIA/nccl#774.
"""


class Options(NamedTuple):
    """What the command line says about recording.

    Attributes:
        arm: Put our recorder into every process of the job.
        buffer_size: Entries that torch's and our own ring keep; 0 for the default of each.
        timing: Ask NCCL for start events and durations (a few device events a call).
        rank_logs: Let launchers prefix the lines of each rank.
        log_place: Where torchrun keeps a log of each rank; "" for nowhere.
        blocking: Let every kernel launch wait for its end, so that errors show where they happen.
        symbolize: Record C++ frames of each call too, and find their names this way; "" for none.
        gpus: Which GPUs the job sees: "none", "one" (the first of those that it would), or "" for
            all of them.
    """

    arm: bool = True
    buffer_size: int = 0
    timing: bool = False
    rank_logs: bool = True
    log_place: str = ""
    blocking: bool = False
    symbolize: str = ""
    gpus: str = ""


class PlannedVariable(NamedTuple):
    """One variable of the plan: its name, its value, and whether the user had set it already.

    Attributes:
        kept_as: The user's "NAME=value" that stands in its place, or "".
    """

    name: str
    value: str
    kept_as: str = ""


class EnvironmentPlan(NamedTuple):
    """What will be set for the child, and what there is to say about it."""

    settings: tuple[PlannedVariable, ...]
    torch: str
    remarks: tuple[str, ...] = ()
    log_place: str = ""

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return `env` with the plan's variables added."""
        added = {s.name: s.value for s in self.settings if not s.kept_as}
        return {**env, **added}


# ------------------------------------------------------------------ which torch


def interpreter_of(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Path of the Python that `command` will run under, or "" where nothing tells.

    Either the command is a Python itself, or a script whose first line names one.
    """
    path = _which(command[0], env.get("PATH", os.defpath)) if command else ""
    if not path:
        return ""
    if re.fullmatch(r"python(\d(\.\d+)?t?)?", os.path.basename(path)):  # noqa: PTH119 - pathlib is slow
        return path
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - pathlib would cost start-up time
            head = stream.read(256)
    except OSError:
        return ""
    match = re.match(rb"#!\s*(\S+)(?:\s+(?:-S\s+)?(\S+))?", head)
    if not match:
        return ""
    words = [word.decode("utf-8", "replace") for word in match.groups() if word]
    if words[0].endswith("/env") and len(words) > 1:
        return interpreter_of(words[1:], env) if "python" in words[1] else ""
    return words[0] if "python" in words[0] else ""


def _which(name: str, path: str) -> str:
    if "/" in name:
        return name if os.access(name, os.X_OK) else ""
    for folder in path.split(os.pathsep):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):  # noqa: PTH113 - as above
            return candidate
    return ""


def site_directories(interpreter: str, env: Mapping[str, str]) -> list[str]:
    """Where packages of `interpreter` may be: PYTHONPATH, then its site directories."""
    found = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if not interpreter:
        return found
    places = [interpreter, os.path.realpath(interpreter)]
    for prefix in dict.fromkeys(os.path.dirname(os.path.dirname(p)) for p in places):  # noqa: PTH120
        for library in ("lib", "lib64", "local/lib"):
            base = f"{prefix}/{library}"
            versions = [name for name in _names(base) if re.fullmatch(r"python3(\.\d+t?)?", name)]
            for version in versions:
                found += [f"{base}/{version}/site-packages", f"{base}/{version}/dist-packages"]
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - pathlib would cost start-up time
    except OSError:
        return []


def torch_version(folders: Iterable[str]) -> str:
    """Version of the first torch that is installed in one of `folders`, or ""."""
    for folder in folders:
        for name in _names(folder):
            match = re.fullmatch(r"torch-([\w.+!]+)\.(?:dist|egg)-info", name)
            if match:
                return match.group(1)
        built = _version_file(f"{folder}/torch/version.py")
        if built:
            return built
    return ""


def _version_file(path: str) -> str:
    """Version of a torch that was built in place and has no metadata."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - as above
            match = re.search(r"__version__\s*=\s*['\"]([\w.+]+)", stream.read(4096))
    except OSError:
        return ""
    return match.group(1) if match else ""


# ------------------------------------------------------------------ what to set


_ONLY_MIRRORED = (CPP_STACK, WAIT_TIMEOUT)
"""What is set only where the user has set it, under one of its names."""


def _torch_settings(
    env: Mapping[str, str], staging: str, options: Options
) -> list[tuple[tuple[str, ...], str]]:
    """Each variable of torch's recorder: all its names, and its value."""
    size = str(options.buffer_size or DEFAULT_BUFFER_SIZE)
    named: list[tuple[tuple[str, ...], str]] = [
        (BUFFER_SIZE[:2], size),
        (TEMP_FILE[:2], f"{staging}/nccl/rank_"),
        (ON_TIMEOUT[:2], "1"),
        (("TORCH_INCLUDE_STACK_TRACE",), "1"),
        (("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",), f"{staging}/pipe_"),
    ]
    if options.symbolize:
        named += [(CPP_STACK[:2], "1"), (("TORCH_SYMBOLIZE_MODE",), options.symbolize)]
    given = [each[:2] for each in _ONLY_MIRRORED if any(name in env for name in each[:2])]
    named += [(names, "") for names in given if (names, "1") not in named]
    if options.blocking:
        named += [((name,), value) for name, value in BLOCKING]
    if options.timing:
        named.append((("TORCH_NCCL_ENABLE_TIMING",), "1"))
    return named


def _our_settings(
    staging: str, run_id: str, job_id: str, options: Options
) -> list[tuple[tuple[str, ...], str]]:
    named: list[tuple[tuple[str, ...], str]] = [
        (("UNHANG_ARM",), "1"),
        (("UNHANG_JOB",), job_id),
        (("UNHANG_DIR",), staging),
        (("UNHANG_RUN",), run_id),
    ]
    if options.buffer_size:
        named.append((("UNHANG_BUFFER_SIZE",), str(options.buffer_size)))
    return named


def plan_environment(
    env: Mapping[str, str],
    command: Sequence[str],
    *,
    staging: str,
    run_id: str,
    job_id: str,
    options: Options,
) -> EnvironmentPlan:
    """Plan the variables of the child.

    Args:
        env: The environment that it would have without us; nothing in it is overridden.
        command: The command, to find its interpreter and its torch.
        staging: Directory for the dumps that processes write by themselves.
        run_id: Tells processes of this run from others of the same job.
        job_id: The job's id, the same on all nodes.
        options: What the command line says about recording.

    Raises:
        UsageError: Blocking launches are asked for of a torch whose NCCL cannot stand them.
    """
    version = torch_version(site_directories(interpreter_of(command, env), env))
    numbers = release_of(version)
    many = options.blocking and not options.gpus  # NCCL with a single rank waits for none
    if many and numbers and BLOCKING_HANGS[0] <= numbers < BLOCKING_HANGS[1]:
        raise UsageError(
            f"torch {version} brings an NCCL that deadlocks when kernel launches block",
            "Use torch 2.1 or later with --blocking, or add --one-gpu.",
        )
    named = _torch_settings(env, staging, options)
    if options.arm:
        named += _our_settings(staging, run_id, job_id, options)
    if options.rank_logs:
        logs = rank_log_settings(command, options.log_place)
        named += [((name,), value) for name, value in logs]
    settings = [setting for names, value in named for setting in _settings(env, names, value)]
    settings = _older_names(settings, env, version, armed=options.arm)
    settings += _visible(env, options.gpus)
    if options.arm:
        settings.append(_python_path(env))
    remarks = tuple(_remarks(version, numbers, command))
    return EnvironmentPlan(tuple(settings), version, remarks, options.log_place)


def _settings(
    env: Mapping[str, str], names: tuple[str, ...], value: str
) -> Iterable[PlannedVariable]:
    """One variable under all its names; the user's value, where there is one, for all of them."""
    value = next((env[name] for name in names if name in env), value)
    for name in names:
        yield PlannedVariable(name, value, kept_as=f"{name}={env[name]}" if name in env else "")


def _older_names(
    settings: list[PlannedVariable], env: Mapping[str, str], version: str, *, armed: bool
) -> list[PlannedVariable]:
    """Keep the older names that we set from where they would only make torch complain.

    An armed process takes them back itself, which knows for sure what torch it has; so it learns
    which of them are ours. Of others nothing tells but the torch next to the command.
    """
    older = {each.older for each in SETTINGS}
    ours = [each.name for each in settings if each.name in older and not each.kept_as]
    if armed:
        ours += env.get(OLDER_NAMES, "").split(",")  # of a run around this one
        return [*settings, PlannedVariable(OLDER_NAMES, ",".join(filter(None, ours)))]
    without = can_go(version)
    return [each for each in settings if not (each.name in ours and each.name in without)]


def _python_path(env: Mapping[str, str]) -> PlannedVariable:
    from unhang.record import HOOK_DIR

    rest = env.get("PYTHONPATH", "")
    return PlannedVariable("PYTHONPATH", f"{HOOK_DIR}{os.pathsep}{rest}" if rest else str(HOOK_DIR))


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def _visible(env: Mapping[str, str], gpus: str) -> Iterable[PlannedVariable]:
    """What hides GPUs: asked for by name, so it takes the place of what the user has set."""
    if gpus == "none":
        yield from (PlannedVariable(name, "") for name in _VISIBLE)
    elif gpus == "one":
        told = next((env[name] for name in _VISIBLE if env.get(name)), "0").split(",")[0]
        yield from (PlannedVariable(name, told) for name in _VISIBLE)


def _remarks(
    version: str, numbers: tuple[int, int] | None, command: Sequence[str]
) -> Iterable[str]:
    if not version:
        yield (
            "found no torch in this command's environment: without torch, unhang records nothing "
            "and just runs the command"
        )
    elif numbers and numbers < RECORDER_SINCE:
        yield (
            f"torch {version} has no recorder: unhang uses its own full recorder, and stacks from "
            "outside"
        )
    options = [word for word in command[1:3] if re.fullmatch(r"-[a-zA-Z]*[EIS][a-zA-Z]*", word)]
    if options and "python" in os.path.basename(command[0]):  # noqa: PTH119 - as above
        yield (
            f"python {options[0]} skips the startup hook: unhang only samples its processes from "
            "outside, unless the script calls unhang.arm()"
        )
