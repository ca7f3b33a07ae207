"""Build the wheels, that for aarch64 too, on a Debian for x86_64, and try it under emulation.

    python native/aarch64.py dist

A compiler, Rust's standard library for aarch64, a Python for it and qemu come from Debian's
packages. They are unpacked into build/aarch64: nothing is installed, and a user's rights suffice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "aarch64"
HERE = "cargo:amd64", "rustc:amd64", "libstd-rust-dev:amd64", "qemu-user-static:amd64"
THERE = "python3-minimal:arm64", "libpython3-stdlib:arm64", "libstdc++6:arm64"
STANDARD_LIBRARY = "libstd-rust-dev:arm64"
SKIPPED = {"dpkg", "tar", "media-types", "gcc", "binutils"}
"""What nothing here uses, or a system with these programs has."""

OF_SYSTEM = {"libc6", "libgcc-s1"}

RUN = """#!/bin/sh
export LD_LIBRARY_PATH={libraries}
exec {program} "$@"
"""


def apt(*words: str) -> list[str]:
    """The command line of a program of apt that keeps to a folder of its own."""
    state, (program, *rest) = PLACE / "apt", words
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = [f"Dir::State={state}", f"Dir::State::status={state / 'status'}",
                f"Dir::Cache={state}", "APT::Sandbox::User=root",
                "APT::Architectures::=amd64", "APT::Architectures::=arm64"]  # fmt: skip
    return [program, *(word for each in settings for word in ("-o", each)), *rest]


def output(command: Sequence[str], cwd: Path = ROOT) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def needed(packages: Sequence[str], machine: str, skipped: set[str]) -> list[str]:
    """Packages of one machine and what they depend on."""
    found: dict[str, None] = {}
    new = list(packages)
    while new:
        found |= dict.fromkeys(new)
        names = dependencies(output(apt("apt-cache", "depends", *new)))
        full = {n if ":" in n else f"{n}:{machine}" for n in names}
        new = sorted(n for n in full - set(found) if n.partition(":")[0] not in skipped)
    return list(found)


def dependencies(listed: str) -> set[str]:
    """What `apt-cache depends` says is needed, of alternatives the first."""
    pairs = [line.strip().partition(": ")[::2] for line in listed.splitlines()]
    wanted = [(kind, name) for kind, name in pairs if kind.endswith("Depends")]
    first = [True, *(not kind.startswith("|") for kind, _ in wanted)]
    return {name for (_, name), is_first in zip(wanted, first, strict=False)
            if is_first and name[0] != "<"}  # fmt: skip


def unpack(names: Sequence[str], root: Path) -> None:
    """Download packages and unpack them below a folder."""
    archives = PLACE / "packages" / root.name
    archives.mkdir(parents=True, exist_ok=True)
    output(apt("apt-get", "download", "-q", *names), cwd=archives)
    for archive in sorted(archives.glob("*.deb")):
        output(["dpkg-deb", "-x", str(archive), str(root)])


def wrapper(name: str, libraries: str, program: str) -> Path:
    """Write a program that runs another with libraries of its own."""
    path = PLACE / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RUN.format(libraries=libraries, program=program))
    path.chmod(0o755)
    return path


def main() -> None:
    """Bring what is missing, then build and try all wheels."""
    here, there = PLACE / "here", PLACE / "there"
    if not (PLACE / "bin").is_dir():
        output(apt("apt-get", "update", "-q"))
        unpack([*needed(HERE, "amd64", SKIPPED | OF_SYSTEM), STANDARD_LIBRARY], here)
        unpack(needed(THERE, "arm64", SKIPPED), there)
    libraries = str(here / "usr/lib/x86_64-linux-gnu")
    rustc = wrapper("rustc", libraries, f"{here}/usr/bin/rustc --sysroot {here}/usr")
    wrapper("cargo", libraries, f"{here}/usr/bin/cargo")
    emulated = next((there / "usr/bin").glob("python3.*[0-9]"))
    emulator = f"{here}/usr/bin/qemu-aarch64-static -L {there}"
    python = wrapper("python-aarch64", "", f"env PYTHONHOME={there}/usr {emulator} {emulated}")
    env = {**os.environ, "RUSTC": str(rustc), "UNHANG_PYTHON_AARCH64": str(python),
           "PATH": f"{PLACE / 'bin'}:{os.environ['PATH']}"}  # fmt: skip
    command = [sys.executable, str(ROOT / "native" / "wheels.py"), *sys.argv[1:]]
    sys.exit(subprocess.run(command, env=env, check=False).returncode)


if __name__ == "__main__":
    main()
