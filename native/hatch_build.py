"""hatch's hook: the libraries go into what is installed, where Rust's cargo is.

Elsewhere the package installs without them, reads dumps with the Python reader, and says so where
that is slow; the recorder costs more in each call. `UNHANG_PURE=1` leaves the libraries out;
`UNHANG_PLATFORM` is the platform that a wheel is for, where that is older than this machine, and
`UNHANG_MACHINE` its machine, where that is another (see wheels.py).
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeHook(BuildHookInterface[Any]):
    """Builds the libraries for a wheel, or for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build them, and say what the wheel is for."""
        if os.environ.get("UNHANG_PURE"):
            return
        make = runpy.run_path(str(Path(__file__).with_name("build.py")))
        if version == "editable":
            self._warn(make["build"]())
            return
        made = make["compiled"](os.environ.get("UNHANG_MACHINE", ""))
        if isinstance(made, str):
            self._warn(made)
            return
        platform = os.environ.get("UNHANG_PLATFORM") or sysconfig.get_platform()
        tag = platform.replace("-", "_").replace(".", "_")
        for name, library in made.items():
            build_data["force_include"][str(library)] = f"unhang/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"

    def _warn(self, why_not: str) -> None:
        if why_not:
            self.app.display_warning(f"without the compiled libraries: {why_not}")
