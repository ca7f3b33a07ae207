"""Real clusters on one machine, for tests: SLURM with two nodes, and hosts behind real sshds.

SLURM: munge with a key of its own, one slurmctld, two `slurmd -N`. Hosts: each an sshd in its own
process and host-name namespaces, on a loopback port, with keys of its own. Both need root.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_S = 90.0
NODES = ("n1", "n2")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so; the test fails where it never is."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never seen: {what}"
        time.sleep(0.2)


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def kill_pid_file(path: Path, how: signal.Signals = signal.SIGKILL) -> None:
    """End the daemon that wrote this file, if it did and lives."""
    with suppress(OSError, ValueError):
        os.kill(int(path.read_text()), how)


@dataclass
class Slurm:
    """A running SLURM; `environ` makes its commands find it."""

    folder: Path
    environ: dict[str, str]

    def run(self, *words: str) -> str:
        """Output of one of its commands."""
        done = subprocess.run(
            words, env=self.environ, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        subprocess.run(["slurmd", "-N", node], env=self.environ, check=True, timeout=30)

    def stop_node(self, node: str) -> None:
        """Make a node unreachable; what runs there goes on."""
        kill_pid_file(self.folder / f"slurmd-{node}.pid")


_SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=300
KillWait=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start SLURM with two nodes, end it with all that runs in it."""
    host = socket.gethostname()
    (folder / "munge").mkdir()
    (folder / "state").mkdir()
    for path in (folder, *folder.parents):  # munge wants its folders readable by all
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(0o755 | (path.stat().st_mode & 0o7000))
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1_024))
    key.chmod(0o400)
    conf = folder / "slurm.conf"
    conf.write_text(
        _SLURM_CONF.format(host=host, ports=free_ports(3), folder=folder, cpus=os.cpu_count())
    )
    cluster = Slurm(folder, {**os.environ, "SLURM_CONF": str(conf)})
    names = ("key-file=key", "socket=socket", "pid-file=pid", "log-file=log", "seed-file=seed")
    options = [f"--{name}".replace("=", f"={folder}/munge/") for name in names]
    try:
        subprocess.run(["munged", "--force", *options], check=True, timeout=30)
        subprocess.run(["slurmctld"], env=cluster.environ, check=True, timeout=30)
        for node in NODES:
            cluster.start_node(node)
        wait_for(lambda: cluster.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"], "idle")
        yield cluster
    finally:
        with suppress(subprocess.SubprocessError, OSError):
            cluster.run("scancel", "--signal=KILL", "--full", "--user=root")
            wait_for(lambda: not cluster.run("squeue", "-h"), "no job")
        for pid_file in (*folder.glob("slurm*.pid"), folder / "munge" / "pid"):
            kill_pid_file(pid_file, signal.SIGTERM)


@dataclass
class Hosts:
    """Hosts behind sshds.

    Attributes:
        config: For `ssh -F`.
        daemons: The sshd of each host, by name.
    """

    config: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Run a command on a host."""
        return subprocess.Popen(["ssh", "-F", str(self.config), host, command])

    def stop(self, host: str) -> None:
        """Take a host off the network; what runs there ends with it."""
        self.daemons[host].kill()
        self.daemons[host].wait()


_SSHD_CONF = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/{host}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
_SSH_CONF = """\
Host {host}
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


@contextmanager
def hosts(folder: Path, names: Sequence[str]) -> Iterator[Hosts]:
    """Start hosts with process ids and a name of their own; they end with their sshd."""
    for key in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it
    found = Hosts(folder / "ssh_config")
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    try:
        with found.config.open("w") as config:
            for host, port in zip(names, free_ports(len(names)), strict=True):
                settings = folder / f"{host}.conf"
                settings.write_text(_SSHD_CONF.format(port=port, folder=folder, host=host))
                config.write(_SSH_CONF.format(port=port, folder=folder, host=host))
                inside = f"hostname {host}; exec {sshd} -D -f {settings}"
                found.daemons[host] = subprocess.Popen(
                    [
                        "unshare",
                        "--pid",
                        "--fork",
                        "--kill-child",
                        "--mount-proc",
                        "--uts",
                        "sh",
                        "-c",
                        inside,
                    ]
                )
        for host in names:
            wait_for(lambda host=host: found.start(host, "true").wait() == 0, f"ssh {host}")
        yield found
    finally:
        for daemon in found.daemons.values():
            daemon.kill()
            daemon.wait()
