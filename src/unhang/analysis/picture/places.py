"""Where ranks stand as a tree: from looks at processes, else from the stacks in dumps."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.analysis.shared.situation import Situation
from unhang.case import Case
from unhang.model import Frame
from unhang.picture import Branch
from unhang.stacks.tree.gathering import FACT, LANE, folded, rows_of
from unhang.stacks.tree.prefix_tree import ROOT, StackTree, from_stacks

_MOST_BRANCHES = 400


def stack_tree(case: Case, situation: Situation | None) -> tuple[Branch, ...]:
    """The tree of stacks; empty where there are none."""
    rows = [(row.member, row.frames) for row in rows_of(case.samples)]
    if not rows and situation is not None:
        rows = list(_of_dumps(situation))
    if not rows:
        return ()
    tree = from_stacks(rows)
    room = [_MOST_BRANCHES]
    return tuple(_branch(tree, node, room) for node in tree.children(ROOT))


def _of_dumps(situation: Situation) -> Iterator[tuple[int, tuple[Frame, ...]]]:
    """Main threads as dumps have them; else the lines of the calls in which ranks wait."""
    numbers = situation.evidence.ranks.numbers.tolist()
    seen = set()
    for dump in situation.evidence.dumps:
        if dump.main_stack and dump.rank not in seen:
            seen.add(dump.rank)
            yield dump.rank, _outermost_first("when dumped", dump.main_stack)
    for index, row in enumerate(situation.heads.row.tolist()):
        if row >= 0 and numbers[index] not in seen and (frames := situation.frames(row)):
            yield numbers[index], _outermost_first("in the call they wait in", frames)


def _outermost_first(lane: str, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return (Frame(lane, LANE, 0), *folded(tuple(reversed(frames))))


def _branch(tree: StackTree, node: int, room: list[int]) -> Branch:
    """A node and what is below it, as far as there is room."""
    room[0] -= 1
    frame = tree.frame_of(node)
    place = "" if frame.file in (LANE, FACT) or not frame.line else f"{frame.file}:{frame.line}"
    below = tuple(_branch(tree, child, room) for child in tree.children(node) if room[0] > 0)
    return Branch(frame.function, place, tuple(tree.ranks(node).tolist()), below)
