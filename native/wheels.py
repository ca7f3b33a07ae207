"""Build the wheels that are published, and try each in a fresh environment.

    python native/wheels.py dist

One for each machine has the libraries, linked by zig's linker against a glibc from 2012 so that old
systems load them; another has none, for all others. What a library needs of glibc is looked up in
itself. A wheel for another machine than this one is built where Rust's standard library for that
is there, and tried where `UNHANG_PYTHON_AARCH64` (or what the machine is) names a Python that runs
its programs here; aarch64.py brings both.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS: dict[str, str] = runpy.run_path(str(ROOT / "native" / "build.py"))["TARGETS"]
GLIBC = (2, 17)
NUMPY_GLIBC = (2, 28)
"""What wheels of our dependencies want."""

LINKER = """#!/bin/sh
for word do
  shift
  [ "$word" != -lgcc_s ] || word=-lunwind
  set -- "$@" "$word"
done
exec "{python}" -m ziglang cc -target {machine}-linux-gnu.{glibc} "$@"
"""
TRIAL = (
    "from unhang.ingest.native import library; from unhang.record.calls import quick; "
    "print(*(type(each.found()).__name__ for each in (library, quick)))"
)
EXAMPLE = ROOT / "examples" / "never-joined"


def run(*command: str | Path, **env: str) -> str:
    """Run a program; what it prints."""
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **env}, cwd=tempfile.gettempdir(),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode > 1:
        sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def tag(machine: str, glibc: tuple[int, int] = GLIBC) -> str:
    """The platform of a wheel."""
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machine}"


def can_compile_for(machine: str) -> bool:
    """Whether Rust's standard library for a machine is here."""
    rustc = os.environ.get("RUSTC", "rustc")
    words = [rustc, "--print", "target-libdir", "--target", TARGETS[machine]]
    return shutil.which(rustc) is not None and Path(run(*words).strip()).is_dir()


def build(folder: Path, **env: str) -> Path:
    """Build one wheel."""
    before = set(folder.glob("*.whl"))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, **env)
    return max(set(folder.glob("*.whl")) - before or before, key=lambda path: path.stat().st_mtime)


def build_native(folder: Path, scratch: Path, machine: str) -> Path:
    """Build the wheel of a machine."""
    linker = scratch / f"linker-{machine}"
    glibc = ".".join(map(str, GLIBC))
    linker.write_text(LINKER.format(python=sys.executable, machine=machine, glibc=glibc))
    linker.chmod(0o755)
    variable = f"CARGO_TARGET_{TARGETS[machine].upper().replace('-', '_')}_LINKER"
    env = {variable: str(linker), "UNHANG_PLATFORM": tag(machine), "UNHANG_MACHINE": machine}
    wheel = build(folder, **env)
    shutil.unpack_archive(wheel, scratch / machine, "zip")
    libraries = runpy.run_path(str(ROOT / "src" / "unhang" / "built.py"))["LIBRARIES"]
    needs = max(newest_glibc(scratch / machine / "unhang" / name) for name in libraries)
    if needs > GLIBC:
        sys.exit(f"a library needs glibc {needs}, the wheel promises {GLIBC}")
    return wheel


def newest_glibc(library: Path) -> tuple[int, int]:
    """The newest glibc of which the library wants a symbol."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max((int(major), int(minor)) for major, minor in versions)


def try_out(wheel: Path, scratch: Path) -> str:
    """Install a wheel into an environment of its own; what its libraries are."""
    place = scratch / wheel.stem
    run(sys.executable, "-m", "venv", place)
    run(place / "bin" / "python", "-m", "pip", "install", "-q", wheel)
    return diagnosed(wheel, place / "bin" / "python")


def try_elsewhere(wheel: Path, scratch: Path, machine: str, python: str) -> str:
    """The same with a Python of another machine, which cannot install anything itself."""
    place = scratch / wheel.stem
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    fitting = [f"--platform={tag(machine, glibc)}" for glibc in (NUMPY_GLIBC, (2, 27), GLIBC)]
    run(sys.executable, "-m", "pip", "install", "-q", "--target", place, "--only-binary=:all:",
        f"--python-version={version}", *fitting, wheel)  # fmt: skip
    return diagnosed(wheel, python, PYTHONPATH=str(place))


def diagnosed(wheel: Path, python: str | Path, **env: str) -> str:
    """Diagnose a capture; what the libraries are that this was done with."""
    said = run(python, "-m", "unhang", "diagnose", EXAMPLE, **env)
    if "rank 2" not in said:
        sys.exit(f"{wheel.name} does not find the culprit:\n{said}")
    return run(python, "-c", TRIAL, **env).strip()


def tried(wheel: Path, scratch: Path, machine: str) -> str:
    """Try a wheel where that can be done; how it went."""
    wanted = "Library Quick" if machine else "str NoneType"
    if machine in ("", platform.machine()):
        found, where = try_out(wheel, scratch), "in a fresh environment"
    elif python := os.environ.get(f"UNHANG_PYTHON_{machine.upper()}"):
        found, where = try_elsewhere(wheel, scratch, machine, python), f"on {machine}"
    else:
        return "not tried: this machine is another"
    if found != wanted:
        sys.exit(f"{wheel.name} has not the libraries that it should have")
    return f"works {where}"


def main() -> None:
    """Build what can be built, try what can be tried, say what came out."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    with tempfile.TemporaryDirectory(prefix="wheels-") as name:
        scratch = Path(name)
        for machine in dict.fromkeys((platform.machine(), *TARGETS)):
            if not can_compile_for(machine):
                print(f"no wheel for {machine}: Rust's standard library for it is not here")
                continue
            wheel = build_native(folder, scratch, machine)
            print(
                f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, {tried(wheel, scratch, machine)}"
            )
        wheel = build(folder, UNHANG_PURE="1")
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, {tried(wheel, scratch, '')}")


if __name__ == "__main__":
    main()
