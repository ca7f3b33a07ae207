"""Where the ranks of claims from dumps stand now, and whether stacks agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import MOST, ranks_in, sites_of, subjects_of
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rule import Observer, Rule
from unhang.analysis.rules.telling import MOVES, Words, adding_for, begun, merged
from unhang.analysis.rules.telling_looks import actions, doing, sentences
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Seeing, Weighed
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Trait
from unhang.stacks.meaning import meaning_of_frames
from unhang.stacks.ownership import under
from unhang.wording import printable, rank_phrase

_SHARED_LOCK: Final = "multiprocessing/synchronize.py"

_AT_STORE = "The rank that has to set that key may be wrong, not the rank that waits for it."
_AT_LOCK = (
    "Processes share the lock that it waits for: a rank that waits for it may hold that lock."
)


class Seen(Observation, frozen=True, kw_only=True):
    """Where the culprits of a claim stand.

    Attributes:
        keys: Where they wait for a key of a store, what ranks set last: the key, and which ranks.
    """

    looks: tuple[RankLook, ...]
    keys: tuple[tuple[str, tuple[int, ...]], ...] = ()


def _seen(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Where its ranks stand now, and what that says of a claim from dumps.

    A culprit that is seen waiting in a collective contradicts the dumps, unless those say that it
    waits too. Ranks that work while others wait for them may not be stuck; a
    wrong call stays wrong while its rank works on, so only absence is doubted.
    """
    if claim.rests_on != "dumps":
        return
    lives, book = facts.lives, facts.book
    known = any(each.observation.source == "stacks" for each in claim.weighed)  # to its own rule
    looks = [] if known else lives.looks_at(claim.culprits)
    own = [_in_thread(look, claim) for look in looks if look.frames or not look.unseen]
    waiting = _unplaced(claim, lives)
    if not (own or waiting):
        return
    victims = sites_of(waiting, "victim", book)
    awaits = any(look.sample.awaits for look in own)
    seen = Seen(
        source="stacks",
        ranks=ranks_in(own),
        sites=(*sites_of(own, "culprit", book), *victims),
        subjects=subjects_of(own),
        looks=tuple(own),
        keys=_keys(lives) if awaits else (),
    )
    contradicts = own and claim.kind is NEVER_JOINED and all(look.waits for look in own)
    yield seen, Bearing.WAITS_TOO if contradicts else Bearing.STANDS
    if not own:
        return
    if claim.kind.has(Trait.LAST_RESORT) and _all_stopped(claim, own):
        yield seen, Bearing.STOPPED
    if moving := ranks_in(look for look in own if look.moves):
        may_come = claim.kind.has(Trait.MAY_COME)
        yield replace(seen, ranks=moving), Bearing.MOVES if may_come else Bearing.WORKS_ON
    if claim.kind is NEVER_JOINED and _all_away(claim, own) and Doubt.FEW_CALLED in claim.doubts:
        yield seen, Bearing.ALL_AWAY
    if awaits:
        yield seen, Bearing.AT_STORE
    if locked := ranks_in(look for look in own if _wants_shared_lock(look)):
        yield replace(seen, ranks=locked), Bearing.AT_LOCK


RULE: Final = Rule(observers=(Observer(sees=_seen, early=True),))


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


def _in_thread(look: RankLook, claim: Claim) -> RankLook:
    """A rank as the thread shows it that alone is in the call of the claim: not the main one."""
    made = {each.op for each in claim.calls if each.role == "culprit" and look.rank in each.ranks}
    if not made or look.inside in made:
        return look
    threads = {thread.frames: meaning_of_frames(thread.frames) for thread in look.sample.threads}
    found = [(frames, means) for frames, means in threads.items() if means.op in made]
    if len(found) != 1:
        return look
    frames, means = found[0]
    return replace(look, frames=frames, meaning=means, moved=None)


def _unplaced(claim: Claim, lives: Lives) -> list[RankLook]:
    """The victims that wait, where their dumps came without the stacks of calls."""
    shown = {rank for site in claim.sites if site.role == "victim" for rank in site.ranks}
    bare = lives.looks_at(rank for rank in claim.victims if rank not in shown)
    return [look for look in bare if look.waits or look.may_wait]


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
    match weighed.bearing:
        case Bearing.STOPPED:
            return Words(_is_stopped(seen, claim), words.evidence, (), ())
        case Bearing.AT_STORE if seen.keys:
            keys = "; ".join(
                f"{rank_phrase(who)}: {printable(key, 60)!r}" for key, who in seen.keys
            )
            said = f"The last key that each rank set: {keys}."
            return _or(replace(words, evidence=(said, *words.evidence)), _AT_STORE)
        case Bearing.AT_LOCK:
            return _or(words, _AT_LOCK)
        case Bearing.MOVES:
            verb = "moves" if len(seen.ranks) == 1 else "move"
            busy = f"; {rank_phrase(seen.ranks)} {verb}: busy, slow or late rather than stuck."
            return _or(replace(words, summary=words.summary.removesuffix(".") + busy), MOVES)
        case Bearing.STANDS | Bearing.WAITS_TOO:
            return _standing(seen, words, contradicts=weighed.bearing is Bearing.WAITS_TOO)
    return words


def _or(words: Words, said: str) -> Words:
    return replace(words, alternatives=(*(words.alternatives or ()), said))


def _standing(seen: Seen, words: Words, *, contradicts: bool) -> Words:
    said = tuple(f"Stacks: {sentence}" for sentence in sentences(seen.looks))
    if contradicts:
        against = "Sources disagree: the dumps do not show the call, the stack is inside one."
        return replace(words, evidence=(*said, against, *words.evidence))
    todo = merged(actions(seen.looks), words.actions) if seen.looks else words.actions
    return replace(words, evidence=(*said, *words.evidence), actions=todo)


def _is_stopped(seen: Seen, claim: Claim) -> str:
    label = claim.call or "a call"
    return f"{begun(doing(seen.looks))}, and no other rank is missing from {label}."
