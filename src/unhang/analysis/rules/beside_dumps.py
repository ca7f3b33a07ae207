"""Where the ranks of claims from dumps stand now, and whether stacks agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import MOST, Shape, Sides, ranks_in, sites_of, subjects_of
from unhang.analysis.rules.by_stacks import claim_of
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.skipped_call import SKIPPED_CALL
from unhang.analysis.rules.telling import MOVES, Words, adding_for, begun, merged
from unhang.analysis.rules.telling_looks import actions, doing, sentences
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Stance, Weighed
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Trait
from unhang.model import Frame
from unhang.stacks.ownership import under
from unhang.wording import printable, rank_phrase

_UNRECORDED: Final = "ray/train/"
"""Where ranks wait for all others in no call of torch's."""

_SHARED_LOCK: Final = "multiprocessing/synchronize.py"

_AT_STORE = "The rank that has to set that key may be wrong, not the rank that waits for it."
_AT_LOCK = (
    "Processes share the lock that it waits for: a rank that waits for it may hold that lock."
)


class Seen(Observation, frozen=True, kw_only=True):
    """Where the culprits of a claim stand.

    Attributes:
        stopped: That they are stopped is why they left nothing.
        keys: Where they wait for a key of a store, what ranks set last: the key, and which ranks.
        locked: Those that wait for a lock of `multiprocessing`.
    """

    looks: tuple[RankLook, ...]
    stopped: bool = False
    keys: tuple[tuple[str, tuple[int, ...]], ...] = ()
    locked: tuple[int, ...] = ()


