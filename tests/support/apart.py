"""Nodes apart, for tests: own network, processes, host name, /tmp, /run and /dev/shm, and sshd.

Nothing is shared but the installed programs, as between machines without a shared disk. A node's
/tmp is a folder of the test, which reads and writes there. It needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patience import PATIENCE_S, wait_for

_ROOT = Path(__file__).parents[2]
"""This checkout, which nodes have even if it lies in the machine's /tmp."""
_OWN = f"a{os.getpid():x}"
_HUB = f"{_OWN}h"
_NETWORK = "10.79.0"
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc",
            "--mount", "--", "sh", "-c")  # fmt: skip
_INSIDE = """\
hostname {name}
for each in /run /dev/shm; do mount -t tmpfs tmpfs $each; done
for each in {without}; do mount --bind /dev/null $each; done
for each in {below_tmp}; do mkdir -p {folder}/$each; mount --bind /tmp/$each {folder}/$each; done
mount --rbind {folder} /tmp && mkdir /run/sshd
{sshd} -D -e -f /tmp/sshd.conf
"""
_SSHD = """\
Port 22
ListenAddress {address}
HostKey /tmp/host_key
AuthorizedKeysFile /tmp/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
_SSH = """\
Host {name}
  HostName {address}
  User root
  IdentityFile {key}
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  ConnectTimeout 5
  LogLevel ERROR
"""


@dataclass
class Node:
    """One of them.

    Attributes:
        folder: Its /tmp, as the test sees it.
        init: What it runs in.
    """

    name: str
    address: str
    folder: Path
    init: subprocess.Popen[bytes]

    def start(
        self, words: Sequence[str], env: Mapping[str, str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a command in its /tmp."""
        return subprocess.Popen(
            self.entered(*words),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**_as_usual(), **env},
        )

    def run(self, *words: str) -> None:
        """Run a command there; a failure is the test's."""
        subprocess.run(self.entered(*words), check=True, capture_output=True, timeout=PATIENCE_S)

    def entered(self, *words: str) -> list[str]:
        """The command that runs another one there, in its /tmp."""
        inside = ("sh", "-c", 'cd /tmp && exec "$@"', "sh")  # nsenter's --wd is one of here
        return ["nsenter", "--target", str(self._first()), "--all", "--", *inside, *words]

    def die(self) -> None:
        """Lose its network, then all its processes: its peers hear nothing of it."""
        _ip("-n", _HUB, "link", "set", f"p{self.name}", "down")
        self.init.kill()
        self.init.wait()

    def _first(self) -> int:
        """Its process 1, by its number here."""
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children")
        return int(children.read_text().split()[0])


def _as_usual() -> dict[str, str]:
    """The environment without what hides that a job's output is held back."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def from_outside(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the network of the nodes, where none of them is."""
    outside = ["ip", "netns", "exec", _HUB, *words]
    return subprocess.run(outside, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def nodes_apart(
    folder: Path, names: Sequence[str], without: Mapping[str, Sequence[Path]]
) -> Iterator[tuple[dict[str, Node], Path]]:
    """Start nodes; end them with all that runs there.

    Args:
        folder: For their files.
        names: Of the nodes.
        without: By node, programs that it does not have.

    Yields:
        The nodes by name, and the settings for `ssh -F`.
    """
    key, settings = folder / "key", folder / "ssh_config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    made: dict[str, Node] = {}
    try:
        _ip("netns", "add", _HUB)
        _ip("-n", _HUB, "link", "add", "br0", "type", "bridge")
        _ip("-n", _HUB, "addr", "add", f"{_NETWORK}.100/24", "dev", "br0")
        _ip("-n", _HUB, "link", "set", "br0", "up")
        for number, name in enumerate(names, 1):
            made[name] = _node(folder, name, f"{_NETWORK}.{number}", without.get(name, ()))
        told = [_SSH.format(name=n.name, address=n.address, key=key) for n in made.values()]
        settings.write_text("".join(told))
        for name in names:
            ssh = ("ssh", "-F", str(settings), name, "true")
            wait_for(lambda ssh=ssh: from_outside(*ssh).returncode == 0, f"ssh {name}")
        yield made, settings
    finally:
        for node in made.values():
            node.init.kill()
            node.init.wait()
        for name in (*(f"{_OWN}{name}" for name in names), _HUB):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)


def _node(folder: Path, name: str, address: str, without: Sequence[Path]) -> Node:
    own = folder / name
    own.mkdir()
    own.chmod(0o1777)
    for key, copy in (("key.pub", "key.pub"), ("key", "host_key")):
        shutil.copy(folder / key, own / copy)
    (own / "sshd.conf").write_text(_SSHD.format(address=address))
    space = f"{_OWN}{name}"
    _ip("netns", "add", space)
    port = f"p{name}"
    _ip("-n", _HUB, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("-n", _HUB, "link", "set", port, "master", "br0", "up")
    _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _ip("-n", space, "link", "set", link, "up")
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    paths = " ".join(map(str, without))
    tmp = Path("/tmp")  # noqa: S108 - the machine's, which a node does not have
    below = _ROOT.relative_to(tmp) if _ROOT.is_relative_to(tmp) else ""
    inside = _INSIDE.format(name=name, without=paths, folder=own, sshd=sshd, below_tmp=below)
    with (own / "sshd.log").open("wb") as log:
        words = ["ip", "netns", "exec", space, *_UNSHARE, inside]
        init = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return Node(name, address, own, init)
