"""Words for calls in which everybody is and that do not move: circles, transport, devices."""

from __future__ import annotations

from unhang.analysis.claims import Claim
from unhang.analysis.findings.deadlock import Circle
from unhang.analysis.findings.stalled import (
    DeviceBehind,
    DeviceNeverStarted,
    NotMoving,
    RankLags,
    Timeouts,
)
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.kinds import P2P_UNMATCHED, WAIT_CYCLE
from unhang.wording import count_of, rank_phrase

__all__: list[str] = []

_MOST_WAITS = 4
_ONE_ORDER = (
    "Launch communicators that share a GPU in one order: NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 "
    "and later), CUDA_DEVICE_MAX_CONNECTIONS=1, or wait for one before the next."
)


_THREADS = (
    "Communicators in flight at once on one device ({groups}): threads of the program may race for "
    "it, so that their order is chance."
)
_HOST_ORDER = (
    "NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and later) or CUDA_DEVICE_MAX_CONNECTIONS=1 launch in "
    "the order of the host: they help once that is the same on all ranks. Where several threads "
    "call, NCCL_LAUNCH_RACE_FATAL=1 tells of it."
)
_OTHER_TAGS = "The two sides may use different tags: the dumps do not tell those of both."
_PRINT_TAGS = "Print the tags just before both lines."


@words_for(Circle)
def _verdict_of_circle(about: Circle, claim: Claim) -> Words:
    loop = "; ".join(
        f"rank {wait.waiter} waits in {wait.call} for rank {wait.target}"
        for wait in claim.waits[:_MOST_WAITS]
    )
    order = (
        "Each side has queued the other's call behind its own: the order is crossed."
        if about.crossed
        else "Each side is in its own call and has not made the other's yet."
    )
    calls, groups = count_of(about.n_calls, "call"), count_of(about.n_groups, "group")
    alone = f" {subject(about.breaking)} alone is in every loop of it." if about.breaking else ""
    why = ("The others keep an order in which they do not wait in a circle.",)
    races = (_THREADS.format(groups=", ".join(about.at_once)),) if about.at_once else ()
    skipped = () if about.crossed else claim.kind.alternatives
    return Words(
        f"{subject(about.ranks)} wait for each other in a circle: {loop}.{alone}",
        (order, *(why if about.breaking else ()), f"{calls} of {groups} wait for each other."),
        alternatives=(*skipped, *races),
        actions=(*_remedies(about, claim), *((_HOST_ORDER,) if about.at_once else ())),
    )


def _remedies(about: Circle, claim: Claim) -> tuple[str, ...]:
    """In one group no order can be crossed: a send or receive meets a call of all members there."""
    in_one = claim.kind is WAIT_CYCLE and about.n_groups == 1
    return P2P_UNMATCHED.actions if in_one else claim.kind.actions


@words_for(NotMoving)
def _verdict_of_not_moving(about: NotMoving, claim: Claim) -> Words:
    others = count_of(about.n_calls - 1, "other call")
    more = f" So do {others}." if about.n_calls > 1 else ""
    return Words(
        _standstill(about) + more,
        (
            *_started(about),
            _nobody_missing(about, named=bool(claim.culprits)),
            *(f"Also stuck with everybody in it: {call}." for call in about.others),
        ),
        alternatives=(
            *((_OTHER_TAGS,) if about.tags_unknown else ()),
            *claim.kind.alternatives,
            *_order_of_launches(about),
        ),
        actions=(
            *((_PRINT_TAGS,) if about.tags_unknown else ()),
            *claim.kind.actions,
            *((_ONE_ORDER,) if about.at_once else ()),
        ),
    )


def _order_of_launches(about: NotMoving) -> tuple[str, ...]:
    if not about.at_once:
        return ()
    groups = ", ".join(about.at_once)
    text = (
        f"Communicators in flight at once on one device ({groups}) may have been launched in "
        "another order on another rank, and hold up each other."
    )
    return (text,)


@words_for(Timeouts)
def _verdict_of_timeouts(about: Timeouts, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    limits = "; ".join(f"{rank_phrase(ranks)}: {limit:,.0f} s" for limit, ranks in about.ranks)
    first = subject(about.ranks[0][1])
    verb = "gives" if len(about.ranks[0][1]) == 1 else "give"
    return Words(
        f"Members of {about.call} have different time-outs for it: {limits}.",
        (f"{first} {verb} up first, and what the others print then follows from that.",),
    )


def _standstill(about: NotMoving) -> str:
    inside = rank_phrase(about.inside)
    if about.out:
        return f"{subject(about.out)} came out of {about.call}, {inside} did not."
    if about.exchange:
        return f"Both sides are in {about.call} of {inside}, and it does not move."
    return f"All {about.size} members are in {about.call}, and it does not move."


def _nobody_missing(about: NotMoving, *, named: bool) -> str:
    if about.out or named:
        return f"Nobody is missing from it: all {about.size} members have called it."
    return "Nobody is missing from it, so that nobody is named."


def _started(about: NotMoving) -> tuple[str, ...]:
    """Who started, where the recorder had timing on."""
    if about.unstarted is None:
        return ()
    if not about.unstarted:
        return ("All of them have started it on their devices.",)
    return (f"Started on all devices but those of {rank_phrase(about.unstarted)}.",)


@words_for(DeviceBehind)
def _verdict_of_device_behind(about: DeviceBehind, claim: Claim) -> Words:
    return Words(
        f"The device of {rank_phrase(claim.culprits)} finishes nothing any more: it is stuck at "
        f"{about.call}, which its peers have finished, while its host went on.",
        tuple(map(_lags, about.ranks)),
    )


def _lags(each: RankLags) -> str:
    shown = "; ".join(
        f"{lag.group}: finished #{lag.finished}, a peer #{lag.peers}, enqueued #{lag.enqueued}"
        for lag in each.lags
    )
    return f"Rank {each.rank} is behind its peers in {count_of(each.n_groups, 'group')}: {shown}."


@words_for(DeviceNeverStarted)
def _verdict_of_device_never_started(about: DeviceNeverStarted, claim: Claim) -> Words:
    started = count_of(about.started, "member")
    return Words(
        f"{subject(claim.culprits)} enqueued {about.call}, and the device never started it; on all "
        "other members it is running.",
        (
            f"Timing was on: {started} of {about.size} started the call on their devices.",
            "All of its own calls before are finished: something else keeps that device busy.",
        ),
        alternatives=("A kernel of the model hangs or runs for very long on that device.",),
    )
