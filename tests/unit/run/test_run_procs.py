"""How processes ended that are not our children, as far as the kernel tells."""

from __future__ import annotations

import os
import re
import signal
import subprocess

from unhang.run.watching.procs import exit_status, reaped_status


def tells_of_the_reaped() -> bool:
    """Whether this kernel keeps the exit status for holders of a pidfd (6.15)."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (6, 15)


def test_the_status_can_be_read_until_it_is_waited_for_and_by_a_pidfd_after() -> None:
    """First /proc knows it, then only a descriptor that was opened before."""
    child = subprocess.Popen(["sleep", "1000"])
    descriptor = os.pidfd_open(child.pid)
    try:
        assert (exit_status(child.pid), reaped_status(descriptor)) == (None, None)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert exit_status(child.pid) == 128 + signal.SIGKILL
        child.wait()
        assert exit_status(child.pid) is None
        later = reaped_status(descriptor)
        assert later == (128 + signal.SIGKILL if tells_of_the_reaped() else None)
    finally:
        os.close(descriptor)
