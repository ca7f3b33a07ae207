"""The prefix tree as text: ranks as ranges, the odd ones first.

A function of the tree alone; what stacks mean stands in it already, as facts. Text from outside is
made printable here, and nothing is coloured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from unhang.model import Frame
from unhang.stacks.tree.gathering import FACT, FOLD
from unhang.stacks.tree.prefix_tree import ROOT, StackTree
from unhang.wording import fold_ranks, printable

_MOST_BRANCHES = 12
_MOST_SPLITS = 100
_LONGEST = 160


class _Marks(NamedTuple):
    """What the lines of a tree are made of."""

    branch: str
    last: str
    pipe: str


_UNICODE = _Marks("├─ ", "└─ ", "│  ")
_ASCII = _Marks("+- ", "`- ", "|  ")
_GAP = "   "


class _Place(NamedTuple):
    """Frames that all of its members share, and the node at which they part or end."""

    members: list[int]
    frames: list[Frame]
    end: int


def draw(
    tree: StackTree, *, unicode: bool = True, full: bool = False, most: int = _MOST_BRANCHES
) -> str:
    """Draw a tree made of `unhang.stacks.tree.gathering.rows_of`.

    Args:
        tree: What to draw.
        unicode: Branches as lines, else in ASCII.
        full: Whole paths of files, and every branch.
        most: How many branches of one node to draw; the rest is counted.
    """
    names = {} if full else _short_names(tree.frames)
    marks = _UNICODE if unicode else _ASCII
    most = len(tree) if full else most
    lines: list[str] = []
    for lane in sorted(tree.children(ROOT), key=lambda node: _lane_order(tree, node)):
        members = tree.ranks(lane).tolist()
        title = printable(tree.frame_of(lane).function, _LONGEST)
        lines += ["", f"{title} {fold_ranks(members)} ({len(members)})"]
        shared = _follow(tree, lane)
        lines += [f"  {_line(frame, names)}" for frame in shared.frames[1:]]
        lines += _branches(tree, shared.end, "  ", marks, names, most)
    text = "".join(f"{line}\n" for line in lines[1:])
    if not unicode:
        text = text.replace("…", "...").encode("ascii", "backslashreplace").decode("ascii")
    return text


def _lane_order(tree: StackTree, lane: int) -> tuple[bool, bool, str]:
    name = tree.frame_of(lane).function
    return name != "ranks", name.startswith("thread"), name


def _follow(tree: StackTree, node: int) -> _Place:
    """Go inwards as long as no rank leaves."""
    members = tree.ranks(node).tolist()
    frames = [tree.frame_of(node)]
    while len(below := tree.children(node)) == 1 and not len(tree.ends(node)):
        node = below[0]
        frames.append(tree.frame_of(node))
    return _Place(members, frames, node)


def _branches(  # what a recursion hands down
    tree: StackTree,
    node: int,
    indent: str,
    marks: _Marks,
    names: Mapping[str, str],
    most: int,
) -> Iterator[str]:
    """Draw what lies below a node, fewest members first."""
    places = [_follow(tree, child) for child in tree.children(node)]
    places.sort(key=lambda place: (len(place.members), place.members[:1]))
    if len(indent) > _MOST_SPLITS * len(_GAP):
        yield f"{indent}… {len(places)} places further in"
        return
    for index, place in enumerate(places[:most]):
        is_last = index == len(places) - 1
        inner = indent + (_GAP if is_last else marks.pipe)
        head = f"{fold_ranks(place.members, limit=8)}: "
        first, *others = (_line(frame, names) for frame in place.frames)
        yield f"{indent}{marks.last if is_last else marks.branch}{head}{first}"
        yield from (f"{inner}  {text}" for text in others)
        yield from _branches(tree, place.end, f"{inner}  ", marks, names, most)
    if rest := places[most:]:
        members = {member for place in rest for member in place.members}
        where = fold_ranks(members, limit=4)
        yield f"{indent}{marks.last}… {len(rest)} more places of {len(members)}: {where}"


def _line(frame: Frame, names: Mapping[str, str]) -> str:
    function = printable(frame.function, _LONGEST)
    if frame.file == FACT:
        return f"= {function}"
    if frame.file == FOLD or not frame.file:
        return function
    file = printable(names.get(frame.file, frame.file), _LONGEST)
    return f"{function} ({file}:{frame.line})" if frame.line else f"{function} ({file})"


def _short_names(frames: Iterable[Frame]) -> dict[str, str]:
    """Files without their folders, where that leaves no doubt which one is meant."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for frame in frames:
        by_name[frame.file.rpartition("/")[2]].add(frame.file)
    return {path: name for name, paths in by_name.items() if len(paths) == 1 for path in paths}
