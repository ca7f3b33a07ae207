"""Builds the fake device for the torch of one interpreter, and says how a job is put on it.

Libraries of CUDA that are not installed are replaced by empty ones, and the functions that torch
wants from them by functions that return 0: a torch installed without its dependencies is enough.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.errors import ToolError, UsageError

SOURCES = Path(__file__).parent / "fake"
_OF_CUDA = re.compile(
    r"(cublas|cudnn|cufft|curand|cusparse|cusolver|nvrtc|nvJitLink|nvshmem|cupti|cuFile|nvtx|nccl"
    r"|cuda|cu[A-Z]|__cuda|nvml|cutensor|cudss)"
)
_OF_TORCH = ("libtorch", "libc10", "libshm")


@dataclass(frozen=True, slots=True)
class Device:
    """A fake device that is ready.

    Attributes:
        python: The interpreter whose torch it is for.
        version: Of that torch.
        folder: Where its libraries are.
    """

    python: Path
    version: str
    folder: Path

    def environment(self) -> dict[str, str]:
        """What a process needs to believe in the device."""
        return {
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
            "LD_PRELOAD": f"{self.folder / 'libfakegpu.so'}:{self.folder / 'libstubs.so'}",
        }


def build(python: Path, folder: Path | None = None) -> Device:
    """Compile the fake device for one interpreter's torch; seconds.

    Args:
        python: An interpreter with a CUDA build of torch.
        folder: Where the libraries go; default: beside the environment's `lib`.

    Raises:
        UsageError: There is no such torch, or no header of CUDA's runtime.
        ToolError: A compiler is missing or fails.
    """
    packages, version = _torch_of(python)
    headers = _headers(packages)
    folder = (folder or python.absolute().parents[1] / "fakegpu").absolute()
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    include = [f"-I{headers}"]
    if not (headers / "crt" / "host_defines.h").exists():
        include.append(f"-I{SOURCES}")
    sources = sorted(map(str, SOURCES.glob("*.cpp")))
    library = folder / "libfakegpu.so"
    _run("g++", "-O1", "-g", "-shared", "-fPIC", "-std=c++17", "-w", *include, *sources,
         "-o", str(library), "-lpthread", "-ldl")  # fmt: skip
    _library(folder / "lib" / "libcuda.so.1", SOURCES / "driver.c")
    _stand_ins(packages, folder, library)
    return Device(python, version, folder)


def _torch_of(python: Path) -> tuple[Path, str]:
    """Where an interpreter's packages are, and the version of its torch."""
    script = (
        "import importlib.util as u, importlib.metadata as m, os;"
        "print(os.path.dirname(os.path.dirname(u.find_spec('torch').origin)), m.version('torch'))"
    )
    try:
        found = _run(str(python), "-c", script).split()
    except ToolError as error:
        raise UsageError(f"{python} has no torch.", "Make one: make setup-nccl") from error
    return Path(found[0]), found[1].partition("+")[0]


def _headers(packages: Path) -> Path:
    for path in sorted(packages.glob("nvidia/**/cuda_runtime_api.h")):
        return path.parent
    raise UsageError(
        "The headers of CUDA's runtime are missing.",
        "Install nvidia-cuda-runtime (CUDA 12: nvidia-cuda-runtime-cu12) with --no-deps.",
    )


def _stand_ins(packages: Path, folder: Path, ours: Path) -> None:
    """Empty libraries for those that are not installed, and functions that return 0."""
    torch = sorted(map(str, (packages / "torch" / "lib").glob("*.so")))
    places = {"LD_LIBRARY_PATH": str(folder / "lib")}
    needed = _run("ldd", *torch, env=places).splitlines()
    for line in needed:
        name = line.split()[0] if "not found" in line else ""
        if name and not name.startswith(_OF_TORCH):
            _library(folder / "lib" / name, None)
    real = sorted({line.split()[2] for line in needed if "=> " in line and "/nvidia/" in line})
    have = set(_symbols("--defined-only", [str(ours), *real]))
    want = {name for name in _symbols("--undefined-only", torch) if _OF_CUDA.match(name)} - have
    zero = "long fake_zero(void) { return 0; }\n"
    lines = (
        f'long {name}(void) __attribute__((weak, alias("fake_zero")));\n' for name in sorted(want)
    )
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "stubs.c")
        source.write_text(zero + "".join(lines), encoding="utf-8")
        _run("gcc", "-shared", "-fPIC", "-w", str(source), "-o", str(folder / "libstubs.so"))


def _symbols(which: str, libraries: Sequence[str]) -> Iterable[str]:
    for line in _run("nm", "-D", which, *libraries).splitlines():
        words = line.split()
        if len(words) >= 2:  # noqa: PLR2004 - a type and a name
            yield words[-1].partition("@")[0]


def _library(path: Path, source: Path | None) -> None:
    """A library of one C file, or an empty one."""
    _run("gcc", "-shared", "-fPIC", "-w", "-x", "c", str(source or "/dev/null"),
         f"-Wl,-soname,{path.name}", "-o", str(path))  # fmt: skip


def _run(*command: str, env: dict[str, str] | None = None) -> str:
    """What a command prints.

    Raises:
        ToolError: It is not there, or it fails.
    """
    if shutil.which(command[0]) is None:
        raise ToolError(f"{command[0]} is not installed.", "apt-get install g++ binutils")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - as written above
    if done.returncode:
        raise ToolError(f"{command[0]} failed: {done.stderr.strip()[-400:]}")
    return done.stdout
