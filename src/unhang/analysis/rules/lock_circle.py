"""Ranks that wait for the lock of a file, whose holder waits in a call for them.

To the dumps they never made that call. The kernel tells who holds the lock: the rank that waits for
them, and will not let go of it before they come. No rank of these is the one that is late.
"""

from __future__ import annotations

from dataclasses import replace as changed

from msgspec import Struct
from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in, sites_of
from unhang.analysis.rules.never_joined import NEVER_JOINED, NeverJoined
from unhang.analysis.rules.telling import Words, subject, waits, words_for
from unhang.analysis.rules.wait_cycle import WAIT_CYCLE
from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.report import Wait
from unhang.stacks.ownership import user_frame
from unhang.wording import printable, rank_phrase

_LONGEST = 60


class LockCircle(Struct, frozen=True):
    """The ranks of a circle.

    Attributes:
        holders: They hold the lock, and wait in the call.
        locked: They wait for it, and never made the call.
        file: Whose lock it is.
        call: Name of the call.
    """

    holders: tuple[int, ...]
    locked: tuple[int, ...]
    file: str
    call: str


def closed_by_lock(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """The claim, or the circle, where all whom it misses wait for a lock of those who miss them."""
    looks = lives.looks_at(claim.culprits)
    if claim.kind is not NEVER_JOINED or not looks or len(looks) < len(claim.culprits):
        return claim
    holders = lives.looks_at(sorted({look.holder for look in looks}))
    if not all(look.holder in claim.victims and look.moved is False for look in looks):
        return claim
    if not all(map(_only_waits, holders)):
        return claim
    call = claim.about.call if isinstance(claim.about, NeverJoined) else claim.call or "a call"
    circle = (*holders, *looks)
    return replace(
        claim,
        kind=WAIT_CYCLE,
        about=LockCircle(ranks_in(holders), claim.culprits, looks[0].sample.lock, call),
        culprits=(),
        victims=tuple(sorted({*claim.victims, *claim.culprits})),
        subjects=(),
        calls=tuple(changed(each, role="victim") for each in claim.calls),
        sites=sites_of(circle, "victim", book),
        waits=(
            *(Wait(holder.rank, look.rank, call) for holder in holders for look in looks),
            *(Wait(look.rank, look.holder, "the lock of a file") for look in looks),
        ),
        doubts=(),
        moving=(),
    )


def _only_waits(look: RankLook) -> bool:
    """Whether a rank waits for its peers, and no other thread of it is in the program's code."""
    others = (thread for thread in look.sample.threads if not thread.is_main)
    return look.waits and not any(user_frame(thread.frames) for thread in others)


@words_for(LockCircle)
def _verdict_of_lock_circle(about: LockCircle, claim: Claim) -> Words:
    file = printable(about.file.rpartition("/")[2], _LONGEST)
    whole = printable(about.file, 2 * _LONGEST)
    hold, wait = ("holds", "waits") if len(about.holders) == 1 else ("hold", "wait")
    return Words(
        f"{subject(claim.victims)} wait for each other: {rank_phrase(about.holders)} {hold} the "
        f"lock of {file} and {wait} in {about.call}, and {waits(about.locked)} for that lock "
        "before they call it.",
        (
            f"By the kernel, {rank_phrase(about.holders)} {hold} the lock of {whole}.",
            f"No other thread of {rank_phrase(about.holders)} is in the program's code.",
        ),
        (),
        (
            "Let go of the lock before that call, or make the call before the lock is taken.",
            "As a rule: no rank waits for its peers while it holds what they need.",
        ),
    )
