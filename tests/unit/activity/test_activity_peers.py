"""The other end of the connection in which a process waits, by what /proc has of it."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import wait_for
from unhang.activity.peers import Peer, peer_of

ROW = "   0: {} {} {} 00000000:00000000 00:00000000 00000000  1000        0 {} 1"


def process(proc: Path, pid: int, call: str, *sockets: int, ppid: int = 1) -> None:
    """A process that stands in a system call, with its sockets as descriptors from 3 on."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "syscall").write_text(call)
    (folder / "cmdline").write_text("python\0serve.py")
    (folder / "stat").write_text(f"{pid} (python) S {ppid} " + "0 " * 17 + "5 0 0")
    for at, inode in enumerate(sockets):
        (folder / "fd" / str(3 + at)).symlink_to(f"socket:[{inode}]")


def connections(proc: Path, pid: int, *rows: tuple[str, str, str, int]) -> None:
    """What the kernel lists for the namespace of a process."""
    folder = proc / str(pid) / "net"
    folder.mkdir()
    (folder / "tcp").write_text("\n".join(["  sl", *(ROW.format(*row) for row in rows)]))


OURS, THEIRS = "0100007F:9C40", "0100007F:1F40"
RECEIVES = "45 0x3 0x7f0 0x1 0x0 0x0 0x0 0x7ffc 0x7f1"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc of a machine whose system calls have known numbers."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def test_the_process_at_the_other_end_is_found(proc: Path) -> None:
    """By the connection that is the same the other way round."""
    process(proc, 10, RECEIVES, 71)
    process(proc, 20, "running", 72)
    connections(proc, 10, (OURS, THEIRS, "01", 71), (THEIRS, OURS, "01", 72))
    assert peer_of(10, proc) == Peer("127.0.0.1:8000", 20, "python serve.py")


def test_a_connection_that_was_not_accepted_leads_to_the_listener(proc: Path) -> None:
    """No process holds its other end yet."""
    process(proc, 10, RECEIVES, 71)
    process(proc, 20, "running", 73)
    listens = ("00000000:1F40", "00000000:0000", "0A", 73)
    connections(proc, 10, (OURS, THEIRS, "01", 71), (THEIRS, OURS, "01", 0), listens)
    assert peer_of(10, proc).pid == 20


def test_an_end_elsewhere_has_an_address_alone(proc: Path) -> None:
    """Of IPv6, too; an IPv4 address within one is told as that."""
    process(proc, 10, RECEIVES, 71)
    connections(proc, 10, (OURS, "0200000A:1F40", "01", 71))
    assert peer_of(10, proc) == Peer("10.0.0.2:8000")
    here = "0000000000000000FFFF00000100007F:9C40"
    mapped = "0000000000000000FFFF00000200000A:1F40"
    (proc / "10/net/tcp6").write_text("head\n" + ROW.format(here, mapped, "01", 71))
    (proc / "10/net/tcp").unlink()
    assert peer_of(10, proc) == Peer("10.0.0.2:8000")
    own = "000000FD000000000000000002000000:1F40"
    (proc / "10/net/tcp6").write_text("head\n" + ROW.format(here, own, "01", 71))
    assert peer_of(10, proc) == Peer("[fd00::2]:8000")


def test_events_of_one_connection_are_a_wait_for_it(proc: Path) -> None:
    """An event loop with several connections waits for none of them in particular."""
    process(proc, 10, "232 0x9 0x7f0 0x1 0xffffffff 0x0 0x0 0x7ffc 0x7f1", 71, 74)
    (proc / "10/fdinfo").mkdir()
    events = proc / "10/fdinfo/9"
    events.write_text("pos:\t0\ntfd:        3 events:       19 data:  3\n")
    connections(proc, 10, (OURS, THEIRS, "01", 71), (OURS, "0200000A:1F40", "01", 74))
    assert peer_of(10, proc).address == "127.0.0.1:8000"
    events.write_text("tfd:        3 events:  19\ntfd:        4 events:  19\n")
    assert peer_of(10, proc) == Peer()


def test_what_a_process_started_itself_is_its_own(proc: Path) -> None:
    """Its workers are no server that others should look at."""
    process(proc, 10, RECEIVES, 71)
    process(proc, 20, "running", 72, ppid=10)
    connections(proc, 10, (OURS, THEIRS, "01", 71), (THEIRS, OURS, "01", 72))
    assert peer_of(10, proc) == Peer()


