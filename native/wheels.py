"""Build the wheels that are published, and try each in a fresh environment.

    python native/wheels.py dist

One has the library for this platform, linked by zig's linker against a glibc from 2012 so that old
systems load it; the other has none, for all others. What it needs of glibc is looked up in the
library itself.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 17)
LINKER = """#!/bin/sh
for word do
  shift
  [ "$word" != -lgcc_s ] || word=-lunwind
  set -- "$@" "$word"
done
exec "{python}" -m ziglang cc -target {machine}-linux-gnu.{glibc} "$@"
"""
TRIAL = "from unhang.ingest.native.library import found; print(type(found()).__name__)"


def run(*command: str | Path, **env: str) -> str:
    """Run a program; what it prints."""
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **env}, cwd=tempfile.gettempdir(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode > 1:
        sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, **env: str) -> Path:
    """Build one wheel."""
    before = set(folder.glob("*.whl"))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, **env)
    return max(set(folder.glob("*.whl")) - before or before, key=lambda path: path.stat().st_mtime)


def build_native(folder: Path, scratch: Path) -> Path:
    """Build the wheel of this platform."""
    machine, glibc = platform.machine(), ".".join(map(str, GLIBC))
    linker = scratch / "linker"
    linker.write_text(LINKER.format(python=sys.executable, machine=machine, glibc=glibc))
    linker.chmod(0o755)
    triple = f"CARGO_TARGET_{machine.upper()}_UNKNOWN_LINUX_GNU_LINKER"
    tag = f"manylinux_{glibc.replace('.', '_')}_{machine}"
    wheel = build(folder, **{triple: str(linker)}, UNHANG_PLATFORM=tag)
    shutil.unpack_archive(wheel, scratch / "wheel", "zip")
    needs = newest_glibc(scratch / "wheel" / "unhang" / "ingest" / "native" / "decoder.so")
    if needs > GLIBC:
        sys.exit(f"the library needs glibc {needs}, the wheel promises {GLIBC}")
    return wheel


def newest_glibc(library: Path) -> tuple[int, int]:
    """The newest glibc of which the library wants a symbol."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max((int(major), int(minor)) for major, minor in versions)


def try_out(wheel: Path, scratch: Path) -> str:
    """Install a wheel into an environment of its own and diagnose a capture."""
    place = scratch / wheel.stem
    run(sys.executable, "-m", "venv", place)
    run(place / "bin" / "python", "-m", "pip", "install", "-q", wheel)
    said = run(place / "bin" / "unhang", "diagnose", ROOT / "examples" / "never-joined")
    if "rank 2" not in said:
        sys.exit(f"{wheel.name} does not find the culprit:\n{said}")
    return run(place / "bin" / "python", "-c", TRIAL).strip()


def main() -> None:
    """Build both, try both, say what came out."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    with tempfile.TemporaryDirectory(prefix="wheels-") as name:
        scratch = Path(name)
        kinds = {build_native(folder, scratch): "Library", build(folder, UNHANG_PURE="1"): "str"}
        for wheel, wanted in kinds.items():
            if try_out(wheel, scratch) != wanted:
                sys.exit(f"{wheel.name} has not the decoder that it should have")
            print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, works in a fresh environment")


if __name__ == "__main__":
    main()
