"""What strace wrote before: every form of its lines, waiting, spinning and a start-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.errors import InputError
from unhang.trace.strace_lines import StraceReader
from unhang.trace.syscall_judging import judge_syscalls
from unhang.trace.syscalls import read_strace, strace_files

FORMS = {
    "-f -tt -T": "4711  15:28:01.400000 {call} <0.000004>",
    "-f -ttt": "4711  1795361286.026496 {call}",
    "-f -r": "4711       0.000214 {call}",
    "-f": "4711  {call}",
    "terminal": "[pid  4711] {call}",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_line_is_read(form: str) -> None:
    """With stamps of any sort, and with none."""
    line = FORMS[form].format(call='openat(AT_FDCWD, "/data/x", O_RDONLY) = 3')
    reader = StraceReader()
    reader.feed(line)
    assert dict(reader.traces[4711].counts) == {"openat": 1}
    assert (reader.traces[4711].first_s >= 0) == (form not in ("-f", "terminal"))


def test_descriptors_are_named_where_strace_did_not() -> None:
    """From the calls that opened them, also in children; closed ones are forgotten."""
    reader = StraceReader(7)
    reader.read(
        [
            'openat(AT_FDCWD, "/data/shard-3", O_RDONLY) = 3',
            "clone(child_stack=NULL, flags=SIGCHLD) = 8",
            "close(3) = 0",
            "socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 3",
            'connect(3, {sin_port=htons(6000), sin_addr=inet_addr("10.0.0.2")}) = -1 EINPROGRESS',
            "[pid 8] read(3,  <unfinished ...>",
            "recvfrom(3,  <detached ...>",
        ]
    )  # fmt: skip
    assert reader.traces[8].target == "/data/shard-3"
    assert reader.traces[7].target == "socket to 10.0.0.2:6000"


def test_a_start_up_is_no_spin(tmp_path: Path) -> None:
    """2,319 calls a second, each about another file."""
    file = tmp_path / "strace.txt"
    lines = [
        f"4711  15:28:0{number // 2319}.{number % 2319 * 431:06} "
        f'openat(AT_FDCWD, "/lib/{number}.py", O_RDONLY) = {3 + number % 2} <0.000004>'
        for number in range(2319 * 2)
    ]
    file.write_text("\n".join(lines))
    report = judge_syscalls(read_strace([file]))
    assert (report.status, report.findings) == ("healthy", ())


def test_a_spin_is_told_from_its_file(tmp_path: Path) -> None:
    """The same call with the same result, again and again."""
    file = tmp_path / "strace.txt"
    lines = [
        f"4711  15:28:00.{number * 100:06} recvfrom(5<socket:[9]>, 0x7f, 1) = -1 EAGAIN (busy)"
        for number in range(5000)
    ]
    file.write_text("\n".join(lines))
    report = judge_syscalls(read_strace([file]))
    assert [finding.code for finding in report.findings] == ["UH605"]


def test_a_wait_is_told_from_its_file(tmp_path: Path) -> None:
    """The main thread stays in read; the clock of another thread tells for how long."""
    file = tmp_path / "strace.txt"
    file.write_text(
        '4711  23:59:50.000000 openat(AT_FDCWD, "/mnt/fifo", O_RDONLY) = 3 <0.1>\n'
        "4711  23:59:51.000000 read(3</mnt/fifo>,  <unfinished ...>\n"
        "4712  00:00:21.000000 futex(0x1, FUTEX_WAIT, 0, NULL) = 0 <1.0>\n"
    )  # fmt: skip
    (finding,) = judge_syscalls(read_strace([file])).findings[:1]
    assert finding.summary == "Thread 4711 has been in read on /mnt/fifo for the last 30 s."


def test_a_wait_ends_in_the_words_with_which_strace_lets_go(tmp_path: Path) -> None:
    """As strace 6 writes it to its error output without -q, be it called by its path."""
    file = tmp_path / "strace.txt"
    file.write_text(
        "/usr/bin/strace: Process 4711 attached with 2 threads\n"
        "[pid  4711] 01:24:45.221692 restart_syscall(<... resuming interrupted read ...>"
        "/usr/bin/strace: Process 4711 detached\n <detached ...>\n"
    )
    (trace,) = read_strace([file]).traces
    assert (trace.pid, trace.waiting) == (
        4711,
        "restart_syscall(<... resuming interrupted read ...>",
    )


def test_a_file_for_each_process(tmp_path: Path) -> None:
    """`strace -ff -o log` makes log.4711 and log.4712."""
    for pid in (4711, 4712):
        (tmp_path / f"log.{pid}").write_text("brk(NULL) = 0x5\n+++ exited with 0 +++\n")
    paths = strace_files(str(tmp_path / "log"))
    observed = read_strace(paths)
    assert [trace.pid for trace in observed.traces] == [4711, 4712]
    assert judge_syscalls(observed).status == "healthy"
    assert strace_files(str(tmp_path)) == paths


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """The file is in no traceback, and strace has it."""
    file = tmp_path / "strace.txt"
    file.write_text(
        'write(3</dev/full>, "xxxx"..., 100000) = -1 ENOSPC (No space left on device)\n'
        "+++ exited with 1 +++\n"
    )
    report = judge_syscalls(read_strace([file]))
    assert report.status == "insufficient"
    assert "write on /dev/full: ENOSPC (no space left on device)" in report.summary


def test_helpers_wait_while_the_main_thread_goes_on(tmp_path: Path) -> None:
    """That a pool has no work is no finding."""
    file = tmp_path / "strace.txt"
    lines = ["2  10:00:00.000000 futex(0x1, FUTEX_WAIT, 0, NULL <unfinished ...>"]
    lines += [f'1  10:00:0{n}.000000 read(3</d/{n}>, "x", 1) = 1 <0.01>' for n in range(9)]
    file.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    assert judge_syscalls(read_strace([file])).status == "healthy"


def test_without_stamps_nothing_is_reassuring(tmp_path: Path) -> None:
    """How long a call took is not in the file."""
    file = tmp_path / "strace.txt"
    file.write_text("4711  brk(NULL) = 0x5\n")
    assert judge_syscalls(read_strace([file])).status == "insufficient"


@pytest.mark.parametrize(
    "content",
    [
        b"% time     seconds  usecs/call     calls    errors syscall\n",
        b"print(step)\nloss(model, batch)\n",
        bytes(range(256)) * 40,
    ],
)
def test_a_file_without_a_call_is_refused(content: bytes, tmp_path: Path) -> None:
    """As the table of `strace -c`, a program, and no text at all."""
    file = tmp_path / "strace.txt"
    file.write_bytes(content)
    with pytest.raises(InputError, match="no system call"):
        read_strace([file])
