"""Build the libraries, the decoder's and the recorder's, into the package of this checkout.

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
PACKAGE = ROOT / "src" / "unhang"
SUFFIXES = {"darwin": ".dylib"}
TARGETS = {name: f"{name}-unknown-linux-gnu" for name in ("x86_64", "aarch64")}
"""What Rust calls the machines for which there are wheels."""


def compiled(machine: str = "") -> dict[str, Path] | str:
    """Compile the libraries: where they are, by where they belong; or why that could not be.

    Args:
        machine: The machine that they are for; this one if empty.
    """
    built = runpy.run_path(str(PACKAGE / "built.py"))
    found: dict[str, Path] = {}
    for library, (_, crate) in built["LIBRARIES"].items():
        made = _compiled(ROOT / crate, built["fingerprint"](library), machine)
        if isinstance(made, str):
            return made
        found[library] = made
    return found


def _compiled(crate: Path, fingerprint: str, machine: str) -> Path | str:
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo"
    folder = ROOT / "build" / "native"
    command = [
        cargo, "build", "--release", "--offline", "--quiet", "--lib",
        "--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(folder),
    ]  # fmt: skip
    if machine and machine != platform.machine():
        command += ["--target", TARGETS[machine]]
        folder /= TARGETS[machine]
    env = {**os.environ, "UNHANG_FINGERPRINT": fingerprint}
    if sys.platform == "darwin":  # Python's functions are found when the library is loaded
        env["RUSTFLAGS"] = "-C link-arg=-undefined -C link-arg=dynamic_lookup"
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"cargo failed: {done.stderr.strip()[-2000:]}"
    name = f"libunhang_{crate.name}{SUFFIXES.get(sys.platform, '.so')}"
    return folder / "release" / name


def build() -> str:
    """Build the libraries into this checkout; returns why they were not, or ""."""
    made = compiled()
    if isinstance(made, str):
        return made
    for name, path in made.items():
        library = PACKAGE / name
        fresh = library.with_suffix(".new")
        shutil.copyfile(path, fresh)
        fresh.replace(library)  # a process that has the old one mapped keeps it
    return ""


if __name__ == "__main__":
    sys.exit(build() or None)
