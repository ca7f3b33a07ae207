from __future__ import annotations

import json

import pytest

from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.tree.drawing import draw
from unhang.stacks.tree.exports import collapsed, speedscope
from unhang.stacks.tree.gathering import fact_of, folded, has_moved, rows_of
from unhang.stacks.tree.prefix_tree import StackTree, from_stacks

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MAIN = Frame("main", "/home/user/train.py", 88)
MODULE = Frame("<module>", "/home/user/train.py", 90)
WAITING = (Frame("all_reduce", C10D, 3245), MAIN, MODULE)
LOADING = (Frame("Loader.__next__", "/home/user/data.py", 31), MAIN, MODULE)


def look(  # one look at a process, with what tests vary
    rank: int, frames: tuple[Frame, ...], number: int = 0, *, cpu_s: float = 1.0, **more: object
) -> ProcessSample:
    """One look at a rank with a main thread."""
    thread = ThreadStack("MainThread", 100 + rank, frames, is_main=True)
    fields: dict[str, object] = {"threads": (thread,), "state": "S", "tool": "py-spy"} | more
    return ProcessSample(
        rank, "node01", 100 + rank, sample=number, cpu_s=cpu_s, time_ns=number * 10**9, **fields
    )  # type: ignore[arg-type]  # fields of ProcessSample


def eight(number: int = 0) -> list[ProcessSample]:
    """Eight ranks: 5 loads, 6 is stopped, 7 could not be looked at."""
    samples = [look(rank, WAITING, number) for rank in range(5)]
    samples.append(look(5, LOADING, number))
    samples.append(look(6, WAITING, number, state="T"))
    samples.append(ProcessSample(7, "node01", 107, sample=number, error="no permission: x"))
    return samples


def tree_of(samples: list[ProcessSample], *, full: bool = False) -> StackTree:
    """The tree that the command draws."""
    return from_stacks(rows_of(samples, full=full))


def test_the_odd_ones_come_first() -> None:
    """Fewest ranks first, ranges for the rest, what it means below each."""
    assert draw(tree_of([*eight(0), *eight(1)])) == (
        "ranks 0-7 (8)\n"
        "  ├─ 7: = no stack: no permission: x\n"
        "  └─ 0-6: <module> (train.py:90)\n"
        "       main (train.py:88)\n"
        "       ├─ 5: Loader.__next__ (data.py:31)\n"
        "       │    = waiting for data (__next__); unchanged\n"
        "       ├─ 6: = stopped by a signal (SIGSTOP, SIGTSTP); unchanged\n"
        "       └─ 0-4: = waiting in all_reduce; unchanged\n"
    )


def test_ascii_and_full_paths() -> None:
    """Without Unicode plain lines; --full keeps library frames and whole paths."""
    text = draw(tree_of(eight()[4:6], full=True), unicode=False, full=True)
    assert text == (
        "ranks 4-5 (2)\n"
        "  <module> (/home/user/train.py:90)\n"
        "  main (/home/user/train.py:88)\n"
        f"  +- 4: all_reduce ({C10D}:3245)\n"
        "  |    = waiting in all_reduce\n"
        "  `- 5: Loader.__next__ (/home/user/data.py:31)\n"
        "       = waiting for data (__next__)\n"
    )


def test_files_of_one_name_keep_their_folders() -> None:
    """Two train.py in one tree are told apart."""
    samples = [look(0, (Frame("f", "/a/train.py", 1),)), look(1, (Frame("f", "/b/train.py", 1),))]
    text = draw(tree_of(samples))
    assert "/a/train.py:1" in text
    assert "/b/train.py:1" in text


def test_what_comes_from_outside_cannot_speak_to_the_terminal() -> None:
    """Escape sequences in names are shown, not obeyed."""
    text = draw(tree_of([look(0, (Frame("\x1b[31mf\n", "/a/\x07.py", 1),))]))
    assert "\x1b" not in text
    assert "\\x1b[31mf\\n (\\x07.py:1)" in text


def test_many_places_are_counted() -> None:
    """A thousand ranks at a thousand places do not fill the screen, unless asked to."""
    samples = [look(r, (Frame("f", "/home/user/t.py", r + 1), MODULE)) for r in range(50)]
    text = draw(tree_of(samples))
    assert "… 38 more places of 38" in text
    assert len(text.splitlines()) < 40
    assert "more places" not in draw(tree_of(samples), full=True)


