"""The heartbeat: what one process stores, another reads, even of a dead one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.record.calls import sites
from unhang.record.contact import beat as writing
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import SLOT_BYTES, SLOTS, GroupBeat, Phase, Word
from unhang.record.contact.heartbeat import read_heartbeat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "1.beat"


def here() -> FrameType:
    """The frame of the caller."""
    return sys._getframe(1)


def test_what_is_stored_is_read(path: Path) -> None:
    """Whole-object equality, but for the times."""
    beat = Beat(path, pid=7, start_ticks=8)
    beat.set(Word.PHASE, Phase.READY)
    beat.set(Word.RANK, 3)
    beat.set(Word.WORLD_SIZE, 4)
    beat.step(12)
    beat.entered(here(), "send", "0")
    line = here().f_lineno - 1
    beat.enqueued()
    beat.waiting()
    groups = (
        GroupBeat("gloo", 0, 9, -1, 8, "0", "default_pg"),
        GroupBeat("unhang", 1, 2, -1, 1),
    )
    beat.tick(list(groups), 5, 1)
    read = read_heartbeat(path)
    assert read is not None
    assert (read.pid, read.start_ticks, read.phase, read.rank, read.world_size, read.step) == (
        7, 8, "ready", 3, 4, 12,
    )  # fmt: skip
    assert (read.calls, read.enqueued, read.waits, read.waited) == (1, 1, 1, 0)
    assert (read.op, read.group, read.file, read.line, read.function) == (
        "send", "0", __file__, line, "test_what_is_stored_is_read",
    )  # fmt: skip
    assert read.groups == groups
    assert 0 < read.step_ns <= read.call_ns <= read.tick_ns
    assert read.last_ns == read.call_ns


def test_where_the_program_was_seen_last(path: Path) -> None:
    """The newer of its last call and what was seen of it; half a text is never read."""
    beat = Beat(path, pid=7, start_ticks=8)
    beat.entered(here(), "send", "0")
    for _ in range(3):
        beat.seen(here())
        line = here().f_lineno - 1
        read = read_heartbeat(path)
        assert read is not None
        assert (read.op, read.last_places[0][:3]) == (
            "send", ("test_where_the_program_was_seen_last", __file__, line),
        )  # fmt: skip
    beat.entered(here(), "recv", "0")
    read = read_heartbeat(path)
    assert read is not None
    assert read.last_places[0][2] == read.line == here().f_lineno - 3
    assert (read.seen_line, read.seen_file) == (line, __file__)


def test_where_the_program_asks_to_end_is_kept_for_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves its callers one by one, and may be seen in one of them; it may also go on."""
    beat, now_ns = Beat(path, pid=7, start_ticks=8), 10**18
    monkeypatch.setattr("unhang.record.contact.beat.monotonic_ns", lambda: now_ns)

    def ends() -> None:
        beat.seen(here(), leaves=True)

    ends()
    for later_s, function in (
        (1, "ends"),
        (4, "test_where_the_program_asks_to_end_is_kept_for_a_while"),
    ):
        now_ns = 10**18 + later_s * 10**9
        beat.seen(here())
        read = read_heartbeat(path)
        assert read is not None
        assert read.seen_function == function


def test_what_the_program_says_that_it_does_is_kept(path: Path) -> None:
    """In words of its own, until it says that it is over."""
    beat = Beat(path, pid=7, start_ticks=8)
    for activity in ("evaluation", "checkpoint", ""):
        beat.tell(activity)
        read = read_heartbeat(path)
        assert read is not None
        assert (read.activity, read.file, read.last_places) == (activity, "", [])


def test_the_roots_of_the_last_calls_are_told_with_their_numbers(path: Path) -> None:
    """Two at most, one right after the other: calls without a root come between."""

    def told(beat: Beat, root: int | None) -> tuple[tuple[int, int], ...]:
        beat.entered(here(), "broadcast" if root is not None else "all_reduce", "0")
        if root is not None:
            beat.rooted(root)
        read = read_heartbeat(path)
        assert read is not None
        return read.roots

    beat = Beat(path, pid=7, start_ticks=8)
    assert [told(beat, root) for root in (None, 3, 0, None, 70_000, 5)] == [
        (),
        ((2, 3),),
        ((3, 0), (2, 3)),
        ((3, 0), (2, 3)),
        (),  # a number that is not kept
        ((6, 5),),
    ]


def test_what_never_happened_is_not_invented(path: Path) -> None:
    """A fresh heartbeat has no rank, no step and no place."""
    Beat(path, pid=7, start_ticks=8)
    read = read_heartbeat(path)
    assert read is not None
    assert (read.rank, read.world_size, read.step, read.file, read.last_ns) == (
        None, None, None, "", 0,
    )  # fmt: skip
    assert read.last_places == []


