"""Ranks that meet at a store with addresses of an earlier attempt of the job, or of an earlier run.

## What it means

torchrun keeps one store for all attempts, with any rendezvous (torch 2.13, pytorch#135712). After
a restart the keys of the attempt before are still in it, and Gloo writes its addresses under the
same keys. A rank that reads before its peer has written gets the address of a process that has
ended: it is refused, or waits. The program is not at fault, and the next restart meets the same
store. The file of `init_method="file://…"` stays in the same way where a run was killed
(pytorch#13865).

## What it rests on

- `TORCHELASTIC_USE_AGENT_STORE` is `True`, so that ranks meet at torchrun's own store, and
  `TORCHELASTIC_RESTART_COUNT` is above 0, as a rank's recorder saw them.
- Ranks stand in making their first group, or have failed there as Gloo found no process at an
  address that a peer had given.
- All ranks have come: one that has not would be the reason.
- Of a file: it had something in it when the run began, and a rank was refused.

## Example

    torchrun --nproc-per-node 3 --max-restarts 1 train.py

Rank 1 ends with exit code 3 in the first attempt. In the second one two ranks raise:

    RuntimeError: Gloo connectFullMesh failed with [...] Connection refused, remote=[127.0.0.1]:5537

So it does with `torchrun --standalone`. With `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` as well, the
job goes on after the restart.

## A near miss

The first attempt of a job whose ranks cannot reach each other: there the addresses are right, and
a firewall or an interface is wrong (`unhang doctor net`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import ranks_in, sites_of
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, When
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.reason import Among, Because, Explanation, Reason
from unhang.analysis.sources.stacks import RankLook
from unhang.kinds import Kind
from unhang.wording import count_of, printable

KIND: Final = Kind(
    "UH404",
    "stale-meeting",
    "environment",
    "Ranks meet at a store that has addresses of an earlier attempt or run.",
    alternatives=("A peer of this attempt may have ended after it gave its address.",),
    actions=(
        (
            "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, and give torchrun --standalone on one node,"
            " or --rdzv-backend c10d --rdzv-endpoint HOST:PORT on several: then each attempt has a"
            " store of its own."
        ),
    ),
)

_OF_GLOO: Final = "gloo-"
"""How the slugs of Gloo's messages begin: of those about transport, no process has answered."""

_KEPT: Final = "it keeps one store for all attempts"

_STARTING: Final = Explanation(
    Because.OWN,
    Among.WITHIN,
    "A rank that cannot connect to its peers raises, or waits, and is missed by them.",
)


class StaleMeeting(Struct, frozen=True):
    """Where the ranks of this attempt meet.

    Attributes:
        attempts: How many attempts have met there before; 0 for a file of an earlier run.
        refused: Ranks that found no process at an address.
        ranks: All that are still in making the group, or failed there.
    """

    place: str
    attempts: int
    refused: tuple[int, ...]
    ranks: tuple[int, ...]


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    looks = [life.look for life in facts.lives.ranks.values() if life.look is not None]
    again = [look for look in looks if _is_stale(look) and look.sample.phase != "ready"]
    refused = _refused(facts.lives, again)
    inside = [look for look in again if look.rank in refused or _is_inside(look)]
    stand = any(look.sample.earlier for look in inside) and _all_stand(looks)
    if not inside or not (refused or stand):
        return
    sample, ranks = inside[0].sample, ranks_in(inside)
    yield Claim(
        kind=KIND,
        rests_on="stacks",
        about=StaleMeeting(sample.rendezvous, sample.earlier, refused, ranks),
        victims=ranks,
        sites=tuple(sites_of(inside, "victim", facts.book)),
        doubts=() if refused else (Doubt.NOBODY_ABSENT,),
        reasons=(Reason(Because.OWN, _at_store(looks, sample.rendezvous), (_STARTING,)),),
    )


def _is_stale(look: RankLook) -> bool:
    """Whether others had met where it meets its peers before this attempt, or this run."""
    return bool(look.sample.earlier or look.sample.leftover_s)


def _at_store(looks: Sequence[RankLook], place: str) -> frozenset[int]:
    """All ranks of this attempt: one that has come out waits for the others in its next call."""
    return frozenset(look.rank for look in looks if look.sample.rendezvous == place)


def _refused(lives: Lives, again: Sequence[RankLook]) -> tuple[int, ...]:
    if not again:  # Most cases: the rules of messages need not be imported for them.
        return ()
    said = lives.said
    messages = (*said.failures, *said.effects, *said.recognised)
    refusals = [each.group.ranks for each in messages if _is_refusal(each.kind)]
    told, of_unknown = {rank for ranks in refusals for rank in ranks}, () in refusals
    return tuple(
        look.rank
        for look in again
        if (look.rank in told or of_unknown) and not look.sample.last_call
    )


def _is_refusal(kind: Kind) -> bool:
    return kind.family == "transport" and kind.slug.startswith(_OF_GLOO)


def _is_inside(look: RankLook) -> bool:
    return look.sample.phase == "initialising" and not look.gone


def _all_stand(looks: Sequence[RankLook]) -> bool:
    """Whether all ranks that were told of have come to the making of the group, and none moves."""
    came = [look for look in looks if _is_inside(look) or look.sample.phase == "ready"]
    size = max(look.sample.told_size for look in looks)
    return len(came) == size and not any(look.moved is not False for look in came)


RULE: Final = Rule(kind=KIND, when=When.OTHERS, tells=_claims)


@words_for(StaleMeeting)
def _verdict_of_stale_meeting(about: StaleMeeting, claim: Claim) -> Words:  # noqa: ARG001
    place = printable(about.place, 200)
    if about.refused:
        what = f"{subject(about.refused)} found no process at an address in the store {place}"
    else:
        what = f"All ranks have come to the store {place}, and their group is not made"
    if not about.attempts:  # How old the file is, and what helps, stands next to it: `left_over`.
        return Words(f"{what}: it still has the addresses of an earlier run.", (), actions=())
    return Words(
        f"{what}: it still has the addresses of the attempt before.",
        (f"torchrun has restarted the job {count_of(about.attempts, 'time')}; {_KEPT}.",),
    )
