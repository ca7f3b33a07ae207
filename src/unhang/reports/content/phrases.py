"""One finding in words: who stands where, who waits for whom, why, and what to do next.

The order is what an engineer at 3 a.m. asks first: culprit, victims, reason, next step; then what
proves it and what else it could be. It adds no judgement to what the finding holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from unhang.model import Frame, short_name
from unhang.report import CallSide, Finding, GroupRef, Job, RankStatus, Report, Site, Wait
from unhang.wording import count_of, printable, rank_phrase

MAX_SIDES = 3
MAX_REASONS = 6
MAX_WAITS = 6
MAX_WHY = 2
MAX_FRAMES = 6
MAX_SHAPES = 3
_MAX_WORD = 120

_NOT_WAITING = frozenset({"ok", "idle", "ahead", "behind"})
"""Statuses of ranks that wait in no call: those that were in one have left it."""
_ROLE_LABELS = {
    "culprit": "culprit",
    "victim": "waiting",
    "on": "affected",
    "slowed": "slowed",
    "peer": "peers",
}
_ROLE_ORDER = {role: place for place, role in enumerate(_ROLE_LABELS)}


@dataclass(frozen=True, slots=True)
class Who:
    """How ranks are named: with host and process where they are known."""

    ranks: dict[int, RankStatus] = field(default_factory=dict)

    @classmethod
    def of(cls, report: Report) -> Who:
        """Take names from a report's table of ranks."""
        return cls({status.rank: status for status in report.ranks})

    def phrase(self, ranks: Sequence[int]) -> str:
        """Name ranks; a single one with host and process id."""
        words = rank_phrase(ranks)
        status = self.ranks.get(ranks[0]) if len(ranks) == 1 else None
        if status is None:
            return words
        where = [printable(status.host, 60)] if status.host else []
        where += [f"pid {status.pid}"] if status.pid is not None else []
        return f"{words} ({', '.join(where)})" if where else words

    def victim(self, rank: int, finding: Finding) -> str:
        """What kind of victim a rank is, so that no map of ranks contradicts it.

        Returns:
            "victim"; "slowed" by one that is late; or "on": it is meant, and waits in no call now.
        """
        if finding.family == "slow":
            return "slowed"
        status = self.ranks.get(rank)
        return "on" if status is not None and status.status in _NOT_WAITING else "victim"


def by_last_calls(job: Job) -> str:
    """How many ranks left no dump but their last calls, to go on with; "" for none."""
    count = job.ranks_by_last_calls
    return f", {count:,} {'its' if count == 1 else 'their'} last calls" if count else ""


def victim_label(role: str) -> str:
    """What stands before ranks of one kind of victim."""
    return _ROLE_LABELS[role]


