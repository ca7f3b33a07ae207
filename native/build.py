"""Build the decoder's library into the package of this checkout.

    python native/build.py

An installation does the same (`hatch_build.py`), where Rust's cargo is.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "unhang" / "ingest" / "native"
BUILT = {"darwin": "libunhang_native.dylib", "win32": "unhang_native.dll"}
TARGETS = {name: f"{name}-unknown-linux-gnu" for name in ("x86_64", "aarch64")}
"""What Rust calls the machines for which there are wheels."""


def compiled(machine: str = "") -> Path | str:
    """Compile the library; where it is, or why it could not be.

    Args:
        machine: The machine that it is for; this one if empty.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo"
    names = runpy.run_path(str(PACKAGE / "fingerprint.py"))
    folder = ROOT / "build" / "native"
    command = [
        cargo, "build", "--release", "--offline", "--quiet", "--lib",
        "--manifest-path", str(ROOT / "native" / "Cargo.toml"), "--target-dir", str(folder),
    ]  # fmt: skip
    if machine and machine != platform.machine():
        command += ["--target", TARGETS[machine]]
        folder /= TARGETS[machine]
    env = {**os.environ, "UNHANG_FINGERPRINT": names["fingerprint"]()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"cargo failed: {done.stderr.strip()[-2000:]}"
    return folder / "release" / BUILT.get(sys.platform, "libunhang_native.so")


def build() -> str:
    """Build the library into this checkout; returns why it was not, or ""."""
    made = compiled()
    if isinstance(made, str):
        return made
    library = PACKAGE / "decoder.so"
    fresh = library.with_suffix(".new")
    shutil.copyfile(made, fresh)
    fresh.replace(library)  # a process that has the old one mapped keeps it
    return ""


if __name__ == "__main__":
    sys.exit(build() or None)
