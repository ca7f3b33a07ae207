"""`unhang core` on real core files: a crash in C, an abort, a spinning rank, one blocked in read.

gdb writes the cores (its own Debian package), so that the kernel's core_pattern does not matter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guide_page import on_the_page
from valid_reports import report_in

pytestmark = [
    pytest.mark.debian,
    pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed"),
]

HUNG = Path(__file__).parents[2] / "examples" / "never-joined"
VICTIM = """\
import ctypes, os, sys

def read_storage(path):
    with open(path, "rb", buffering=0) as stream:
        return stream.read(1)

def spin():
    count = 0
    while True:
        count += 1

def crash_in_c():
    ctypes.string_at(0)

mode, ready, *rest = sys.argv[1:]
with open(ready, "w") as stream:
    stream.write("ready")
if mode == "crash":
    crash_in_c()
elif mode == "abort":
    os.abort()
elif mode == "read":
    read_storage(rest[0])
else:
    spin()
"""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that gets into trouble."""
    path = tmp_path_factory.mktemp("victim") / "train.py"
    path.write_text(VICTIM)
    return path


def environment(rank: int) -> dict[str, str]:
    """What a launcher gives a rank."""
    return {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4"}


def core_of_a_death(victim: Path, mode: str, rank: int) -> Path:
    """Let the victim die under gdb and keep its core."""
    core = victim.with_name(f"{mode}.core")
    subprocess.run(
        ["gdb", "-batch", "-nx", "-ex", "run", "-ex", f"generate-core-file {core}", "--args",
         sys.executable, str(victim), mode, str(victim.with_name(f"{mode}.ready"))],
        env=environment(rank), capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert core.exists()
    return core


def core_of_the_living(victim: Path, mode: str, rank: int) -> Path:
    """Take a core of the victim while it stands where it stands."""
    core, ready = victim.with_name(f"{mode}.core"), victim.with_name(f"{mode}.fifo")
    storage = victim.with_name("storage")
    os.mkfifo(ready)
    if not storage.exists():
        os.mkfifo(storage)
    command = [sys.executable, str(victim), mode, str(ready), str(storage)]
    with subprocess.Popen(command, env=environment(rank)) as process:
        try:
            assert ready.read_text() == "ready"
            write_end = os.open(storage, os.O_RDWR) if mode == "read" else -1
            wait_until(process.pid, mode)
            subprocess.run(
                ["gdb", "-batch", "-nx", "-p", str(process.pid), "-ex",
                 f"generate-core-file {core}"],
                capture_output=True, check=False, timeout=600,
            )  # fmt: skip
            if write_end >= 0:
                os.close(write_end)
        finally:
            process.kill()
    assert core.exists()
    return core


def wait_until(pid: int, mode: str) -> None:
    """Wait until the process is where it should be: in the read call, or burning time."""
    for _ in range(100_000):
        call = Path(f"/proc/{pid}/syscall").read_text().split()
        # 0 is read(2) on x86-64, 63 on arm64; a spinning process is "running".
        if (mode == "read" and call[0] in ("0", "63")) or (mode == "spin" and call[0] == "running"):
            return
    pytest.fail(f"the victim never came to {mode}")


def core(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `unhang core`."""
    command = [sys.executable, "-m", "unhang", "core", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def line_of(victim: Path, text: str) -> int:
    """Number of the line that holds a text."""
    return next(i for i, line in enumerate(victim.read_text().splitlines(), 1) if text in line)


def test_a_crash_in_c_is_a_cause(victim: Path) -> None:
    """Rank, signal and the user's line of a rank that crashed in C."""
    done = core(str(core_of_a_death(victim, "crash", 2)), "--format", "json")
    report = report_in(done.stdout)
    finding = report["findings"][0]
    assert done.returncode == 1
    assert (finding["code"], finding["culprits"]) == ("UH796", [2])
    assert "SIGSEGV" in finding["summary"]
    assert finding["sites"][0]["line"] == line_of(victim, "ctypes.string_at(0)")
    assert finding["sites"][0]["file"].endswith("train.py")
    on_the_page("gdb python core-python-3097667-6", finding["summary"])


def test_a_core_beside_dumps_says_how_the_rank_ended(victim: Path) -> None:
    """Dumps in which rank 2 never came, and its core: it crashed, at that line."""
    crashed = victim.with_name("crash.core")
    if not crashed.exists():
        core_of_a_death(victim, "crash", 2)
    report = diagnosed(HUNG, crashed)
    first, absence = report["findings"][:2]
    assert (first["code"], first["culprits"]) == ("UH106", [2])
    assert "SIGSEGV" in first["summary"]
    assert first["sites"][0]["line"] == line_of(victim, "ctypes.string_at(0)")
    assert (absence["code"], absence["role"]) == ("UH101", "consequence")


def diagnosed(dumps: Path, core_file: Path) -> dict[str, Any]:
    """What `diagnose` says of dumps and a core."""
    words = ["diagnose", str(dumps), "--core", str(core_file), "--format", "json"]
    command = [sys.executable, "-m", "unhang", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return report_in(done.stdout)


def test_an_abort_is_a_consequence(victim: Path) -> None:
    """A process that ended itself is no root cause, also beside dumps."""
    aborted = core_of_a_death(victim, "abort", 1)
    beside = diagnosed(HUNG, aborted)
    assert (beside["findings"][0]["code"], beside["findings"][0]["culprits"]) == ("UH101", [2])
    assert any("rank 1 aborted" in note["text"] for note in beside["notes"])
    done = core(str(aborted), "--format", "json")
    report = report_in(done.stdout)
    assert (done.returncode, report["status"]) == (3, "insufficient")
    assert report["findings"][0]["code"] == "UH797"
    assert report["findings"][0]["culprits"] == []


@pytest.mark.parametrize(("mode", "marker"), [("read", "stream.read(1)"), ("spin", "count += 1")])
def test_a_living_rank_stood_somewhere(victim: Path, mode: str, marker: str) -> None:
    """Blocked in read on a FIFO, or spinning: the line, and no blame from one moment."""
    done = core(str(core_of_the_living(victim, mode, 3)), "--format", "json")
    report = report_in(done.stdout)
    finding = report["findings"][0]
    assert (finding["code"], finding["culprits"], finding["victims"]) == ("UH798", [], [3])
    near = {line_of(victim, marker), line_of(victim, marker) - 1}
    assert finding["sites"][0]["line"] in near
    assert finding["sites"][0]["function"] == {"read": "read_storage", "spin": "spin"}[mode]


def test_bad_input(tmp_path: Path) -> None:
    """No such file, no core, a core that was cut short: one sentence, a hint, exit code 3."""
    (tmp_path / "text").write_text("no core")
    (tmp_path / "cut").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00" + bytes(10))
    for name in ("missing", "text", "cut", "."):
        done = core(str(tmp_path / "none" / name if name == "missing" else tmp_path / name))
        assert done.returncode == 3, name
        assert done.stderr.startswith("unhang: ")
        assert "Traceback" not in done.stderr
    assert core(str(tmp_path / "cut"), "--timeout", "0").returncode == 2
