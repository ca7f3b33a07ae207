from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import unhang
from lab.live.neutral import neutral_dump, neutral_path
from lab.recorder.torchfile import encode_pickle

JOB = Path("/srv/someone/jobs")


@pytest.mark.parametrize(
    ("path", "neutral"),
    [
        ("/srv/someone/jobs/train.py", "/home/user/job/train.py"),
        (
            "/opt/secret/lib/python3.11/site-packages/torch/distributed/x.py",
            "/usr/lib/python3/site-packages/torch/distributed/x.py",
        ),
        ("/opt/secret/lib/python3.11/threading.py", "/usr/lib/python3/threading.py"),
        ("<frozen runpy>", "<frozen runpy>"),
        (
            str(Path(unhang.__file__).parent / "record" / "calls" / "wrap.py"),
            "/usr/lib/python3/site-packages/unhang/record/calls/wrap.py",
        ),
    ],
)
def test_paths_of_this_machine_become_anybodys(path: str, neutral: str) -> None:
    """What a reader needs stays: base names, and the place within a library."""
    assert neutral_path(path, JOB) == neutral


def test_only_file_names_and_hosts_change() -> None:
    """Everything else of a dump comes out as it went in, shared frames included."""
    frame = {"name": "train", "filename": f"{JOB}/train.py", "line": 3}
    entries = [{"record_id": i, "frames": [frame]} for i in (0, 1)]
    dump = {"version": "2.10", "entries": entries, "unhang": {"host": "gpu17.example", "pid": 7}}
    written = pickle.loads(neutral_dump(encode_pickle(dump), JOB))  # noqa: S301 - made here
    neutral = {"name": "train", "filename": "/home/user/job/train.py", "line": 3}
    assert written == {
        "version": "2.10",
        "entries": [{"record_id": i, "frames": [neutral]} for i in (0, 1)],
        "unhang": {"host": "node01", "pid": 7},
    }
    assert written["entries"][0]["frames"][0] is written["entries"][1]["frames"][0]
