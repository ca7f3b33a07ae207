"""Whose code a frame is, inside a job."""

from __future__ import annotations

import sys
from types import FrameType, ModuleType

import pytest

from unhang import built, rankenv, telltale, torchenv
from unhang.record.calls.sites import program_site, site_frame


@pytest.mark.parametrize("module", [telltale, rankenv, torchenv, built])
def test_what_the_recorder_imports_is_no_code_of_the_program(module: ModuleType) -> None:
    """Also where it runs from a checkout: the place of a rank was told as one of ours."""
    inside: list[FrameType] = []
    code = compile("inside.append(look())", str(module.__file__), "exec")
    exec(code, {"inside": inside, "look": lambda: sys._getframe(1)})  # noqa: S102 - to have a frame of that file
    for find in (site_frame, program_site):
        found = find(inside[0])
        assert found is not None
        assert found.f_code.co_filename == __file__
