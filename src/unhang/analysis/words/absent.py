"""Words for ranks that did not come: never joined, silent, in the enqueue, or a call skipped.

A call that was skipped takes the place of what is seen in the end, which it tells in its evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from unhang.analysis.claims import Claim
from unhang.analysis.findings.exchanges import Unpaired, UnpairedCall
from unhang.analysis.findings.missing import (
    DumpsOutdated,
    InsideEnqueue,
    LostDump,
    MostlySilent,
    NeverJoined,
    NotLookedAt,
    SilentRanks,
)
from unhang.analysis.findings.skipped import CallAt, LeftOrder, Parting, SkippedCall
from unhang.analysis.rules.telling import Words, subject, words_for, words_of
from unhang.analysis.state.progress import Known
from unhang.kinds import SILENT_RANK, SKIPPED_CALL
from unhang.model import AskedNode, Note
from unhang.stacks.ownership import bare_name
from unhang.wording import count_of, printable, rank_phrase

__all__ = ["notes_on_nodes"]

_MOST_OF_MANY = 2
_OF_THE_NEXT_ITERATION = (
    "One like it is queued in the place of the next iteration: this one's was left out, not put "
    "off."
)

_LOOK_THERE = (
    "Look at all nodes at once: unhang collect --hosts, --slurm, --kubectl or --hostfile.",
    "Let the nodes of a job share a case: unhang run --case on a disk that all of them see.",
)

_ASK_AGAIN = "Ask again the nodes that did not answer: unhang collect --resume CASE."
_MOST_NAMES, _LONGEST_NAME, _LONGEST_WHY = 8, 60, 200

_MAKING = "one of them may wait for another to make a group with it"

_NEW = "It has never made that call before: the others may have left it out, each for its reason."


@words_for(NeverJoined)
def _verdict_of_never_joined(about: NeverJoined, claim: Claim) -> Words:
    what = f"{about.call}, in which {_wait(about.waiting)}"
    sentence = f"{subject(claim.culprits)} never called {what}."
    if about.making:
        sentence = f"{subject(about.making)} never called {what}: {_MAKING}."
    elif not claim.culprits:
        sentence = f"No other rank called {what}: it may be a call too many."
    return Words(
        sentence,
        (
            *(_last_call(rank, seq) for rank, seq in about.last),
            *_whose_lines(about.last_lines),
            _how_known(about.known),
        ),
    )


def _wait(ranks: Sequence[int]) -> str:
    return f"{rank_phrase(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _last_call(rank: int, seq: int) -> str:
    if seq < 0:
        return f"Rank {rank}: its dump shows no call in this group."
    return f"Rank {rank}: its last call in this group is #{seq}, and it is finished."


def _whose_lines(ranks: Sequence[int]) -> tuple[str, ...]:
    """Say for whom the last call is shown, not where they stand."""
    if not ranks:
        return ()
    last, stand = (
        ("its last call, which is finished", "it stands")
        if len(ranks) == 1
        else ("their last calls, which are finished", "they stand")
    )
    text = f"The line of {rank_phrase(ranks)} is that of {last}; where {stand} now is not in "
    return (f"{text}the dumps.",)


def _how_known(known: Known) -> str:
    if known >= Known.SURE:
        return "Their dumps cover that moment and do not have the call."
    if known == Known.INFERRED:
        return (
            "Their counters stand before the call; the counters were joined to the group by the "
            "order of groups, which is inferred."
        )
    return "Their dumps do not have the call, and could have left it out had it finished."


@words_for(InsideEnqueue)
def _verdict_of_inside_enqueue(about: InsideEnqueue, claim: Claim) -> Words:
    summary = (
        f"{subject(claim.culprits)} entered {about.call} and never came out of the enqueue: the "
        "call is recorded, but was not launched."
    )
    why = (
        f"The entry #{about.seq} is there, and the counters of these ranks stand at the call "
        "before it; they move only once the library's call has returned."
    )
    return Words(summary, (why,))


# ------------------------------------------------------------------ silent


@words_for(SilentRanks)
def _verdict_of_silent_ranks(about: SilentRanks, claim: Claim) -> Words:
    summary = (
        f"{subject(claim.culprits)} left no usable dump, and no other rank is missing from "
        f"{about.call}: dead, or unable to write."
    )
    inside = count_of(about.inside, "rank")
    seen = f"{inside} of {about.size} are seen waiting in the call."
    return Words(summary, (*map(_lost, about.dumps), seen))


def _lost(dump: LostDump) -> str:
    if dump.status is None:
        return f"There is no dump of rank {dump.rank}."
    state = "cut short" if dump.usable else dump.status.value
    return f"The dump of rank {dump.rank} ({dump.source}) is {state}."


@words_for(MostlySilent)
def _verdict_of_mostly_silent(about: MostlySilent, claim: Claim) -> Words:
    summary = (
        f"Not enough evidence: {_wait(claim.victims)}, and too few of those who may be missing "
        f"from {about.call} left a usable dump."
    )
    lost = map(_lost, about.dumps[:_MOST_OF_MANY])
    evidence = (f"No usable dump of {rank_phrase(about.silent)}.", *lost)
    return Words(summary, evidence, actions=SILENT_RANK.actions)


@words_for(NotLookedAt)
def _verdict_of_not_looked_at(about: NotLookedAt, claim: Claim) -> Words:
    missing, were = rank_phrase(about.ranks), "was" if len(about.ranks) == 1 else "were"
    where = f"on {_names_of(about.nodes)}" if about.nodes else "of other nodes"
    summary = (
        f"Not enough evidence: {_wait(claim.victims)} in {about.call}, and {missing} {where} "
        f"{were} not looked at."
    )
    evidence = (
        f"No node has reported {missing}: at work, waiting or dead, nothing tells.",
        *((f"No usable dump of {rank_phrase(about.silent)} either.",) if about.silent else ()),
    )
    missed = any(node.state == "not-reached" for node in about.nodes)
    return Words(summary, evidence, actions=(_ASK_AGAIN,) if missed else _LOOK_THERE)


def _names_of(nodes: Sequence[AskedNode], *, with_ranks: bool = False) -> str:
    """Nodes by name: "n2 (ranks 4-7), n3 and 5 more"."""
    named = [
        f"{printable(node.node, _LONGEST_NAME)}"
        + (f" ({rank_phrase(node.ranks)})" if with_ranks and node.ranks else "")
        for node in nodes[:_MOST_NAMES]
    ]
    more = len(nodes) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def _unheard_words(nodes: Sequence[AskedNode]) -> Iterator[str]:
    """Nodes without an answer, and why: nodes with the same reason in one sentence."""
    alike: dict[tuple[str, str], list[AskedNode]] = {}
    for node in nodes:
        alike.setdefault((node.state, node.why), []).append(node)
    for (state, why), some in alike.items():
        names, verb = _names_of(some, with_ranks=True), "was" if len(some) == 1 else "were"
        says = f"{verb} not reached" if state == "not-reached" else "had given nothing yet"
        told = f": {printable(why, _LONGEST_WHY)}" if why else ""
        by = " (its ranks are those of no other node)" if any(n.inferred for n in some) else ""
        yield f"{names} {says}{told}{by}"


def notes_on_nodes(nodes: Iterable[AskedNode]) -> tuple[Note, ...]:
    """That nodes of the job gave nothing: every verdict stands without them."""
    silent = [node for node in nodes if node.state != "answered"]
    return tuple(Note("warning", "nodes", text) for text in _unheard_words(silent))


@words_for(DumpsOutdated)
def _verdict_of_dumps_outdated(about: DumpsOutdated, claim: Claim) -> Words:
    summary = (
        f"Not enough evidence: {_wait(claim.victims)} in {about.call}, and the only dumps of "
        f"{rank_phrase(about.outdated)} are older than that."
    )
    return Words(
        summary,
        ("Their peers finished calls that need all members and that these dumps lack.",),
        alternatives=("The dumps may come from two incidents, or from moments far apart.",),
        actions=("Take all dumps at one moment: unhang dump, or run under unhang run.",),
    )


# ------------------------------------------------------------------ sends and receives


@words_for(Unpaired)
def _verdict_of_unpaired(about: Unpaired, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    several = about.asked == "several"
    asked = "the sends and receives" if several else f"the {about.asked}"
    summary = f"{subject(about.ranks)} never made {asked} for which {_wait(about.waiting)}."
    seen = (*map(_unmet, about.calls), *_whose_lines(about.last_lines))
    if not about.level:
        return Words(summary, seen)
    outside = sorted([*about.ranks, *about.level])
    level = f"{subject(outside)} wait for no other rank, and show no fewer calls than each other."
    if about.over < 0:
        return Words(
            f"{subject(about.waiting)} {'waits' if len(about.waiting) == 1 else 'wait'} in an "
            f"exchange that {rank_phrase(about.ranks)} did not make: one side made a call too "
            "many, or the other stands before its own.",
            (*seen, level),
        )
    others = "all other ranks may be late"
    return Words(
        f"{subject([about.over])} made an exchange that its peers did not: nothing meets it.",
        (*seen, level, f"It has called more often than they from the same line; {others}."),
    )


def _unmet(call: UnpairedCall) -> str:
    presumed = " (counted from the first unfinished one: the windows lack the start)"
    how = "" if call.sure else presumed
    return f"Rank {call.rank} is in {call.call}; nothing meets it{how}."


# ------------------------------------------------------------------ skipped


@words_for(SkippedCall)
def _verdict_of_skipped_call(about: SkippedCall, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    undecided = ("One side left the call out, or the other made one too many.",)
    return Words(
        _parted(about.parting),
        tuple(_skip_evidence(about)),
        alternatives=(*(() if about.parting.blamed else undecided), *SKIPPED_CALL.alternatives),
        actions=SKIPPED_CALL.actions,
    )


@words_for(LeftOrder)
def _verdict_of_left_order(about: LeftOrder, claim: Claim) -> Words:
    who, usual = subject(claim.culprits), _at(about.usual)
    what = f"made {usual} later than ever" if about.later else f"did not make {usual}"
    return Words(
        f"{who} {what}, and went on with {_at(about.instead)}; {_wait(claim.victims)} for it.",
        (
            _usual_place(about),
            *((_OF_THE_NEXT_ITERATION,) if about.next_queued else ()),
            f"Seen in the end as: {words_of(about.symptom.about, about.symptom).summary}",
            "The others wait in their usual order.",
        ),
        alternatives=(
            *((_NEW,) if about.is_new else ()),
            "The program was to change its order here, and the others did not.",
        ),
    )


def _usual_place(about: LeftOrder) -> str:
    """Why that call was due."""
    if about.in_step is not None:
        made, usual, asked = about.in_step
        return (
            f"It made {count_of(made, 'call')} that {'meets' if made == 1 else 'meet'} its peer's "
            f"in this step, between two collectives, and {usual} in "
            f"{count_of(about.times, 'such step')} before; its peer made {asked} in this one."
        )
    if about.period:
        rounds, calls = count_of(about.times, "iteration"), count_of(about.period, "call")
        return f"All that it had called was {rounds} of {calls}, in which this one came next."
    after = f"{_at(about.after)}{_and_before(about.depth)}"
    return f"It has followed {after} each of {count_of(about.times, 'time')} before."


def _and_before(depth: int) -> str:
    return f" and the {count_of(depth - 1, 'call')} before it" if depth > 1 else ""


def _skip_evidence(about: SkippedCall) -> list[str]:
    found = []
    if about.instead is not None:
        other = "They" if about.parting.missing else "Their peers"
        found.append(f"{other} went on with {_at(about.instead)} instead.")
    if about.before_window:
        found.append("The windows begin there, so the first difference may lie before it.")
    found.append(f"From there on the two sides are apart by {count_of(about.apart, 'call')}.")
    seen = words_of(about.symptom.about, about.symptom).summary
    return [*found, f"Seen in the end as: {seen}"]


def _at(call: CallAt) -> str:
    """A call with its line: "all_gather #41 of tp (2) (train.py:88 in f)"."""
    if not call.line and not call.file and not call.function:
        return call.name
    file = call.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{call.name} ({file}:{call.line} in {bare_name(call.function)})"


def _parted(parting: Parting) -> str:
    who, peers, call = subject(parting.suspects), rank_phrase(parting.peers), _at(parting.call)
    if not parting.blamed:
        has, lacks = (peers, who) if parting.missing else (who, peers)
        return (
            f"{has[:1].upper()}{has[1:]} made {call} and {lacks[:1].lower()}{lacks[1:]} did not; "
            "with two sides only it cannot be said which is wrong."
        )
    if parting.elsewhere:
        same = f"{peers}, whose part in the program is the same"
        if parting.missing:
            return (
                f"{who} did not make what {peers} made, whose part in the program is the same: "
                f"{call}."
            )
        return f"{who} made {call}; {same}, make none there."
    then = "all later calls meet wrong ones"
    if parting.at_another_time:
        then = "what has that number there is another call, or was made at another time"
    if parting.missing:
        return f"{who} did not make {call}, which {peers} made; {then}."
    return f"{who} made {call}, which {peers} did not; {then}."
