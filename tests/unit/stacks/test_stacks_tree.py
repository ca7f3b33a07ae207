from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.model import Frame
from unhang.stacks.tree.prefix_tree import ROOT, StackTree, from_rows, from_stacks, merge
from unhang.stacks.tree.treefile import from_bytes, is_tree, to_bytes

names = st.sampled_from("abcd")
stacks = st.lists(
    st.tuples(st.integers(0, 40), st.lists(names, max_size=6).map(tuple)), max_size=30
)


def frames_of(stack: tuple[str, ...]) -> tuple[Frame, ...]:
    """Frames by the names of their functions."""
    return tuple(Frame(name, "t.py", 1) for name in stack)


def tree_of(stacks: list[tuple[int, tuple[str, ...]]]) -> StackTree:
    """The tree of stacks given by names, outermost first."""
    return from_stacks((rank, frames_of(stack)) for rank, stack in stacks)


def contents(tree: StackTree) -> set[tuple[int, tuple[str, ...]]]:
    """The stacks that are in a tree, by walking it."""
    found = set()
    todo: list[tuple[int, tuple[str, ...]]] = [(ROOT, ())]
    while todo:
        node, path = todo.pop()
        found |= {(int(rank), path) for rank in tree.ends(node)}
        todo += [(child, (*path, tree.frame_of(child).function)) for child in tree.children(node)]
    return found


def test_ranks_split_where_their_stacks_do() -> None:
    """Eight ranks share the outer frames; one leaves the others further in."""
    usual = ("main", "step", "all_reduce")
    tree = tree_of([(r, usual) for r in range(8) if r != 5] + [(5, ("main", "load"))])
    (main,) = tree.children(ROOT)
    by_name = {tree.frame_of(n).function: tree.ranks(n).tolist() for n in tree.children(main)}
    assert tree.ranks().tolist() == list(range(8))
    assert by_name == {"step": [0, 1, 2, 3, 4, 6, 7], "load": [5]}
    assert len(tree) == 5


@settings(max_examples=100, deadline=None)
@given(stacks)
def test_nothing_is_lost_and_prefixes_are_shared(
    given_stacks: list[tuple[int, tuple[str, ...]]],
) -> None:
    """A tree holds exactly the stacks it was made of, one node a distinct prefix."""
    tree = tree_of(given_stacks)
    prefixes = {stack[:i] for _, stack in given_stacks for i in range(len(stack) + 1)} | {()}
    assert contents(tree) == set(given_stacks)
    assert len(tree) == len(prefixes)
    assert tree.ranks().tolist() == sorted({rank for rank, _ in given_stacks})


@settings(max_examples=100, deadline=None)
@given(st.lists(stacks, max_size=5), st.randoms())
def test_merging_in_any_grouping_gives_the_same_tree(
    parts: list[list[tuple[int, tuple[str, ...]]]], random: object
) -> None:
    """One step or many, in any order, through bytes or not: the contents are those of all."""
    trees = [from_bytes(to_bytes(tree_of(part))) for part in parts]
    at_once = merge(trees)
    stepwise = merge([])
    random.shuffle(trees)  # type: ignore[attr-defined]  # hypothesis types it as object
    for tree in trees:
        stepwise = merge([stepwise, tree])
    everything = {pair for part in parts for pair in part}
    assert contents(at_once) == contents(stepwise) == everything
    assert len(at_once) == len(stepwise)


def test_a_wide_level_is_sorted_instead_of_counted() -> None:
    """Many distinct frames under many parents take the other way through the code."""
    rng = np.random.default_rng(7)
    frames = [Frame(f"f{i}", "t.py", i) for i in range(5_000)]
    ids = rng.integers(0, 5_000, (3_000, 3))
    tree = from_rows(frames, np.arange(3_000), np.arange(3_001) * 3, ids.ravel())
    wanted = {(i, tuple(f"f{j}" for j in row)) for i, row in enumerate(ids.tolist())}
    assert contents(tree) == wanted
    assert contents(merge([tree, tree])) == wanted


def test_a_file_of_consecutive_ranks_stays_small() -> None:
    """Rank sets are written as runs, so that 100,000 equal ranks are a few bytes."""
    tree = tree_of([(rank, ("main", "step")) for rank in range(100_000)])
    data = to_bytes(tree)
    assert len(data) < 400
    assert is_tree(data)
    assert from_bytes(data).ranks().tolist() == list(range(100_000))


def broken(**changes: object) -> bytes:
    """A tree's file with a changed header."""
    line, _, body = to_bytes(tree_of([(0, ("a",)), (1, ("a", "b"))])).partition(b"\n")
    return json.dumps(json.loads(line) | changes).encode() + b"\n" + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1]",
        broken(schema="unhang.stacktree/2"),
        broken(nodes=10**12),
        broken(nodes=-1),
        broken(runs=7),
        broken(frames=[["a", "t.py", 1]]),
        broken(frames=7),
        broken()[:-3],
        broken().partition(b"\n")[0] + b"\n" + zlib.compress(b"\xff" * 48),
        broken().partition(b"\n")[0] + b"\n" + zlib.compress(b"\1" * 48),
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    """Wrong lengths, indices outside, cut or padded bodies: ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        from_bytes(data)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_flipped_byte_never_harms(data: st.DataObject) -> None:
    """Whatever is flipped: either a tree that holds together or ValueError."""
    whole = bytearray(to_bytes(tree_of([(0, ("a",)), (1, ("a", "b")), (2, ("c",))])))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        tree = from_bytes(bytes(whole))
    except ValueError:
        return
    contents(tree)
