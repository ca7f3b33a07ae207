"""Which processes are ranks without a recorder, and what is said of why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from unhang.collect.processes import Process, read_process
from unhang.record import HOOK_DIR
from unhang.run.watching.outside import why_unarmed


def started(*options: str, env: Mapping[str, str]) -> Iterator[Process]:
    """A Python process as /proc shows it, once it runs."""
    command = [sys.executable, *options, "-c", "print('here', flush=True); input()"]
    with subprocess.Popen(
        command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = read_process(child.pid)
        assert process is not None
        yield process
        child.communicate(b"\n")


HOOK = {"PYTHONPATH": f"/elsewhere:{HOOK_DIR}"}


@pytest.mark.parametrize(
    ("options", "env", "why"),
    [
        (("-I",), HOOK, "python -I skips the startup hook"),
        (("-X", "utf8", "-uE"), HOOK, "python -uE skips the startup hook"),
        (("-XIES", "-W", "ignore::ImportWarning"), HOOK, "its startup hook did not arm it"),
        ((), {}, "its PYTHONPATH lacks the startup hook"),
        ((), {**HOOK, "UNHANG_ARM": "0"}, "UNHANG_ARM=0 switches the recorder off"),
    ],
)
def test_why_a_process_has_no_recorder(
    options: tuple[str, ...], env: Mapping[str, str], why: str
) -> None:
    """Its options and its environment tell; the values of options are none of them."""
    for process in started(*options, env=env):
        assert why_unarmed(process, waited=True) == why


def test_a_process_with_the_hook_may_still_get_its_recorder() -> None:
    """Torch takes long to import: until it has had its time, nothing is said."""
    for process in started(env=HOOK):
        assert why_unarmed(process, waited=False) == ""
