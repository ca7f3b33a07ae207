"""Where ranks stand in the user's code: picking the frame to show, folding equal stacks.

A stack begins in torch; people look for their own line. The frame shown is the innermost one that
is neither torch's, nor the standard library's, nor an installed package's; whole stacks are kept by
reference in the report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct, field

from unhang.analysis.state.columns import Ints
from unhang.case import Case
from unhang.model import Frame
from unhang.report import Site
from unhang.stacks.ownership import shown_frame, without_recorder

_MOST = 8
"""Sites of one role in a finding; the rest is left out."""


class StackBook(Struct):
    """The stacks that a report refers to, numbered in order of first use."""

    case: Case
    used: dict[str, tuple[Frame, ...]] = field(default_factory=dict)
    _ids: dict[tuple[Frame, ...], str] = field(default_factory=dict)

    def refer(self, frames: tuple[Frame, ...]) -> str:
        """Identifier of a stack, our own recorder's frames left out; "" for an empty one."""
        frames = without_recorder(frames) or frames
        if not frames:
            return ""
        identifier = self._ids.get(frames)  # a stack takes long to hash: once
        if identifier is None:
            self._ids[frames] = identifier = f"s{len(self._ids) + 1}"
            self.used[identifier] = frames
        return identifier

    def site(self, ranks: Iterable[int], role: str, frames: tuple[Frame, ...]) -> Site | None:
        """A site for ranks that share a stack; None for an empty stack."""
        frame = shown_frame(frames)
        if frame is None:
            return None
        return Site(
            ranks=tuple(sorted(ranks)),
            role=role,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            stack_id=self.refer(frames),
        )

    def sites_of_dumps(self, ranks: Iterable[int], role: str) -> tuple[Site, ...]:
        """Where main threads stood when dumps were made, folded by stack, for those that say it."""
        ranks_by_stack: dict[tuple[Frame, ...], list[int]] = defaultdict(list)
        wanted = set(ranks)
        for dump in self.case.dumps:
            if dump.rank in wanted and dump.main_stack:
                ranks_by_stack[dump.main_stack].append(dump.rank)
        sites = (self.site(set(own), role, frames) for frames, own in ranks_by_stack.items())
        return tuple(site for site in sites if site is not None)

    def sites_of_rows(self, rows: Ints, role: str) -> tuple[Site, ...]:
        """Sites of calls, folded by stack, most ranks first.

        Args:
            rows: One row per rank.
            role: Of all of these ranks.
        """
        ranks_by_stack: dict[int, list[int]] = defaultdict(list)
        stacks = self.case.calls.stack[rows].tolist()
        ranks = self.case.calls.rank[rows].tolist()
        for stack, rank in zip(stacks, ranks, strict=True):
            if stack >= 0:
                ranks_by_stack[stack].append(rank)
        largest = sorted(ranks_by_stack.items(), key=lambda item: (-len(item[1]), min(item[1])))
        sites = (self.site(own, role, self.case.stacks[stack]) for stack, own in largest[:_MOST])
        return tuple(site for site in sites if site is not None)
