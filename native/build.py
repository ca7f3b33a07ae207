"""Build the decoder's library into the package of this checkout.

    python native/build.py

An installation does the same (`hatch_build.py`), where Rust's cargo is.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "unhang" / "ingest" / "native"
BUILT = {"darwin": "libunhang_native.dylib", "win32": "unhang_native.dll"}


def build() -> str:
    """Build the library; returns why it was not, or ""."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo"
    names = runpy.run_path(str(PACKAGE / "fingerprint.py"))
    target = ROOT / "build" / "native"
    command = [
        cargo, "build", "--release", "--offline", "--quiet", "--lib",
        "--manifest-path", str(ROOT / "native" / "Cargo.toml"), "--target-dir", str(target),
    ]  # fmt: skip
    env = {**os.environ, "UNHANG_FINGERPRINT": names["fingerprint"]()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"cargo failed: {done.stderr.strip()[-2000:]}"
    library = names["LIBRARY"]
    fresh = library.with_suffix(".new")
    shutil.copyfile(target / "release" / BUILT.get(sys.platform, "libunhang_native.so"), fresh)
    fresh.replace(library)  # a process that has the old one mapped keeps it
    return ""


if __name__ == "__main__":
    sys.exit(build() or None)