@pytest.mark.parametrize("content", [b"", b"x" * 65536, b"\0" * 65536, b"x" * 70000])
def test_other_files_are_no_heartbeats(path: Path, content: bytes) -> None:
    """Nothing is guessed from them."""
    path.write_bytes(content)
    assert read_heartbeat(path) is None


def test_another_version_is_not_read(path: Path) -> None:
    """Its words may mean something else."""
    Beat(path, pid=7, start_ticks=8).set(Word.VERSION, 99)
    assert read_heartbeat(path) is None


def test_links_and_absent_files_are_not_read(path: Path, tmp_path: Path) -> None:
    """A link could lead anywhere."""
    assert read_heartbeat(path) is None
    Beat(path, pid=7, start_ticks=8)
    (tmp_path / "link").symlink_to(path)
    assert read_heartbeat(tmp_path / "link") is None


def test_the_file_is_private_and_never_taken_over(path: Path) -> None:
    """Mode 0600; a file that is there is somebody's."""
    Beat(path, pid=7, start_ticks=8)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Beat(path, pid=7, start_ticks=8)


def test_a_full_disk_is_an_error_and_not_a_signal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are taken when the file is made: later stores cannot fail."""

    def full(_handle: int, _start: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Beat(path, pid=7, start_ticks=8)


def test_many_places_share_few_slots(path: Path) -> None:
    """More places than slots: the last one is always right."""
    beat = Beat(path, pid=7, start_ticks=8)
    for number in range(SLOTS * 2 + 3):
        beat.entered(here(), f"op{number}", "0")
        if number % 97 == 0:
            read = read_heartbeat(path)
            assert read is not None
            assert (read.op, read.file) == (f"op{number}", __file__)
    read = read_heartbeat(path)
    assert read is not None
    assert read.op == f"op{SLOTS * 2 + 2}"


@given(st.text(max_size=300), st.text(max_size=80), st.text(max_size=400), st.text(max_size=90))
def test_a_place_always_fits_its_slot(op: str, group: str, file: str, function: str) -> None:
    """Of a long path the end is kept, whatever the texts hold."""
    text = writing._place(op, group, file, 123456, function)
    assert len(text) <= SLOT_BYTES - 2


@pytest.mark.parametrize("file", ["torch/distributed/x.py", "typing_extensions.py"])
def test_frames_of_torch_and_of_ours_are_no_places(
    monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The program's line is the innermost one outside torch, its decorators, and unhang."""
    torch_like = compile("def call(work):\n    return work()\n", f"/site/{file}", "exec")
    scope: dict[str, object] = {}
    exec(torch_like, scope)  # noqa: S102 - a function that seems to come from torch

    class Torch:
        __file__ = "/site/torch/__init__.py"

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    monkeypatch.setattr(sites, "MACHINERY", sites._Machinery())
    frame = scope["call"](lambda: sys._getframe(1))  # type: ignore[operator]
    site = sites.site_frame(frame)
    assert site is not None
    assert site.f_code.co_name == "test_frames_of_torch_and_of_ours_are_no_places"


def test_captured_stacks_resolve_to_the_lines_of_the_moment() -> None:
    """As traceback would have had them then, innermost first."""
    raw = sites.capture(here())
    line = here().f_lineno - 1
    frames = sites.frames_of(raw)
    assert frames[0] == {
        "name": "test_captured_stacks_resolve_to_the_lines_of_the_moment",
        "filename": __file__,
        "line": line,
    }


def test_deep_stacks_are_cut() -> None:
    """At the outer end, so that the program's line stays."""

    def down(levels: int) -> sites.RawStack:
        return down(levels - 1) if levels else sites.capture(here())

    raw = down(sites.MAX_FRAMES * 2)
    assert len(sites.frames_of(raw)) == sites.MAX_FRAMES


def test_of_long_names_of_groups_the_beginning_is_kept(path: Path) -> None:
    """As many groups as fit, each with its own; none runs into the places behind them."""
    beat = Beat(path, pid=7, start_ticks=8)
    beat.entered(here(), "send", "0")
    many = [GroupBeat("nccl", n, 1, -1, 0, f"{n:02}" * 20, "tensor_parallel") for n in range(70)]
    beat.tick(many, 0, 0)
    read = read_heartbeat(path)
    assert read is not None
    assert [group.name for group in read.groups] == [f"{n:02}" * 4 for n in range(64)]
    assert {group.description for group in read.groups} == {"tensor_para"}
    assert read.op == "send"