def finding_sections(
    finding: Finding, report: Report, who: Who
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (label, items) in reading order; items may be empty."""
    yield from _sides(finding, who)
    yield (
        "about",
        (
            *(
                f"{subject.kind} {printable(subject.id, _MAX_WORD)}"
                for subject in finding.subjects
                if subject.kind != "rank"
            ),
            *(site_words(site) for site in finding.sites if not site.ranks),
        ),
    )
    evidence = _sentences(finding.evidence)
    yield "why", evidence[:MAX_WHY]
    if reasons := reasons_of(finding, MAX_REASONS):
        yield "confidence", (f"{finding.confidence}: {reasons}",)
    yield "next", _sentences(finding.actions)
    yield ("loop" if finding.loop else "chain"), wait_lines(finding.waits)
    yield "also", evidence[MAX_WHY:]
    yield "or else", _sentences(finding.alternatives)
    yield "stack", _culprit_stack(finding, report)
    yield "page", (printable(finding.url),) if finding.url else ()


def reasons_of(finding: Finding, most: int) -> str:
    """What lowered a finding's confidence, the gravest first; then what raised it.

    Where there is room for one, it is a doubt; what supports a finding without a doubt comes first.
    """
    lowered = _cut(_sentences(finding.confidence_reasons), most, "reason")
    room = max(most - len(lowered), 0)
    raised = _sentences(finding.confidence_supports)[:room]
    return "; ".join((*lowered, *raised))


def _sentences(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(printable(text) for text in texts)


def _sides(finding: Finding, who: Who) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield who stands where and called what, a section a role, culprits first.

    Ranks that stand at the same places in the same calls are one side.
    """
    words: dict[int, list[_Line]] = defaultdict(list)
    roles: dict[int, set[str]] = defaultdict(set)
    for role, ranks, line in _stands(finding):
        for rank in ranks:
            roles[rank].add(who.victim(rank, finding) if role == "victim" else role)
            if line.text:
                words[rank].append(line)
    sides: dict[str, dict[tuple[_Line, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank in sorted(roles):
        role = min(roles[rank], key=_role_place)
        sides[role][tuple(words[rank])].append(rank)
    for role in sorted(sides, key=_role_place):
        yield _ROLE_LABELS.get(role, printable(role)), tuple(_side_lines(sides[role], who))


class _Line(NamedTuple):
    """A line about some ranks; a place stands on the line that names them."""

    text: str
    is_place: bool = False


def _stands(finding: Finding) -> Iterator[tuple[str, tuple[int, ...], _Line]]:
    """Yield (role, ranks, line), places before calls."""
    yield "culprit", finding.culprits, _Line("")
    yield "victim", finding.victims, _Line("")
    for site in finding.sites:
        yield site.role, site.ranks, _Line(site_words(site), is_place=True)
    for call in finding.calls:
        yield call.role, call.ranks, _Line(call_words(call))


def _role_place(role: str) -> int:
    return _ROLE_ORDER.get(role, len(_ROLE_ORDER))


def _side_lines(sides: dict[tuple[_Line, ...], list[int]], who: Who) -> Iterator[str]:
    """Yield "rank 7 in load at data.py:31" and the lines below it, for the largest sides."""
    ordered = sorted(sides.items(), key=lambda side: (not side[0], -len(side[1]), side[1]))
    shown = ordered if len(ordered) <= MAX_SIDES + 1 else ordered[:MAX_SIDES]
    for lines, ranks in shown:
        place = lines[:1] if lines and lines[0].is_place else ()
        yield " ".join([who.phrase(ranks), *(line.text for line in place)])
        yield from (line.text for line in lines[len(place) :])
    rest = sorted(rank for _, ranks in ordered[len(shown) :] for rank in ranks)
    if rest:
        yield f"and {rank_phrase(rest)} in {len(ordered) - len(shown):,} other places"


def site_words(site: Site) -> str:
    """Write a place in the user's code: "in load_batch at data.py:31".

    Where it is that of a call they have left since, it says so: where they are now is not known.
    """
    function = printable(site.function, _MAX_WORD)
    place = f"{short_path(site.file)}:{site.line}" if site.line > 0 else short_path(site.file)
    age = f" ({site.age_s:.0f} s before the dump)" if site.age_s else ""
    where = (f"in {function} at {place}" if function else f"at {place}") + age
    if not site.after:
        return where
    left = printable(site.after, _MAX_WORD)
    they = "it is" if len(site.ranks) == 1 else "they are"
    return f"last seen leaving {left} {where}; the dumps do not show where {they} now"


def short_path(path: str, parts: int = 2) -> str:
    """Keep the end of a path: the part below site-packages, else its last parts."""
    for mark in ("/site-packages/", "/dist-packages/"):
        path = path.rsplit(mark, 1)[-1] if mark in path else path
    return printable("/".join(path.replace("\\", "/").split("/")[-parts:]), _MAX_WORD)


def call_words(call: CallSide) -> str:
    """Write what one side called: "all_reduce #41 of dp (1, 4 ranks): [4096] Float, scheduled"."""
    if not call.op:
        return "made no call"
    if not call.state:
        return f"never called {_named(call)}"
    facts = (_data_words(call), printable(call.state, 40))
    return f"{_named(call)}: {', '.join(fact for fact in facts if fact)}"


def _named(call: CallSide) -> str:
    words = printable(call.op, _MAX_WORD)
    if call.peer is not None:
        words += f" with rank {call.peer}"
    if call.p2p_seq is not None:
        words += f", P2P #{call.p2p_seq}"
    elif call.seq is not None:
        words += f" #{call.seq}"
    if call.group is not None:
        words += f" of {group_words(call.group)}"
    return words


def group_words(group: GroupRef) -> str:
    """Name a group with its name and size: "tp (1, 4 ranks)"."""
    name, description = printable(short_name(group.name), 60), printable(group.description, 60)
    facts = [count_of(group.size, "rank")] if group.size else []
    if not description or description == "undefined":
        label = f"group {name or '?'}"
    else:
        label = description
        facts = [name, *facts] if name else facts
    label = f"{label} ({', '.join(facts)})" if facts else label
    return f"{label} on {printable(group.backend, 20)}" if group.backend else label


def _data_words(call: CallSide) -> str:
    shapes = [str(list(shape)) for shape in call.sizes[:MAX_SHAPES]]
    if len(call.sizes) > MAX_SHAPES:
        shapes.append(f"and {len(call.sizes) - MAX_SHAPES} more")
    kinds = list(dict.fromkeys(call.dtypes))
    return printable(" ".join([", ".join(shapes), "/".join(kinds)]).strip(), _MAX_WORD)


def wait_lines(waits: Sequence[Wait]) -> tuple[str, ...]:
    """Write who waits for whom, those who wait for the same in the same call on one line."""
    merged: dict[tuple[int, str], list[int]] = {}
    for wait in waits:
        merged.setdefault((wait.target, wait.call), []).append(wait.waiter)
    if len(merged) == 1:
        return ()  # one step, which the sides have told already
    lines = [
        f"{rank_phrase(waiters)} {'waits' if len(waiters) == 1 else 'wait'} for rank {target} "
        f"in {printable(call, _MAX_WORD)}"
        for (target, call), waiters in merged.items()
    ]
    return _cut(lines, MAX_WAITS, "link")


def _culprit_stack(finding: Finding, report: Report) -> tuple[str, ...]:
    """Frames of the first culprit whose stack the report holds, innermost first."""
    for site in finding.sites:
        frames = report.stacks.get(site.stack_id, ()) if site.role == "culprit" else ()
        if len(frames) > 1:
            return _cut([_frame_words(frame) for frame in frames], MAX_FRAMES, "frame")
    return ()


def _frame_words(frame: Frame) -> str:
    return f"{printable(frame.function, _MAX_WORD)} at {short_path(frame.file, 3)}:{frame.line}"


def _cut(lines: Sequence[str], limit: int, noun: str) -> tuple[str, ...]:
    """Keep the first lines and say how many are left out."""
    if len(lines) <= limit + 1:
        return tuple(lines)
    return (*lines[:limit], f"and {count_of(len(lines) - limit, f'more {noun}')}")
