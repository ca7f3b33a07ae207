"""Captures the jobs of the NCCL lab: runs them on the fake device, and packs what their ranks dump.

An archive is one case, `<job>-<how>.tar.gz`, with nothing of this machine in it; `truth.json`
beside it says what is right.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.live.neutral import neutral_dump
from lab.nccl.build import Device
from lab.nccl.faults import NcclFault
from lab.truth import TRUTH_FILE, to_json
from unhang.errors import ToolError

HOWS = ("asked", "active", "pipe", "timeout")
"""How the ranks were dumped: by `_dump_nccl_trace`, by it with unfinished calls only, by the pipe,
by the watchdog's time-out."""

JOBS = Path(__file__).parent / "jobs"
_PORTS = range(20_000, 30_000, 200)


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """How jobs are captured.

    Attributes:
        timing: With `TORCH_NCCL_ENABLE_TIMING`.
        timeout_s: Of every group.
        ask_s: How long ranks that have joined may go on before they are asked.
        at_once: Jobs side by side.
    """

    timing: bool = False
    timeout_s: float = 12.0
    ask_s: float = 12.0
    at_once: int = 3


def capture(
    device: Device, faults: Sequence[NcclFault], request: CaptureRequest, folder: Path
) -> None:
    """Run jobs; what their ranks wrote lies in `folder/<job>/<how>`.

    Raises:
        ToolError: The jobs could not be run.
    """
    jobs = [_job(fault, request, folder) for fault in faults]
    port = _PORTS[os.getpid() % len(_PORTS)]
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as place:
        order = Path(place, "request.json")
        order.write_text(json.dumps({"jobs": jobs, "port": port, "at_once": request.at_once}))
        environment = {**os.environ, **device.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(device.python), str(JOBS / "forks.py"), str(order)]
        done = subprocess.run(command, env=environment, cwd=place, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise ToolError(f"The jobs failed with exit code {done.returncode}.")


def _job(fault: NcclFault, request: CaptureRequest, folder: Path) -> dict[str, Any]:
    return {
        "job": "program" if "LAB_PROGRAM" in fault.device else fault.name,
        "folder": str(folder / fault.name),
        "ranks": fault.ranks,
        "answers": fault.dumps,
        "timeout_s": request.timeout_s,
        "ask_s": request.ask_s,
        "timing": request.timing,
        "environment": dict(fault.device),
        "hangs": bool(fault.codes) and fault.shows,
    }


def pack(
    folder: Path, faults: Iterable[NcclFault], into: Path, hows: Sequence[str] = HOWS
) -> dict[str, int]:
    """Pack what was captured: an archive a case, and its truth beside those that are there.

    Returns:
        How many dumps each case has.
    """
    into.mkdir(parents=True, exist_ok=True)
    place, packed = into / TRUTH_FILE, {}
    truths = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    for fault in faults:
        for how in hows:
            files = sorted((folder / fault.name / how).glob("nccl_trace_rank_*"))
            if len(files) < fault.dumps:
                continue
            name = f"{fault.name}-{how}"
            try:
                _archive(into / f"{name}.tar.gz", files)
            except ValueError:  # torch 2.2 writes names that are freed already
                continue
            truths[name] = json.loads(to_json(fault.truth()))
            packed[name] = len(files)
    text = json.dumps(dict(sorted(truths.items())), indent=1) + "\n"
    place.write_text(text, encoding="utf-8")
    return packed


def _archive(path: Path, files: Iterable[Path]) -> None:
    """A gzipped tar without names and owners of this machine; when a dump was written tells."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            data = neutral_dump(file.read_bytes(), JOBS)
            member = tarfile.TarInfo(f"dumps/{file.name}")
            member.size, member.mtime = len(data), file.stat().st_mtime
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))
