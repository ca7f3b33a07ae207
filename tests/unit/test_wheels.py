"""What the wheels are called, and whose library they have."""

from __future__ import annotations

import platform
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

NATIVE = Path(__file__).parents[2] / "native"
WHEELS = runpy.run_path(str(NATIVE / "wheels.py"))
LISTED = """cargo
  Depends: libgit2-1.5
  PreDepends: dpkg
 |Depends: gcc
 |Depends: clang
  Depends: <c-compiler>
    gcc
  Depends: libssl3:arm64
  Suggests: cargo-doc
"""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_wheel_says_its_machine_and_the_oldest_glibc(machine: str) -> None:
    """Any Python, this machine, a glibc from 2012."""
    assert WHEELS["tag"](machine) == f"manylinux_2_17_{machine}"
    assert WHEELS["TARGETS"][machine] == f"{machine}-unknown-linux-gnu"


def test_what_a_library_needs_of_glibc_is_read_from_it(tmp_path: Path) -> None:
    """The newest of all versions that it names, by number and not as text."""
    (tmp_path / "a.so").write_bytes(b"\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0")
    assert WHEELS["newest_glibc"](tmp_path / "a.so") == (2, 17)


class _Interface:
    """What hatch gives a hook to build on; it is there only while a wheel is built."""

    def __class_getitem__(cls, _item: object) -> type:
        return cls


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The build's hook; what it makes is not compiled."""
    interface = ModuleType("interface")
    interface.__dict__["BuildHookInterface"] = _Interface
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    made = runpy.run_path(str(NATIVE / "hatch_build.py"))
    own, asked = made["NativeHook"].initialize.__globals__, []
    libraries = {"a/one.so": Path("build/one.so"), "two.so": Path("build/two.so")}
    builder = {"compiled": lambda machine: asked.append(machine) or libraries}
    monkeypatch.setitem(own, "runpy", SimpleNamespace(run_path=lambda _: builder))
    return {**own, "asked": asked}


def test_a_wheel_is_for_where_it_is_built(
    hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an aarch64 machine it is one for aarch64, without being told."""
    for name in ("UNHANG_PURE", "UNHANG_PLATFORM", "UNHANG_MACHINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-aarch64")
    data: dict[str, Any] = {"force_include": {}}
    hook["NativeHook"].initialize(None, "standard", data)
    assert data["tag"] == "py3-none-linux_aarch64"
    assert data["force_include"] == {
        "build/one.so": "unhang/a/one.so", "build/two.so": "unhang/two.so",
    }  # fmt: skip
    assert hook["asked"] == [""]


def test_dependencies_are_the_first_of_alternatives() -> None:
    """As apt lists them; names of no package are left out."""
    found = runpy.run_path(str(NATIVE / "aarch64.py"))["dependencies"](LISTED)
    assert found == {"libgit2-1.5", "dpkg", "gcc", "libssl3:arm64"}


def test_other_machines_are_not_tried_without_their_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is said, and no error."""
    other = next(m for m in WHEELS["TARGETS"] if m != platform.machine())
    monkeypatch.delenv(f"UNHANG_PYTHON_{other.upper()}", raising=False)
    assert WHEELS["tried"](tmp_path / "a.whl", tmp_path, other).startswith("not tried")