def test_deep_splits_end() -> None:
    """A tree that splits at every one of a thousand levels is cut, not recursed into."""
    deep = tuple(Frame(f"f{i}", "/home/user/t.py", i) for i in range(900))
    samples = [look(r, deep[r:]) for r in range(0, 900, 2)]
    assert "places further in" in draw(tree_of(samples), most=5)


def test_library_frames_fold_between_the_users() -> None:
    """Around the user's frames they vanish, between them one mark stands for all."""
    library = Frame("run", "/usr/lib/python3.11/runpy.py", 1)
    inner = Frame("hook", "/home/user/hooks.py", 2)
    assert folded((library, MODULE, library, library, inner, library)) == (
        MODULE,
        Frame("…", "[fold]", 0),
        inner,
    )
    assert folded((library,)) == (library,)
    assert len(folded((library,) * 9)) == 4


@pytest.mark.parametrize(
    ("first", "second", "cpu_s", "moved", "fact"),
    [
        (WAITING, WAITING, 1.0, False, "waiting in all_reduce; unchanged"),
        (WAITING, WAITING, 1.9, False, "waiting in all_reduce; unchanged, and busy"),
        (WAITING, LOADING, 1.0, True, "waiting for data (__next__); moving"),
        ((), WAITING, 1.0, None, "waiting in all_reduce"),
    ],
)
def test_two_looks_tell_what_moves(
    first: tuple[Frame, ...],
    second: tuple[Frame, ...],
    cpu_s: float,
    moved: bool | None,  # noqa: FBT001 - a table of expectations
    fact: str,
) -> None:
    """Unchanged, moving, or unchanged while it burns a processor."""
    looks = [look(0, first, 0), look(0, second, 1, cpu_s=cpu_s)]
    assert has_moved(looks) is moved
    assert fact_of(looks) == fact


def test_looks_of_different_tools_do_not_compare() -> None:
    """py-spy and faulthandler name frames differently: that is no movement."""
    assert has_moved([look(0, WAITING), look(0, LOADING, 1, tool="gdb")]) is None


def test_threads_that_matter_and_workers_have_lanes() -> None:
    """A thread in a collective and the loader's worker are shown, idle helpers only in full."""
    aside = ThreadStack("pt_autograd_0", 7, (Frame("broadcast", C10D, 1), MODULE))
    idle = ThreadStack("pool_1", 8, (Frame("wait", "/usr/lib/python3.11/threading.py", 1),))
    main = ThreadStack("MainThread", 100, WAITING, is_main=True)
    samples = [
        look(0, (), threads=(main, aside, idle)),
        ProcessSample(-1, "node01", 9, (main,), role="data-loader", parent_rank=0),
    ]
    lanes = [line for line in draw(tree_of(samples)).splitlines() if line[:1].strip()]
    assert lanes == [
        "ranks 0 (1)",
        "data-loader workers of ranks 0 (1)",
        "thread pt_autograd_# of ranks 0 (1)",
    ]
    assert "thread pool_# of ranks" in draw(tree_of(samples, full=True))


def test_collapsed_lines_are_what_flame_graphs_take() -> None:
    """Frames by semicolons, a count at the end; no name can break a line."""
    text = collapsed(tree_of([*eight()[:2], look(2, (Frame("a;b\nc", "/home/user/t.py", 1),))]))
    assert text.splitlines() == [
        (
            "ranks;<module> (/home/user/train.py:90);main (/home/user/train.py:88);"
            "waiting in all_reduce 2"
        ),
        "ranks;a_b_c (/home/user/t.py:1);in user code 1",
    ]


def test_speedscope_files_add_up() -> None:
    """One sample a distinct stack, as wide as its ranks, with frames that exist."""
    document = json.loads(speedscope(tree_of(eight()), "stacks"))
    (profile,) = document["profiles"]
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert (profile["type"], profile["endValue"]) == ("sampled", 8)
    assert sorted(profile["weights"]) == [1, 1, 1, 5]
    frames = len(document["shared"]["frames"])
    assert all(0 <= i < frames for sample in profile["samples"] for i in sample)
