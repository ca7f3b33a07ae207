"""What this run and this job are called, so that several nodes' parts find together.

The job's id must be the same on all of its nodes and another one for every other job; the run's
id tells two wrappers of one job apart. Both end up in file names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from unhang.rankenv import scheduled_job
from unhang.record.contact.runtime_dir import safe_name
from unhang.run.meeting.invitation import option_of, told_torchrun


def job_id(env: Mapping[str, str], command: Sequence[str], told: str = "") -> str:
    """The job's id: what the user says, what scheduler or launcher say, or one of our own."""
    if text := told or scheduled_job(env):
        return safe_name(text)
    if spans_nodes(env, command) and (text := _of_rendezvous(env, command)):
        return safe_name(text)
    if env.get("RANK") and env.get("MASTER_PORT"):
        return safe_name(f"{env.get('MASTER_ADDR', 'local')}-{env['MASTER_PORT']}")
    return safe_name(f"{_name_of(command)}-{time.strftime('%H%M%S')}-{os.getpid()}")


def run_id() -> str:
    """The id of this wrapper: host and process, with its start so that it never comes again."""
    return safe_name(f"{os.uname().nodename}-{os.getpid()}-{time.time_ns() // 1_000_000}")


def spans_nodes(env: Mapping[str, str], command: Sequence[str]) -> bool:
    """Whether the launcher was to use more than one node."""
    return told_torchrun(env, command, "nnodes") not in ("", "1", "1:1")


def _of_rendezvous(env: Mapping[str, str], command: Sequence[str]) -> str:
    """What the launcher's nodes have in common; in pods all jobs may have one port, 29500."""
    for option in ("rdzv-id", "rdzv-endpoint"):
        text = told_torchrun(env, command, option)
        if text and text != "none":
            return text
    port, host = option_of(command, "--master-port"), env.get("PET_MASTER_ADDR", "")
    return port or (f"{host}-{env.get('PET_MASTER_PORT', '')}" if host else "")


def _name_of(command: Sequence[str]) -> str:
    """What people call the job: the script's name, or the program's."""
    scripts = [word for word in command[1:] if word.endswith(".py")]
    word = scripts[0] if scripts else (command[0] if command else "job")
    return word.rsplit("/", 1)[-1].removesuffix(".py")
