"""What stacks show of processes of which nothing tells the rank: pasted from a terminal, as it is.

Processes that began in the same file are one program, and are compared as ranks are: where some
wait in a collective and another stands elsewhere, that one is pointed at. Nobody is named by a
rank, and other programs that were dumped along (`pgrep -f python`) are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from unhang.analysis.claims import Claim, Doubt
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.stacks import RankLook, looks_of_others, looks_without_rank
from unhang.case import Case
from unhang.kinds import INSUFFICIENT_EVIDENCE, NEVER_JOINED
from unhang.report import Site, Subject
from unhang.stacks.ownership import same_file

__all__ = ["Unranked", "unranked"]

_MOST = 8


class Unranked(Struct, frozen=True):
    """Processes of one program, none of which has a rank.

    Attributes:
        aborting: They end themselves.
        waiting: They wait for their peers.
        elsewhere: They do not.
        others: Processes of other programs that were seen as well.
    """

    aborting: tuple[RankLook, ...]
    waiting: tuple[RankLook, ...]
    elsewhere: tuple[RankLook, ...]
    others: int

    @property
    def who(self) -> tuple[RankLook, ...]:
        """Those who matter most: who aborts, who is elsewhere, who waits."""
        return self.aborting or self.elsewhere or self.waiting


def unranked(case: Case, book: StackBook) -> list[Claim]:
    """The one claim about processes without a rank; none where no stack was taken of any."""
    looks = [look for look in looks_without_rank(case.samples) if look.frames]
    if not looks and all(sample.rank < 0 for sample in case.samples):
        return _others_alone(case, book)
    if not looks:
        return []
    program = _largest_program(looks)
    about = Unranked(
        aborting=tuple(look for look in program if look.meaning.kind == "abort"),
        waiting=tuple(look for look in program if look.waits),
        elsewhere=tuple(
            look for look in program if not (look.waits or look.may_wait or look.aside)
        ),
        others=len(looks) - len(program),
    )
    blamed = bool(about.waiting and about.elsewhere and not about.aborting)
    return [
        Claim(
            kind=NEVER_JOINED if blamed else INSUFFICIENT_EVIDENCE,
            rests_on="stacks",
            about=about if about.who else _told_apart(about, program),
            doubts=(Doubt.LOOKS_UNCLEAR,) if blamed else (Doubt.NOBODY_NAMED,),
            subjects=_subjects(about.who),
            sites=_sites(about, book),
        )
    ]


def _others_alone(case: Case, book: StackBook) -> list[Claim]:
    """Where only engines, launchers or helpers were seen: what they do, and no rank to blame."""
    looks = tuple(look for look in looks_of_others(case.samples) if look.frames)
    about = Unranked((), (), looks, 0)
    return [
        Claim(
            kind=INSUFFICIENT_EVIDENCE,
            rests_on="stacks",
            about=about,
            doubts=(Doubt.NOBODY_NAMED,),
            subjects=_subjects(looks),
            sites=_sites(about, book),
        )
    ][: len(looks)]


def _told_apart(about: Unranked, program: Sequence[RankLook]) -> Unranked:
    """Where all may be waiting below what their stacks show, all are shown."""
    return Unranked(about.aborting, about.waiting, tuple(program), about.others)


def _largest_program(looks: Sequence[RankLook]) -> list[RankLook]:
    """Processes that began in one file; of several programs the one that waits, or has the most.

    A stack of which only the innermost frames were pasted may be of any.
    """
    programs: defaultdict[str, list[RankLook]] = defaultdict(list)
    for look in looks:
        file = _began_in(look)
        known = next((name for name in programs if file and same_file(file, name)), file)
        programs[known].append(look)
    unknown = programs.pop("", [])
    if not programs:
        return unknown
    chosen = max(programs.values(), key=lambda same: (any(look.waits for look in same), len(same)))
    return sorted([*chosen, *unknown], key=looks.index)


def _began_in(look: RankLook) -> str:
    """The file of its outermost frame, if that is a program's beginning; else ""."""
    outermost = look.frames[-1]
    return outermost.file if outermost.function == "<module>" else ""


def _subjects(looks: Sequence[RankLook]) -> tuple[Subject, ...]:
    return tuple(
        Subject("process", f"pid {look.pid}", host=look.host or None, pid=look.pid)
        for look in looks[:_MOST]
        if look.pid > 0
    )


def _sites(about: Unranked, book: StackBook) -> tuple[Site, ...]:
    culprits = [(look, "culprit") for look in about.elsewhere[:_MOST] if about.waiting]
    rest = [look for look in about.who if (look, "culprit") not in culprits]
    shown = [*culprits, *((look, "victim") for look in rest[:_MOST])]
    sites = (
        book.site((), "culprit" if role == "culprit" else "victim", look.frames)
        for look, role in shown
    )
    return tuple(site for site in sites if site is not None)
