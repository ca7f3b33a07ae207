"""Runs `unhang` as where the system is not Linux: without the modules and calls that only it has.

What the libraries use is imported before; they come in builds of their own for other systems.
"""

import asyncio  # noqa: F401 - the libraries' business, as all here
import os
import platform  # noqa: F401
import shutil  # noqa: F401
import signal
import socket
import subprocess
import sys
import tempfile  # noqa: F401

import ahocorasick_rs  # noqa: F401
import duckdb  # noqa: F401
import msgspec  # noqa: F401
import numpy  # noqa: ICN001, F401
import rich.console  # noqa: F401
import rich_argparse  # noqa: F401
import rustworkx  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
NAMES = {
    os: (
        "fchmod fchown fork getegid geteuid getgid getloadavg getpgid getuid killpg lchown "
        "memfd_create mkfifo pidfd_open posix_spawn pread readv sched_getaffinity sendfile setsid "
        "statvfs sysconf uname wait4 waitid O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK"
    ),
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2",
    socket: "AF_UNIX SCM_RIGHTS",
}


subprocess.Popen.kill = subprocess.Popen.terminate  # as on Windows


class Nowhere:
    """Finds none of the modules."""

    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for name in MODULES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Nowhere())
for module, names in NAMES.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

from unhang.cli.main import main

sys.exit(main())
