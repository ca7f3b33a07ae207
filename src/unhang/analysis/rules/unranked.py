"""What stacks show of processes without a known rank: pasted from a terminal, as it is.

Processes that began in the same file are one program, and are compared as ranks are: where some
wait in a collective and another stands elsewhere, that one is pointed at. No process is named by a
rank, and other programs that were dumped along (`pgrep -f python`) are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from unhang.analysis.lives.whereabouts import doubts_of_looks
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.telling import Words, begun, words_for
from unhang.analysis.rules.telling_looks import unchanged
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook, at_site, looks_of_others, looks_without_rank
from unhang.case import Case
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.report import Site, Subject
from unhang.stacks.ownership import is_native, same_file
from unhang.stacks.roles import place_in_title
from unhang.wording import count_of

_MOST = 8
_NAMED: Final = 3
_FRAMES: Final = 8
_SHOWN: Final = 4
_NAME: Final = 70
_WHOSE: Final = (
    "Nothing here shows their ranks: label each dump (srun --label, [rank3]:, rank3.txt), or use "
    "unhang stacks."
)
_ALL_RANKS: Final = "Take the stacks of all ranks twice: unhang stacks --samples 2 --interval 10."
_LOG: Final = (
    "The error itself is in the log, not in the stack: unhang logs FILE finds the first one (look "
    "for what(), NCCL WARN and ProcessGroupNCCL)."
)
_DUMPED_ALONG: Final = "These may be programs that do not wait for each other."
_ONE_LOOK: Final = "One look cannot tell a moving job from a stuck one."


class Unranked(Struct, frozen=True):
    """Processes of one program, all without a rank.

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


def _claims(facts: CaseFacts) -> list[Claim]:
    """The one claim about processes without a rank; none where no stack was taken of any."""
    if facts.moving or facts.lives.sampled or facts.situation is not None:
        return []
    case, book = facts.case, facts.book
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
            doubts=doubts_of_looks(program) if blamed else (Doubt.NOBODY_NAMED,),
            subjects=_subjects(about.who),
            sites=_sites(about, book),
        )
    ]


def _others_alone(case: Case, book: StackBook) -> list[Claim]:
    """Where only engines, launchers or helpers were seen: what they do, and no rank to blame."""
    others = looks_of_others(case.samples)
    looks = tuple(look for look in others if look.frames or look.meaning.kind == "dead")
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

    A stack pasted with its innermost frames only may be of any.
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


RULE: Final = Rule(when=When.STACKS, unless=Unless.CAUSE, tells=_claims)


# ------------------------------------------------------------------ words


@words_for(Unranked)
def _verdict_of_unranked(about: Unranked, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    evidence = (*_stacks(about.who), *_left_out(about))
    if about.aborting:
        doing = begun(_doing(about.aborting))
        return Words(f"{doing}. The stack does not show why.", evidence, (), (_LOG, _ALL_RANKS))
    if about.waiting and about.elsewhere:
        summary = f"{_waiters(about)}; {_doing(about.elsewhere)}{unchanged(about.elsewhere)}."
        return Words(summary, evidence, (_ONE_LOOK, _DUMPED_ALONG), (_ALL_RANKS, _WHOSE))
    doing = _doing(about.who)
    rest = "" if len(about.who) > 1 else ", and nothing shows what its peers do"
    summary = f"Not enough evidence: {doing}{unchanged(about.who)}{rest}."
    return Words(summary, evidence, (), (_ALL_RANKS, _WHOSE))


def _waiters(about: Unranked) -> str:
    total = len(about.waiting) + len(about.elsewhere)
    first = about.waiting[0].meaning
    same = all(
        (each.meaning.op, each.meaning.site) == (first.op, first.site) for each in about.waiting
    )
    what = first.says + at_site(first.site) if same else "waiting for their peers"
    verb = "is" if len(about.waiting) == 1 else "are"
    return f"{len(about.waiting):,} of {count_of(total, 'process', 'processes')} {verb} {what}"


def _name(look: RankLook) -> str:
    where = f" on {look.host}" if look.host else ""
    place = place_in_title(look.sample.command)
    place = f" ({place})" if place else ""
    return f"process {look.pid}{place}{where}" if look.pid > 0 else f"a process{place}{where}"


def _doing(looks: Sequence[RankLook]) -> str:
    """What some processes do: at most three places, the others counted."""
    places: defaultdict[str, list[RankLook]] = defaultdict(list)
    for look in looks:
        places[look.says].append(look)
    parts = [f"{_names(same)} {says}" for says, same in list(places.items())[:_NAMED]]
    if len(places) > _NAMED:
        more = sum(len(same) for same in list(places.values())[_NAMED:])
        parts.append(f"{count_of(more, 'more process', 'more processes')} elsewhere too")
    return ", ".join(parts)


def _names(same: Sequence[RankLook]) -> str:
    if len(same) == 1:
        return f"{_name(same[0])} is"
    named = ", ".join(_name(look) for look in same[:_NAMED])
    return f"{named} are" if len(same) <= _NAMED else f"{len(same):,} processes are"


def _stacks(looks: Sequence[RankLook]) -> Iterator[str]:
    """The innermost frames of each, one sentence for all that stand alike."""
    stacks: defaultdict[tuple[str, ...], list[RankLook]] = defaultdict(list)
    for look in looks:
        stacks[tuple(_frames(look))].append(look)
    for frames, same in list(stacks.items())[:_SHOWN]:
        names = ", ".join(_name(look) for look in same[:_NAMED])
        yield f"{begun(names)}, innermost first: {', '.join(frames)}."


def _frames(look: RankLook) -> list[str]:
    """Python's frames where there are any: they say more than the library's below them."""
    own = [frame for frame in look.frames if not is_native(frame)] or list(look.frames)
    shown = [
        f"{_short(frame.function)} ({frame.file}:{frame.line})"
        if frame.line
        else _short(frame.function)
        for frame in own[:_FRAMES]
    ]
    return [*shown, "…"] if len(own) > _FRAMES else shown


def _short(function: str) -> str:
    """The beginning of a name: those of templates fill pages."""
    return function if len(function) <= _NAME else f"{function[:_NAME]}…"


def _left_out(about: Unranked) -> Iterator[str]:
    if about.others:
        number = count_of(about.others, "process", "processes")
        were = "was" if about.others == 1 else "were"
        yield f"{number} of other programs {were} seen too, and left out."
