"""Words for processes of which nothing tells the rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from unhang.analysis.claims import Claim
from unhang.analysis.lives.unranked import Unranked
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.sources.stacks import RankLook, at_site
from unhang.stacks.ownership import is_native
from unhang.stacks.roles import place_in_title
from unhang.wording import count_of

__all__: list[str] = []

_NAMED: Final = 3
_FRAMES: Final = 8
_SHOWN: Final = 4
_NAME: Final = 70
_WHOSE: Final = (
    "Nothing here tells their ranks: label each dump (srun --label, [rank3]:, rank3.txt), or look "
    "with unhang stacks."
)
_ALL_RANKS: Final = "See the stacks of all ranks, twice: unhang stacks --samples 2 --interval 10."
_LOG: Final = (
    "The error itself is in the log, not in the stack: unhang logs FILE finds the first one (look "
    "for what(), NCCL WARN and ProcessGroupNCCL)."
)
_DUMPED_ALONG: Final = "These may be programs that do not wait for each other."
_ONE_LOOK: Final = "One look cannot tell a job that passes by from one that is stuck."


@words_for(Unranked)
def _verdict_of_unranked(about: Unranked, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    evidence = (*_stacks(about.who), *_left_out(about))
    if about.aborting:
        doing = _begun(_doing(about.aborting))
        return Words(f"{doing}. Why is not in the stack.", evidence, (), (_LOG, _ALL_RANKS))
    if about.waiting and about.elsewhere:
        summary = f"{_waiters(about)}; {_doing(about.elsewhere)}{_unchanged(about.elsewhere)}."
        return Words(summary, evidence, (_ONE_LOOK, _DUMPED_ALONG), (_ALL_RANKS, _WHOSE))
    doing = _doing(about.who)
    rest = "" if len(about.who) > 1 else ", and nothing tells what its peers do"
    summary = f"Not enough evidence: {doing}{_unchanged(about.who)}{rest}."
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


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unchanged(looks: Sequence[RankLook]) -> str:
    if all(look.moved is False for look in looks):
        return ", unchanged between two looks"
    return ", and moving" if all(look.moved for look in looks) else ""


def _stacks(looks: Sequence[RankLook]) -> Iterator[str]:
    """The innermost frames of each, one sentence for all that stand alike."""
    stacks: defaultdict[tuple[str, ...], list[RankLook]] = defaultdict(list)
    for look in looks:
        stacks[tuple(_frames(look))].append(look)
    for frames, same in list(stacks.items())[:_SHOWN]:
        names = ", ".join(_name(look) for look in same[:_NAMED])
        yield f"{_begun(names)}, innermost first: {', '.join(frames)}."


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
        yield f"{number} of other programs were seen too, and left out."
