"""Numbers of processes: a container's are not ours, and the kernel tells both."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.record.contact import marks
from unhang.record.contact.marks import Mark
from unhang.record.namespaces import Named, Numbers

HERE, BELOW, BESIDE = "pid:[4026531836]", "pid:[4026532201]", "pid:[4026532305]"


def process(proc: Path, pid: int, namespace: str, numbers: str, began: int) -> None:
    """A process as /proc shows it; of its status only the line that counts."""
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "ns" / "pid").symlink_to(namespace)
    (folder / "status").write_text(f"Name:\tpython\nNSpid:\t{numbers}\nNSpgid:\t{numbers}\n")
    (folder / "stat").write_text(f"{pid} (a) b) S {'0 ' * 18}{began} 0\n")


def test_a_process_below_has_a_number_here_for_ever(tmp_path: Path) -> None:
    """By its namespace, its number there and when it began; also when it has ended."""
    process(tmp_path, 2101, BELOW, "2101\t4", 77)
    process(tmp_path, 2102, BELOW, "2102\t5", 78)
    process(tmp_path, 4, HERE, "4", 77)
    numbers, named = Numbers(tmp_path), Named(BELOW, 4, 77)
    assert numbers.of([named]) == {named: 2101}
    (tmp_path / "2101").rename(tmp_path / "ended")
    assert numbers.of([named, Named(BELOW, 4, 99)]) == {named: 2101}
    assert numbers.of([Named(BESIDE, 4, 77)]) == {}


def test_a_kernel_that_tells_no_numbers_finds_none(tmp_path: Path) -> None:
    """Before Linux 4.1, and where a process ends while it is looked at."""
    process(tmp_path, 2101, BELOW, "", 77)
    process(tmp_path, 2102, BELOW, "2102\t4", 77)
    (tmp_path / "2102" / "status").unlink()
    assert Numbers(tmp_path).of([Named(BELOW, 4, 77)]) == {}


def test_marks_of_a_container_name_processes_as_they_are_numbered_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another host, or of a namespace that is not below, stay as they are: of another."""
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "run"))
    process(tmp_path / "proc", os.getpid(), BELOW, f"{os.getpid()}\t4", marks.start_ticks())
    monkeypatch.setattr(marks, "_NUMBERS", Numbers(tmp_path / "proc"))
    own = Mark(4, marks.start_ticks(), socket.gethostname(), BELOW, job_id="job")
    others = [replace(own, pid=5, host="node02"), replace(own, pid=6, pid_ns=BESIDE)]
    for mark in (own, *others):
        marks.write_mark(marks.job_dir("job", marks.runtime_root()), mark)
    here = replace(own, pid=os.getpid(), pid_ns=marks.pid_namespace())
    read = marks.read_marks("job")
    assert sorted(read, key=lambda mark: mark.pid) == sorted(
        [here, *others], key=lambda mark: mark.pid
    )
    assert [mark.pid for mark in read if marks.is_of_here(mark)] == [os.getpid()]
    assert marks.alive(here)