def with_looks(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """A cause from dumps with where its ranks stand now, and whether stacks agree.

    A culprit that is seen waiting in a collective contradicts the dumps, unless those say that it
    waits too. Ranks that work while others wait for them may not be stuck; a
    wrong call stays wrong while its rank works on, so only absence is doubted.
    """
    if not claim.is_cause or claim.rests_on != "dumps":
        return claim
    claim = _victims_placed(claim, lives, book)
    if any(each.observation.source == "stacks" for each in claim.weighed):
        return claim  # its own rule has read them
    own = [look for look in lives.looks_at(claim.culprits) if look.frames or not look.unseen]
    if not own:
        return claim
    if (other := _other_meeting(claim, lives)) is not None:
        return claim_of(other, book)
    moving = ranks_in(look for look in own if look.moves)
    placed = sites_of(own, "culprit", book)
    # Dumps and stacks name functions differently: who stands on one line stands there once.
    shown = {(site.ranks, site.file, site.line) for site in placed}
    rest = [site for site in claim.sites if (site.ranks, site.file, site.line) not in shown]
    stopped = claim.kind.has(Trait.LAST_RESORT) and _all_stopped(claim, own)
    doubts = () if stopped else claim.doubts
    if moving and claim.kind.has(Trait.MAY_COME):
        doubts = (*doubts, Doubt.MOVES)
    if claim.kind is NEVER_JOINED and _all_away(claim, own):
        doubts = tuple(Doubt.MOST_AWAY if d is Doubt.FEW_CALLED else d for d in doubts)
    if any(look.sample.awaits for look in own):
        doubts = (*doubts, Doubt.AT_STORE)
    locked = ranks_in(look for look in own if _wants_shared_lock(look))
    if locked:
        doubts = (*doubts, Doubt.AT_LOCK)
    joined = replace(
        claim,
        doubts=doubts,
        moving=moving,
        sites=(*placed, *rest),
        subjects=claim.subjects or subjects_of(own),
    )
    seen = Seen(
        source="stacks",
        ranks=ranks_in(own),
        looks=tuple(own),
        stopped=stopped,
        keys=_keys(lives) if any(look.sample.awaits for look in own) else (),
        locked=locked,
    )
    if claim.kind is NEVER_JOINED and all(look.waits for look in own):
        return joined.seen(seen, Bearing.WAITS_TOO)
    return joined.seen(seen, Bearing.STANDS)


def _wants_shared_lock(look: RankLook) -> bool:
    return any(
        frame.function.endswith("SemLock.__enter__") and under(frame.file, _SHARED_LOCK)
        for frame in look.frames[:2]
    )


def _keys(lives: Lives) -> tuple[tuple[str, tuple[int, ...]], ...]:
    by_key: defaultdict[str, list[RankLook]] = defaultdict(list)
    for look in lives.sampled.values():
        if look.sample.has_set:
            by_key[look.sample.has_set].append(look)
    return tuple((key, ranks_in(same)) for key, same in [*by_key.items()][:MOST])


def _other_meeting(claim: Claim, lives: Lives) -> Sides | None:
    """Most wait at a meeting that dumps do not hold, and few in a call of torch's.

    Such meetings are those of Ray Train, and the making of groups. Each side waits for the other;
    as with unlike calls, most are right. To the dumps the few are ahead, by a call that the others
    never made, or made too many. Where the others work, they may only be late for that call.
    """
    ahead = {NEVER_JOINED: claim.victims, SKIPPED_CALL: claim.culprits}.get(claim.kind, ())
    few = tuple(look for look in lives.looks_at(ahead) if look.waits or look.may_wait)
    own = tuple(lives.looks_at(sorted({*claim.culprits, *claim.victims} - {*ahead})))
    meet = all(look.meaning.kind == "init" or _is_unrecorded(look.meaning.frame) for look in own)
    if not few or len(few) < len(ahead):
        return None
    if claim.kind is SKIPPED_CALL and own and all(look.moves for look in own):
        return Sides(Shape.ABSENT, own, few, own, (), 0)  # they may yet come
    return Sides(Shape.ABSENT, few, own, few, (), 0) if meet and len(own) > len(few) else None


def _is_unrecorded(frame: Frame | None) -> bool:
    return frame is not None and under(frame.file, _UNRECORDED)


def _victims_placed(claim: Claim, lives: Lives, book: StackBook) -> Claim:
    """Show where victims wait, where their dumps came without the stacks of calls."""
    shown = {rank for site in claim.sites if site.role == "victim" for rank in site.ranks}
    bare = [look for look in lives.looks_at(claim.victims) if look.rank not in shown]
    bare = [look for look in bare if look.waits or look.may_wait]
    sites = sites_of(bare, "victim", book)
    return replace(claim, sites=(*claim.sites, *sites)) if bare else claim


def _all_away(claim: Claim, looks: Sequence[RankLook]) -> bool:
    """Whether all culprits were seen in their own code: they have not gone on without the call."""
    away = [look for look in looks if look.moved is False and not (look.waits or look.unseen)]
    return ranks_in(away) == claim.culprits


def _all_stopped(claim: Claim, looks: Sequence[RankLook]) -> bool:
    """Whether a rank without a dump is not dead but stopped: its state is known."""
    stopped = all(look.meaning.kind == "stopped" for look in looks)
    return stopped and ranks_in(looks) == claim.culprits


@adding_for(Seen)
def _adding_seen(seen: Seen, words: Words, claim: Claim, weighed: Weighed) -> Words:
    said = tuple(f"Stacks: {sentence}" for sentence in sentences(seen.looks))
    if seen.keys:
        keys = "; ".join(f"{rank_phrase(who)}: {printable(key, 60)!r}" for key, who in seen.keys)
        said = (*said, f"The last key that each rank set: {keys}.")
        words = replace(words, alternatives=(*(words.alternatives or ()), _AT_STORE))
    if seen.locked:
        words = replace(words, alternatives=(*(words.alternatives or ()), _AT_LOCK))
    if weighed.stance is Stance.CONTRADICTS:
        against = "Sources disagree: the dumps do not show the call, the stack is inside one."
        return replace(words, evidence=(*said, against, *words.evidence))
    if seen.stopped:
        words = Words(_is_stopped(seen, claim), words.evidence, (), ())
    elif claim.moving and claim.kind.has(Trait.MAY_COME):
        verb = "moves" if len(claim.moving) == 1 else "move"
        busy = f"; {rank_phrase(claim.moving)} {verb}: busy, slow or late rather than stuck."
        alternatives = (*(words.alternatives or ()), MOVES)
        summary = words.summary.removesuffix(".") + busy
        words = replace(words, summary=summary, alternatives=alternatives)
    return replace(
        words,
        evidence=(*said, *words.evidence),
        actions=merged(actions(seen.looks), words.actions),
    )


def _is_stopped(seen: Seen, claim: Claim) -> str:
    label = claim.call or "a call"
    return f"{begun(doing(seen.looks))}, and no other rank is missing from {label}."