def test_a_thread_of_the_process_itself_is_no_server_either(proc: Path) -> None:
    """Both ends are its own."""
    process(proc, 10, RECEIVES, 71, 72)
    connections(proc, 10, (OURS, THEIRS, "01", 71), (THEIRS, OURS, "01", 72))
    assert peer_of(10, proc) == Peer()


LOCKS = """1: POSIX  ADVISORY  WRITE 20 fe:00:70 0 EOF
2: FLOCK  ADVISORY  WRITE 20 fe:00:71 0 EOF
2: -> FLOCK  ADVISORY  WRITE 9 fe:00:71 0 EOF
2: -> FLOCK  ADVISORY  WRITE 10 fe:00:71 0 EOF
"""


@pytest.mark.parametrize("call", ["73 0x3 0x2 0x0", "72 0x3 0x7 0x7ffe"])
def test_who_waits_for_the_lock_of_a_file_waits_for_its_holder(proc: Path, call: str) -> None:
    """By the kernel's list of locks, as flock and fcntl make them; a holder that ended is none."""
    process(proc, 10, call)
    (proc / "10/fd/3").symlink_to("/data/cache.lock")
    process(proc, 20, "running")
    (proc / "locks").write_text(LOCKS)
    assert peer_of(10, proc) == Peer(lock="/data/cache.lock"), "one that it started holds it"
    (proc / "20/fd/7").symlink_to("/data/cache.lock")
    assert peer_of(10, proc) == Peer("", 20, "python serve.py", "/data/cache.lock")
    (proc / "locks").write_text(LOCKS.replace("WRITE 20 fe:00:71", "WRITE 21 fe:00:71"))
    assert peer_of(10, proc) == Peer(lock="/data/cache.lock")
    (proc / "locks").write_text(
        LOCKS.replace("-> FLOCK  ADVISORY  WRITE 10", "-> FLOCK x WRITE 11")
    )
    assert peer_of(10, proc) == Peer(), "it asks for it, and does not wait"


def test_a_lock_that_a_process_or_one_of_its_own_holds_leads_to_no_other(proc: Path) -> None:
    """As with connections."""
    process(proc, 10, "73 0x3 0x2 0x0")
    (proc / "10/fd/3").symlink_to("/data/cache.lock")
    process(proc, 20, "running", ppid=10)
    (proc / "20/fd/7").symlink_to("/data/cache.lock")
    (proc / "locks").write_text(LOCKS)
    assert peer_of(10, proc) == Peer()


@pytest.mark.parametrize("way", ["flock", "lockf"])
def test_a_living_holder_of_a_lock_is_found(tmp_path: Path, way: str) -> None:
    """By this machine's kernel, as it lists flock and lockf."""
    file = tmp_path / "cache.lock"
    program = (
        f"import fcntl; file = open({str(file)!r}, 'w'); fcntl.{way}(file, 2); print(flush=True)"
    )
    own = [sys.executable, "-c", f"{program}; input()"]
    with (
        subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holds,
        subprocess.Popen(
            [sys.executable, "-c", f"input(); {program}"], stdin=subprocess.PIPE
        ) as waits,
    ):
        try:
            assert holds.stdout is not None
            assert waits.stdin is not None
            assert holds.stdout.readline()
            waits.stdin.write(b"\n")
            waits.stdin.flush()
            wait_for(lambda: bool(peer_of(waits.pid).lock), "it waits for the lock")
            found = peer_of(waits.pid)
        finally:
            waits.kill()
            holds.kill()
    assert (found.pid, found.lock) == (holds.pid, str(file))


@pytest.mark.parametrize("call", ["running", "", "35 0x7ffc 0x0 0x0 0x0 0x0 0x0", "45 0x63 0x0"])
def test_who_waits_on_no_connection_has_no_peer(proc: Path, call: str) -> None:
    """It runs, sleeps, or the descriptor is none of a connection."""
    process(proc, 10, call, 71)
    connections(proc, 10, (OURS, THEIRS, "01", 71))
    assert peer_of(10, proc) == Peer()
    assert peer_of(99, proc) == Peer()


def test_a_real_process_is_seen_in_a_real_call() -> None:
    """It receives from this process, which answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)"
        with subprocess.Popen([sys.executable, "-c", code]) as child:
            with server.accept()[0]:
                wait_for(
                    lambda: peer_of(child.pid).address == f"127.0.0.1:{port}",
                    "the other end of the child's connection",
                )
            child.wait()
