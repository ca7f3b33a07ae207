"""Fuzz the compiled decoder under the address sanitizer, with overflow checks and assertions.

    python tests/fuzz/native.py --count 50000

Needs a nightly toolchain of Rust and gcc's libasan; where one is missing, that is said, and nothing
is tried. Its inputs are those of `decoders.py`, and its answers are compared as there.
"""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = "-Zsanitizer=address -Coverflow-checks=yes -Cdebug-assertions=yes"
FUZZER = Path(__file__).with_name("decoders.py")
VARIABLE = runpy.run_path(str(FUZZER))["BUILT"]


def missing() -> str:
    """What is not there that this needs."""
    if shutil.which("cargo") is None:
        return "there is no cargo"
    asked = subprocess.run(["cargo", "+nightly", "--version"], capture_output=True, check=False)
    if asked.returncode:
        return "there is no nightly toolchain of Rust"
    return "" if runtime().is_absolute() else "there is no libasan.so of gcc"


def runtime() -> Path:
    """The library of the sanitizer; its bare name where gcc has none."""
    if shutil.which("gcc") is None:
        return Path("libasan.so")
    asked = ["gcc", "-print-file-name=libasan.so"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def built() -> Path:
    """Build the decoder with all checks; where it is."""
    folder = ROOT / "build" / "sanitized"
    target = f"{platform.machine()}-unknown-linux-gnu"
    command = [
        "cargo", "+nightly", "build", "--release", "--offline", "--quiet", "--lib",
        "--manifest-path", str(ROOT / "native" / "Cargo.toml"),
        "--target-dir", str(folder), "--target", target,
    ]  # fmt: skip
    fingerprint = runpy.run_path(str(ROOT / "src" / "unhang" / "built.py"))["fingerprint"]
    named = fingerprint("ingest/native/decoder.so")
    env = {**os.environ, "RUSTFLAGS": FLAGS, "UNHANG_FINGERPRINT": named}
    subprocess.run(command, env=env, check=True)
    return folder / target / "release" / "libunhang_native.so"


def main() -> int:
    """Build, and hand the rest over to the fuzzer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", default="50000")
    args = parser.parse_args()
    if why := missing():
        print(f"not tried under the address sanitizer: {why}")
        return 0
    env = {
        **os.environ,
        VARIABLE: str(built()),
        "LD_PRELOAD": str(runtime()),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }
    command = [sys.executable, str(FUZZER), "--count", args.count, "--workers", "1"]
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
