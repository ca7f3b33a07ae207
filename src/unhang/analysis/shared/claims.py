"""What rules conclude, as facts: claims, what speaks for and against them, how sure that makes.

Rules make claims, sources observe, one judgement (`unhang.analysis.judgement`) settles and ranks
them, and words (`unhang.analysis.words`) come last. Nothing here holds a sentence or reads one.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from unhang.analysis.shared.reason import Because, Reason
from unhang.kinds import Kind, Role
from unhang.report import CallSide, Confidence, GroupRef, Site, Subject, Wait

__all__ = [
    "Bearing",
    "Because",
    "Claim",
    "Doubt",
    "Observation",
    "Reason",
    "Seeing",
    "Source",
    "Stance",
    "Weighed",
    "confidence_of",
    "doubts_left",
]

Source: TypeAlias = Literal["dumps", "stacks", "exits", "logs", "traces", "cores", "reports", "ras"]

_LEVELS: Final[tuple[Confidence, ...]] = ("high", "medium", "low")


class Doubt(Enum):
    """Why a claim is less than sure, as far as its own rule knows.

    The value is what it costs (1: medium at best, 2: low) and what it means; {culprits}, {call} and
    {group} stand for those of the claim (`unhang.analysis.words.doubts`).
    """

    MEMBERS_INFERRED = 1, "the members of {group} were inferred, not recorded"
    MEMBER_UNSEEN = 1, "nothing shows where some member of {call} is"
    COUNT_UNSURE = 1, "the dumps do not cover that moment, or the counter's group is inferred"
    NO_MAJORITY = 1, "no side has a majority, so either may be wrong"
    LINE_UNKNOWN = 1, "no stack shows where the call was made"
    BEFORE_WINDOW = 1, "the dumps begin there: the first difference may be earlier"
    NOTHING_SEEN = 1, "no evidence of {culprits} but the absence"
    NOBODY_ABSENT = 1, "all members are in {call}: what blocks it is not in the dumps"
    START_ONLY = 1, "only the start times of devices show it"
    NOT_IN_CALLS = 1, "the calls in the dumps do not show it: it is late for few of them"
    LINES_ONLY = 1, "only the lines of the last calls differ; their sizes are not recorded"
    CLOCKS_UNSET = 1, "the hosts' clocks could not be aligned"
    ONE_MOMENT = 1, "the evidence shows one moment only"
    AT_STORE = 1, "it waits for a key of a store that another process may have to set"
    BY_HABIT = 1, "it rests on earlier calls of {culprits}, or on later ones of peers"
    BY_ORDER = 1, "only the order of calls shows it: the others agree on another order"
    STACKS_ONLY = 1, "stacks show no sequence number: a slow loop looks the same"
    ENDED_ALIKE = 1, "all ranks ended alike, so none of them stands out"
    MOST_LEFT = 1, "most ranks ended without an error: the others may make a call too many"
    MAY_HAVE_FINISHED = 1, "it may have ended as intended"
    END_UNCLEAR = 1, "how it ended does not show whether something else ended it"
    COUNTERS_ONLY = 1, "only the watchdogs' counters show it, and these lag behind"
    BLAMES_NOBODY = 1, "the line names no rank, or every rank prints it"
    EARLIER_FAILURE = 1, "something else failed before it"
    MOST_AWAY = 1, "most ranks are in their own code: the others may have made a call too many"
    LOG_ALONE = 1, "only the log names a rank: the dumps show all members in {call}"
    IN_A_THREAD = 1, "an exception ended a thread of the rank, and the rank went on"
    A_LINE_ALONE = 1, "it rests on one message"
    HALF_SURE = 1, "the report that it comes from has medium confidence"
    EITHER_SIDE = 2, "either side of the pair may have computed its splits wrongly"
    HAS_ENDED = 2, "{call} has ended and no rank waits: only its result may be wrong"
    MAKES_A_GROUP = 2, "the first call of a group leaves no record until all members have made it"
    AGE_UNKNOWN = 2, "no time shows how long {call} has been open"
    FEW_CALLED = 2, "fewer ranks made {call} than did not: it may be one too many"
    MAJORITY_OF_SEEN = 2, "ranks without a dump may be on the other side"
    LONE_DUMP = 2, "there is only one dump: perhaps no other was collected"
    SEVERAL_SILENT = 2, "{culprits} left no evidence, and any one of them may be the cause"
    MADE_ALONE = 2, "all other ranks may instead be late for {call}"
    ONE_ITERATION = 2, "only one iteration of the loop of {culprits} was seen, if it is a loop"
    ONCE_ONLY = 2, "{culprits} addressed the waiting peer at most once before"
    NOTHING_RECORDED = 2, "no call was recorded at all"
    NOBODY_NAMED = 2, "the evidence names no rank"
    LEAVES_NO_TRACE = 2, "such dumps do not record the calls that may hang"
    NOT_SURE = 2, "the report that it comes from has low confidence"
    ENDS_UNCLEAR = 2, "several ended, and how they ended does not show which was first"
    UNORDERED = 2, "nothing shows which came first"
    NO_CALL_NAMED = 2, "no watchdog names the call in which it timed out"
    ENDS_RECORDED = 2, "only ends of calls were recorded, and the last may not be written yet"
    ONE_LOOK = 2, "one look only: in a job that moves it would look the same"
    LOOKS_MOVED = 2, "some ranks moved between the looks, or still work"
    LOOKS_ABSENT = 2, "some ranks have no stack"
    LOOKS_OPEN = 2, "stacks do not show whether a rank waits or works"
    MOVES = 2, "{culprits} moved: busy or slow rather than stuck"
    PAUSES = 2, "blocked for no longer than a pause may take"
    WENT_ON = 2, "calls have ended, and others begun, since the dumps were made"
    LEFT_CALL = 2, "{call} has failed and its ranks have left it: no rank waits in it now"
    LEADS = 2, "its peers have always waited for {culprits} in {call}: there may be no work to do"
    SERVES = 2, "{culprits} may only be idle, waiting for work: nothing shows that there is any"
    AT_LOCK = 2, "it waits for a lock that processes share, and its holder was not seen"
    MORE_DATA = 2, "the others have no data left and only join in: it need not be slow"
    OTHER_CAUSE = 2, "another fault is known, and this rank may only be silent"

    @property
    def cost(self) -> int:
        """By how many steps confidence falls at least."""
        return self.value[0]

    @property
    def meaning(self) -> str:
        """The reason, with names of what the claim puts in their places."""
        return self.value[1]


class Observation(Struct, frozen=True, kw_only=True):
    """One thing that one source saw of ranks, hosts or calls; a subclass each for what was seen.

    Attributes:
        source: Who saw it.
        ranks: Global ranks that it is about; empty for a host or a process without a rank.
        time_ns: When, wall clock; 0 where unknown.
        sites, subjects: Where it saw ranks that a claim is about.
    """

    source: Source
    ranks: tuple[int, ...] = ()
    host: str = ""
    time_ns: int = 0
    sites: tuple[Site, ...] = ()
    subjects: tuple[Subject, ...] = ()

    @property
    def asked(self) -> tuple[Subject, ...]:
        """Who outside the job is asked by these ranks, and is to be looked at."""
        return ()

    def is_same(self, other: Observation) -> bool:
        """Whether the other one tells of the same event."""
        return self is other


class Stance(Enum):
    """What an observation is for a claim."""

    SUPPORTS = "it says the same, from elsewhere"
    CONTRADICTS = "both cannot be true"
    BESIDE = "it adds where a rank is, or what it did, and decides nothing"


class Bearing(Enum):
    """What can be seen from elsewhere, and what that is for a claim: the table of all weights.

    The value is the stance, the weight, the doubt that it raises, why it is so, and which doubts of
    a rule it answers. The weight is in steps of confidence: down where it contradicts; the doubts
    that it outweighs where it supports. Observations stand in the order of this table.
    """

    STOPPED = (
        Stance.BESIDE,
        0,
        None,
        "a stopped process writes no dump: its state is known, and why it left none",
        (Doubt.NOTHING_SEEN, Doubt.SEVERAL_SILENT, Doubt.LONE_DUMP),
    )
    ALL_AWAY = (
        Stance.BESIDE,
        0,
        Doubt.MOST_AWAY,
        "ranks in their own code have not gone on without the call",
        (Doubt.FEW_CALLED,),
    )
    AT_STORE = Stance.BESIDE, 0, Doubt.AT_STORE, "who has to set the key may be wrong instead"
    AT_LOCK = Stance.BESIDE, 0, Doubt.AT_LOCK, "who holds the lock may be wrong instead"
    MOVES = Stance.BESIDE, 0, Doubt.MOVES, "what moves may still come"
    WORKS_ON = Stance.BESIDE, 0, None, "a wrong call stays wrong while its rank works on"
    STANDS = Stance.BESIDE, 0, None, "where a rank stands is not which calls it has made"
    WAITS_TOO = Stance.CONTRADICTS, 2, None, "it waits there: one of the two is of another moment"
    LED_BEFORE = Stance.BESIDE, 0, Doubt.LEADS, "a server that has no request looks the same"
    SAYS_IDLE = Stance.BESIDE, 0, Doubt.SERVES, "the program itself says that it has no work"
    SERVES = Stance.BESIDE, 0, Doubt.SERVES, "a server without requests stands still"
    WAITS_OUTSIDE = Stance.BESIDE, 0, None, "what it waits for is no rank: it is not blamed"
    LEFT_OVER = Stance.BESIDE, 0, None, "it may be the reason, and names no rank"
    AWAY_INSIDE = Stance.CONTRADICTS, 1, None, "its host does something else: both can be true"
    CAME_BACK = Stance.CONTRADICTS, 2, None, "it has left the call: the dump is of before"
    ALL_CAME_BACK = Stance.CONTRADICTS, 2, None, "it held no rank for good, and is no cause"
    FITS_MESSAGE = Stance.SUPPORTS, 1, None, "dumps and a message of the library say the same"
    MADE_OF_MESSAGE = Stance.SUPPORTS, 0, None, "the claim rests on it, so it is no second source"
    GOES_ALONG = Stance.BESIDE, 0, Doubt.MORE_DATA, "torch's Join answers calls without work"
    COUNTERS_AGREE = Stance.SUPPORTS, 1, None, "watchdogs count apart from the recorder"
    COUNTERS_DENY = Stance.CONTRADICTS, 1, None, "counters lag behind, so that one step is enough"
    TELLS_THE_END = Stance.SUPPORTS, 2, None, "a log that names the exception of its rank is sure"
    MAY_TELL_THE_END = Stance.SUPPORTS, 0, None, "the line is of no known rank, or itself unsure"
    OTHER_FAILURE = Stance.CONTRADICTS, 1, None, "another rank failed first: that may be why"
    FAILURE_BESIDE = Stance.BESIDE, 0, None, "a wrong call is wrong whatever else failed"
    ALL_FINISHED = Stance.CONTRADICTS, 1, None, "the failure kept no rank waiting in recorded calls"
    TRACED = Stance.BESIDE, 0, None, "a trace tells where, not why"
    RAS_AGREES = Stance.SUPPORTS, 1, None, "NCCL counts launches apart from torch"
    RAS_DENIES = Stance.CONTRADICTS, 1, None, "by NCCL the culprits have launched more than others"
    RAS_BESIDE = Stance.BESIDE, 0, None, "it is of other ranks"
    KNOWN_FAULT = Stance.BESIDE, 0, None, "most jobs with that version do not meet it"
    SHORT_TOO = Stance.BESIDE, 0, None, "a crowded machine makes ranks slow and blames none"
    PAUSES = Stance.BESIDE, 0, Doubt.PAUSES, "what a rank waits for may still come"
    WENT_ON = Stance.BESIDE, 0, Doubt.WENT_ON, "what stood still was late rather than stuck"
    CALL_LOG = Stance.BESIDE, 0, Doubt.AGE_UNKNOWN, "it goes on for as long as the job moves"
    LEFT_CALL = Stance.BESIDE, 0, Doubt.LEFT_CALL, "the error was handled: no rank waits any more"
    ON_THE_WAY = Stance.BESIDE, 0, None, "a bad way may be the reason, and names no rank"
    CHECK_AGREES = Stance.SUPPORTS, 1, None, "a check found the same rank without the job"
    ABOUT_CULPRIT = Stance.SUPPORTS, 0, None, "it is about the same rank, and not independent"

    def __init__(
        self,
        stance: Stance,
        weight: int,
        doubt: Doubt | None,
        why: str,
        answers: tuple[Doubt, ...] = (),
    ) -> None:
        self.stance = stance
        self.weight = weight
        self.doubt = doubt
        self.why = why
        self.answers = answers


_MOVING: Final = (Bearing.MOVES, Bearing.WORKS_ON)
_PLACE: Final = {bearing: place for place, bearing in enumerate(Bearing)}


class Weighed(Struct, frozen=True):
    """An observation as one claim has it."""

    observation: Observation
    bearing: Bearing


Seeing: TypeAlias = tuple[Observation, Bearing]
"""What was seen, and what it is for the claim with which it is reported."""


class Claim(Struct, frozen=True, kw_only=True):
    """A finding before words.

    Attributes:
        about: The facts that the words of this claim are made from: a frozen dataclass of its rule,
            known to `unhang.analysis.words`. It holds no rows, indices or arrays.
        role: "" for that of the kind.
        rests_on: The source that its rule read; what the same source says more is no second voice.
        doubts: What its own rule is not sure of.
        weighed: What *other* sources saw, in the order of the report.
        reasons: What it is to claims that it may explain.
        explains: Claims that it was found to explain, as their rules made them.
        caused_by: Claims that it follows from: set last.
        moving: Culprits that were seen to move.
        mistake: What is reported once, however often it shows (`Trait.ONE_MISTAKE`); None: by
            itself.
    """

    kind: Kind
    about: object
    role: Role | Literal[""] = ""
    rests_on: Source = "dumps"
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    subjects: tuple[Subject, ...] = ()
    group: GroupRef | None = None
    seq: int | None = None
    op: str | None = None
    calls: tuple[CallSide, ...] = ()
    waits: tuple[Wait, ...] = ()
    sites: tuple[Site, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    reasons: tuple[Reason, ...] = ()
    explains: tuple[Claim, ...] = ()
    caused_by: tuple[Claim, ...] = ()
    moving: tuple[int, ...] = ()
    mistake: object = None

    def __post_init__(self) -> None:
        if not self.role:
            force_setattr(self, "role", self.kind.role)

    @property
    def is_cause(self) -> bool:
        """Whether its role is cause."""
        return self.role == "cause"

    @property
    def call(self) -> str:
        """Its call by operation and number: "all_reduce #7"; "" where it names none."""
        return f"{self.op or ''}{f' #{self.seq}' if self.op and self.seq is not None else ''}"

    @property
    def main(self) -> Claim:
        """Of what it explains, the claim that tells most of the waiting: one that names a call."""
        return next((claim for claim in self.explains if claim.op), self.explains[0])

    def knows(self, observation: Observation) -> bool:
        """Whether it was weighed with this observation."""
        return any(each.observation.is_same(observation) for each in self.weighed)

    @property
    def observed(self) -> Observation | None:
        """What it is about, where that was observed rather than concluded."""
        return self.about if isinstance(self.about, Observation) else None

    @property
    def pausing(self) -> tuple[int, ...]:
        """Culprits that wait for what may still come, and for no longer than a pause takes."""
        pauses = (w.observation.ranks for w in self.weighed if w.bearing is Bearing.PAUSES)
        return tuple(sorted({rank for ranks in pauses for rank in ranks}))

    @property
    def links(self) -> tuple[int, ...]:
        """Culprits that wait for an answer from outside the job: these are not blamed."""
        seen = (w.observation.ranks for w in self.weighed if w.bearing is Bearing.WAITS_OUTSIDE)
        return tuple(sorted({rank for ranks in seen for rank in ranks}))

    @property
    def all_doubts(self) -> tuple[Doubt, ...]:
        """What its rule is not sure of and nothing answers, and what others saw that adds to it."""
        raised = (w.bearing.doubt for w in self.weighed if w.bearing.doubt is not None)
        answered = {doubt for w in self.weighed for doubt in w.bearing.answers}
        open_ = (doubt for doubt in self.doubts if doubt not in answered)
        return tuple(dict.fromkeys((*open_, *raised)))

    def seen(self, observation: Observation, bearing: Bearing) -> Claim:
        """This claim with one more observation; when it is added makes no difference."""
        weighed = (*self.weighed, Weighed(observation, bearing))
        # Dumps and stacks name functions differently: who stands on one line stands there once.
        shown = {(site.ranks, site.file, site.line) for site in observation.sites}
        own = [site for site in observation.sites if site.role == "culprit"]
        rest = (each for each in self.sites if (each.ranks, each.file, each.line) not in shown)
        return replace(
            self,
            weighed=tuple(sorted(weighed, key=lambda w: _PLACE[w.bearing])),
            role="observation" if bearing is Bearing.ALL_CAME_BACK else self.role,
            moving=observation.ranks if bearing in _MOVING else self.moving,
            sites=(*own, *rest, *(each for each in observation.sites if each not in own)),
            subjects=self.subjects or observation.subjects,
        )

    def doubted(self, doubts: Iterable[Doubt]) -> Claim:
        """This claim with more doubts, each once."""
        return replace(self, doubts=tuple(dict.fromkeys((*self.doubts, *doubts))))

    def weights(self, stance: Stance) -> list[int]:
        """Weights of its observations of one stance, one (the heaviest) a source."""
        heaviest: dict[Source, int] = {}
        for each in self.weighed:
            if each.bearing.stance is stance:
                source = each.observation.source
                heaviest[source] = max(heaviest.get(source, 0), each.bearing.weight)
        return list(heaviest.values())


def doubts_left(claim: Claim) -> tuple[Doubt, ...]:
    """The doubts that count, the gravest first.

    Doubts of one rule do not add up: they are about the same evidence. A support that outweighs
    them makes a claim sure that names a rank and that nothing contradicts.
    """
    doubts = sorted(claim.all_doubts, key=lambda doubt: -doubt.cost)
    worst = doubts[0].cost if doubts else 0
    against, support = claim.weights(Stance.CONTRADICTS), claim.weights(Stance.SUPPORTS)
    if not against and claim.culprits and worst <= max(support, default=0):
        return ()
    return tuple(doubts)


def confidence_of(claim: Claim) -> Confidence:
    """High, down by its worst doubt that is left and by everything that contradicts it."""
    steps = max((doubt.cost for doubt in doubts_left(claim)), default=0)
    steps += sum(claim.weights(Stance.CONTRADICTS))
    return _LEVELS[min(steps, len(_LEVELS) - 1)]
