"""A real cluster on one machine, for tests: two nodes that run slurmd and sshd.

Each node is a namespace of process ids and of the host name, so it sees its own processes only, and
all that runs on it ends with it. Munge has a key of its own, ports are free ones, ssh has keys of
its own. It needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from patience import PATIENCE_S, wait_for
from ports import free_ports

NODES = ("n1", "n2")
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--", "sh", "-c")


def why_not() -> str:
    """Why no cluster can be made here; empty if it can."""
    if os.geteuid() != 0:
        return "the daemons of a cluster need root"
    if shutil.which("unshare") is None:
        return "not installed: unshare"
    tried = subprocess.run([*_UNSHARE, "hostname n1"], capture_output=True, text=True, check=False)
    return f"no namespaces for nodes here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        environ: Makes SLURM's commands find it.
        ssh_config: For `ssh -F`; the hosts are the names of the nodes.
        nodes: What each node runs in, by name.
    """

    folder: Path
    environ: dict[str, str]
    ssh_config: Path
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *words: str) -> str:
        """Output of one of SLURM's commands."""
        done = subprocess.run(
            words, env=self.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout

    def submit(self, script: Path, *words: str) -> str:
        """Start a batch script on both nodes; returns the id of the job."""
        settled = ("--parsable", "--nodes=2", "--no-kill", "--no-requeue")
        return self.run("sbatch", *settled, *words, str(script)).strip()

    def ssh(self, node: str, command: str) -> int:
        """Run a command on a node; returns its exit code."""
        words = ["ssh", "-F", str(self.ssh_config), "-o", "ConnectTimeout=60", node, command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE_S)
        return done.returncode

    def start_slurmd(self, node: str) -> None:
        """Start SLURM's daemon on a node."""
        assert self.ssh(node, f"SLURM_CONF={self.environ['SLURM_CONF']} slurmd -N {node}") == 0

    def stop_slurmd(self, node: str) -> None:
        """Make a node unreachable for SLURM; what runs there goes on."""
        assert self.ssh(node, f"kill -KILL $(cat {self.folder}/slurmd-{node}.pid)") == 0


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
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1
ReturnToService=2
FirstJobId={first_job}
SlurmdTimeout=300
KillWait=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
_SSHD_CONF = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd-{node}.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
"""
_SSH_CONF = """\
Host {node}
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster with two nodes, end it with all that runs in it."""
    for path in (folder, *folder.parents):  # munge wants its folders readable by all
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(0o755 | (path.stat().st_mode & 0o7000))
    conf = folder / "slurm.conf"
    made = Cluster(folder, {**os.environ, "SLURM_CONF": str(conf)}, folder / "ssh_config")
    (folder / "state").mkdir()
    conf.write_text(
        _SLURM_CONF.format(
            host=socket.gethostname(),
            ports=free_ports(3),
            folder=folder,
            first_job=1_000 + os.getpid() * 10,  # the jobs of another cluster here are seen too
        )
    )
    try:
        _start_munge(folder / "munge")
        subprocess.run(["slurmctld"], env=made.environ, check=True, timeout=PATIENCE_S)
        _start_nodes(made)
        for node in NODES:
            wait_for(lambda node=node: made.ssh(node, "true") == 0, f"ssh {node}")
            made.start_slurmd(node)
        wait_for(lambda: made.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"], "idle")
        yield made
    finally:
        for node in made.nodes.values():
            node.kill()
            node.wait()
        for pid_file in (folder / "slurmctld.pid", folder / "munge" / "pid"):
            with suppress(OSError, ValueError):
                os.kill(int(pid_file.read_text()), signal.SIGTERM)


def _start_munge(folder: Path) -> None:
    folder.mkdir()
    key = folder / "key"
    key.write_bytes(os.urandom(1_024))
    key.chmod(0o400)
    names = ("key-file=key", "socket=socket", "pid-file=pid", "log-file=log", "seed-file=seed")
    options = [f"--{name}".replace("=", f"={folder}/") for name in names]
    subprocess.run(["munged", "--force", *options], check=True, timeout=PATIENCE_S)


def _start_nodes(made: Cluster) -> None:
    folder = made.folder
    for key in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    told = ""
    for node, port in zip(NODES, free_ports(len(NODES)), strict=True):
        settings = folder / f"sshd-{node}.conf"
        settings.write_text(_SSHD_CONF.format(port=port, folder=folder, node=node))
        told += _SSH_CONF.format(port=port, folder=folder, node=node)
        inside = f"hostname {node}; {sshd} -D -f {settings}"  # the shell stays, and reaps orphans
        made.nodes[node] = subprocess.Popen([*_UNSHARE, inside])
    made.ssh_config.write_text(told)
