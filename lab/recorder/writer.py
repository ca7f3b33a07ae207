"""Write a simulated job's files into a directory, as torch would have, some lost or cut.

The files exist only through `torchfile`, so that readers meet the bytes that torch writes.
"""

from __future__ import annotations

from pathlib import Path

from lab.recorder.recorder import Recorder
from lab.recorder.recording import FILE_NAMES, Recording
from lab.recorder.torchfile import encode_json, encode_pickle
from lab.simulate.engine import Outcome


def write_dumps(outcome: Outcome, recording: Recording, seed: int, folder: Path) -> int:
    """Write one file per rank and recorder.

    A job with one recorder has its files directly in the folder; one with several has a folder per
    backend; fault-tolerant replicas have a folder each, and count their ranks from 0.

    Args:
        outcome: The job that ran.
        recording: How it was recorded.
        seed: For clocks and watchdogs.
        folder: Made if it is not there.

    Returns:
        Bytes written.
    """
    recorder = Recorder(outcome, recording, seed)
    written = 0
    for rank in range(outcome.plan.world_size):
        if rank in recording.missing:
            continue
        backends = recorder.backends(rank)
        for backend in backends:
            place = _place(recorder, rank, backend if len(backends) > 1 else "")
            path = folder / place / _file_name(recorder, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            data = _data(recorder, rank, backend)
            path.write_bytes(data)
            written += len(data)
    return written


def _place(recorder: Recorder, rank: int, backend: str) -> str:
    size = recorder.outcome.plan.replica_size
    replica = f"replica_{rank // size}" if size else ""
    return "/".join(part for part in (replica, backend) if part)


def _file_name(recorder: Recorder, rank: int) -> str:
    size = recorder.outcome.plan.replica_size
    pattern = FILE_NAMES[recorder.recording.names]
    return pattern.format(
        rank=rank % size if size else rank, host=f"node{recorder.host(rank) + 1:02d}"
    )


def _data(recorder: Recorder, rank: int, backend: str) -> bytes:
    recording = recorder.recording
    if rank in recording.empty:
        return b""
    dump = recorder.dump(rank, backend)
    as_json = recording.json and recording.version != "list"
    data = encode_json(dump) if as_json else encode_pickle(dump)
    return data[: len(data) * 3 // 5] if rank in recording.truncated else data
