"""The scored corpus: several hundred cases with fixed seeds, in two parts.

The tuned part may be looked at by whoever writes rules. The held-out part has other seeds, other
sizes and recordings drawn anew, and composed faults; its single cases are nobody's business until
the rules are final. Once something of it was seen, it is drawn anew (`_DRAWS`), so that what is
reported is of cases that no rule could have been written against. A case is made from its
specification alone, anywhere, bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from lab.faults import FAULTS, Fault, Judge, Scene, UnfitError
from lab.faults.composed import COMPOSED
from lab.layouts.table import build
from lab.model.draft import LayoutRequest
from lab.model.job import Plan
from lab.recorder.recording import Recording
from lab.simulate.engine import Outcome, run
from lab.simulate.paused import paused_collector
from lab.truth import Truth
from unhang.errors import UsageError

PARTS = ("tuned", "held-out")
_CASES_PER_CLASS: Final = {"tuned": 9, "held-out": 6}
_SIZES = (4, 8, 8, 16, 16, 32, 64)
_DRAWS: Final = {"tuned": ("tuned", 0), "held-out": ("held-out, draw 10", 10 * 10**6)}
"""Of each part: the word that its dice start from, and the first seed of its range.

A draw counts only if all of its classes fit the layouts and sizes that they were given.
"""

_SEEDS = 10**6
_ATTEMPTS = 60
_LARGE: Final = {"tuned": (128, 256, 1024), "held-out": (128, 512, 1024)}


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """Everything that a case is made of.

    Attributes:
        name: Unique in the corpus: part, class and a number.
        condition: Key of `CONDITIONS`.
        seed: Decides the layout's dice, the fault's place, clocks and losses.
    """

    name: str
    fault: str
    layout: str
    ranks: int
    condition: str
    seed: int
    part: str = "tuned"


@dataclass(frozen=True, slots=True)
class MadeCase:
    """A case that has run: write it with `writer.write_dumps`."""

    spec: CaseSpec
    outcome: Outcome
    recording: Recording
    truth: Truth
    seed: int


Condition = Callable[[random.Random, Plan], Recording]


def _lose(rng: random.Random, plan: Plan, share: float) -> frozenset[int]:
    count = max(1, round(plan.world_size * share))
    return frozenset(rng.sample(range(plan.world_size), count))


def _keep_few(rng: random.Random, plan: Plan) -> Recording:
    keep = set(rng.sample(range(plan.world_size), rng.choice((1, 2, 3))))
    return Recording(missing=frozenset(range(plan.world_size)) - keep)


def _live(rng: random.Random, plan: Plan) -> Recording:
    del plan
    return Recording(described=True, at_s=rng.uniform(0.05, 0.15))


CONDITIONS: Final[dict[str, Condition]] = {
    "plain": lambda _rng, _plan: Recording(),
    "nccl-plain": lambda _rng, _plan: Recording(names="torch"),
    "nccl-status": lambda rng, _plan: Recording(version=rng.choice(("2.4", "2.7", "2.9", "2.10"))),
    "no-stacks": lambda _rng, _plan: Recording(stacks=False, names="nccl"),
    "json": lambda _rng, _plan: Recording(json=True),
    "hosts": lambda _rng, _plan: Recording(names="host", version="2.7"),
    "suffix": lambda _rng, _plan: Recording(names="suffix"),
    "skew": lambda rng, _plan: Recording(clock_skew_s=rng.choice((0.01, 0.5, 5.0))),
    "timing": lambda rng, _plan: Recording(timing=True, clock_skew_s=rng.choice((0.0, 0.2))),
    "active": lambda _rng, _plan: Recording(active_only=True, stacks=False, version="2.9"),
    "active-stacks": lambda _rng, _plan: Recording(active_only=True),
    "ring": lambda rng, _plan: Recording(buffer=rng.choice((24, 40, 64))),
    "tiny-ring": lambda _rng, _plan: Recording(buffer=6),
    "old": lambda rng, _plan: Recording(version=rng.choice(("2.1", "2.2", "2.4", "2.6"))),
    "oldest": lambda rng, _plan: Recording(version=rng.choice(("list", "1.4"))),
    "described": lambda _rng, _plan: Recording(described=True),
    "gloo": lambda _rng, _plan: Recording(),
    "gloo-failed": lambda _rng, _plan: Recording(after_failure=True),
    "lost": lambda rng, plan: Recording(missing=_lose(rng, plan, 0.15)),
    "emptied": lambda rng, plan: Recording(empty=_lose(rng, plan, 0.1)),
    "cut": lambda rng, plan: Recording(truncated=_lose(rng, plan, 0.1)),
    "few": _keep_few,
    "empty": lambda _rng, plan: Recording(empty=frozenset(range(plan.world_size))),
    "off": lambda _rng, _plan: Recording(buffer=0),
    "live": _live,
    "culprit-missing": lambda _rng, _plan: Recording(),
    "culprit-empty": lambda _rng, _plan: Recording(),
    "culprit-cut": lambda _rng, _plan: Recording(),
}
"""How a case is recorded. The last three are completed once the culprits are known."""

_USUAL = ("plain", "nccl-status", "no-stacks", "json", "hosts", "suffix", "skew", "timing", "old",
          "described")  # fmt: skip
_FORGETFUL = ("active", "active-stacks", "ring")
_LOSING = ("culprit-missing", "culprit-missing", "culprit-empty", "culprit-cut", "lost", "emptied")
_GLOO_LAYOUTS = ("ddp", "tp", "mixed")
_ONE_GROUP = ("ddp", "zero", "fsdp")


def _conditions(fault: Fault, layout: str) -> tuple[str, ...]:
    """The recording conditions that make sense for a class in a layout."""
    if fault.recordings:
        return fault.recordings
    fit: tuple[str, ...] = _USUAL if fault.history else (*_USUAL, *_FORGETFUL)
    if layout in _GLOO_LAYOUTS and layout != "mixed" and not _needs_nccl(fault):
        fit = (*fit, *["gloo"] * 5, *(() if fault.code != "UH101" else ("gloo-failed",)))
    if fault.loses:
        fit = (*fit, *_LOSING)
    if layout in _ONE_GROUP and not fault.history and "dtype" not in fault.name:
        fit = (*fit, "oldest")
    if layout == "mixed":
        fit = tuple(name for name in fit if name in ("plain", "no-stacks", "skew", "described"))
    return fit


def _needs_nccl(fault: Fault) -> bool:
    """Whether Gloo's recorder cannot show it: no sends, no devices, no times of completion."""
    codes = {fault.code, *(fault.near if fault.code else ())}
    return bool(codes & {"UH105", "UH302", "UH303", "UH304", "UH501"})


@cache
def cases(part: str) -> tuple[CaseSpec, ...]:
    """All cases of a part.

    Raises:
        UsageError: No such part.
    """
    if part not in PARTS:
        raise UsageError(f"There is no part {part!r} of the corpus.", f"One of: {', '.join(PARTS)}")
    return tuple(_specs(part))


def _specs(part: str) -> Iterator[CaseSpec]:
    table = {**FAULTS, **COMPOSED} if part == "held-out" else FAULTS
    draw, first_seed = _DRAWS[part]
    for name, fault in table.items():
        rng = random.Random(f"{draw}/{name}")  # noqa: S311 - the corpus is the same everywhere
        for number in range(_CASES_PER_CLASS[part] * fault.weight):
            layout = fault.layouts[number % len(fault.layouts)]
            if number >= len(fault.layouts):
                layout = rng.choice(fault.layouts)
            size = rng.choice([s for s in _SIZES if fault.smallest <= s <= fault.largest])
            condition = rng.choice(_conditions(fault, layout))
            seed = first_seed + rng.randrange(_SEEDS)
            yield CaseSpec(f"{part}/{name}-{number}", name, layout, size, condition, seed, part)
    yield from _large(part)


def _large(part: str) -> Iterator[CaseSpec]:
    """A few large jobs, and one of 16,384 ranks."""
    draw, first_seed = _DRAWS[part]
    rng = random.Random(f"{draw}/large")  # noqa: S311 - the corpus is the same everywhere
    plans = (
        ("never-joined", "megatron", "active"),
        ("never-joined", "fsdp", "plain"),
        ("pipeline-stall", "megatron", "active"),
        ("wrong-shape", "hsdp", "no-stacks"),
        ("healthy", "tp", "no-stacks"),
        ("fabric-stuck", "megatron", "active"),
    )
    for number, (fault, layout, condition) in enumerate(plans):
        size = _LARGE[part][number % 3]
        seed = first_seed + rng.randrange(_SEEDS)
        yield CaseSpec(f"{part}/large-{number}", fault, layout, size, condition, seed, part)
    seed = first_seed + rng.randrange(_SEEDS)
    yield CaseSpec(f"{part}/huge-0", "never-joined", "megatron", 16_384, "active", seed, part)


def spec_named(name: str) -> CaseSpec:
    """The case of a name, of any part.

    Raises:
        UsageError: There is none.
    """
    for part in PARTS:
        for spec in cases(part):
            if spec.name == name:
                return spec
    raise UsageError(f"There is no case {name!r}.", "See: python -m lab simulate --list")


def make(spec: CaseSpec) -> MadeCase:
    """Build, break and run the job of a case; the same everywhere for the same specification.

    Places that do not fit the class are tried again with other dice.

    Raises:
        UsageError: The class cannot be put into this layout and size at all.
    """
    table = {**FAULTS, **COMPOSED}
    if spec.fault not in table:
        raise UsageError(f"There is no fault {spec.fault!r}.", f"One of: {', '.join(table)}")
    fault = table[spec.fault]
    reason = ""
    for attempt in range(_ATTEMPTS):
        seed = spec.seed * _ATTEMPTS + attempt
        try:
            with paused_collector():
                return _attempt(spec, fault, seed)
        except UnfitError as error:
            reason = str(error)
    raise UsageError(
        f"{spec.fault} does not fit {spec.layout} with {spec.ranks} ranks ({reason}).",
        f"Layouts that fit it: {', '.join(fault.layouts)}; at least {fault.smallest} ranks.",
    )


def _attempt(spec: CaseSpec, fault: Fault, seed: int) -> MadeCase:
    rng = random.Random(f"case/{seed}")  # noqa: S311 - reproducible on purpose
    plan = build(spec.layout, request_for(spec, rng, seed))
    scene = Scene(plan, rng)
    judge = fault.inject(scene)
    recording = CONDITIONS[spec.condition](rng, plan)
    outcome = run(plan, seed)
    recording = _complete(spec.condition, recording, judge, outcome)
    if spec.fault != "head-overwritten":
        _check_rings(outcome, recording)
    truth = replace(shown_in(recording, judge(outcome, recording)), fault=spec.fault)
    return MadeCase(spec, outcome, recording, truth, seed)


def _check_rings(outcome: Outcome, recording: Recording) -> None:
    """A small ring must still show the calls in which ranks are stuck."""
    if recording.buffer and recording.buffer < Recording().buffer:
        for rank, records in enumerate(outcome.records):
            head = outcome.head(rank)
            if head is not None and len(records) - head.number > recording.buffer:
                raise UnfitError("a ring has forgotten the call in question")


def shown_in(recording: Recording, truth: Truth) -> Truth:
    """Ask for no line of code where the files have no frames."""
    if recording.shows_frames:
        return truth
    causes = tuple(
        replace(cause, points=tuple(replace(p, file="", line=0) for p in cause.points))
        for cause in truth.causes
    )
    return replace(truth, causes=causes)


def _complete(condition: str, recording: Recording, judge: Judge, outcome: Outcome) -> Recording:
    """Lose exactly the culprits' files where the condition says so."""
    if not condition.startswith("culprit-"):
        return recording
    culprits = judge(outcome, recording).culprits
    if condition == "culprit-missing":
        return replace(recording, missing=culprits)
    if condition == "culprit-empty":
        return replace(recording, empty=culprits)
    return replace(recording, truncated=culprits)


def request_for(spec: CaseSpec, rng: random.Random, seed: int) -> LayoutRequest:
    """Sizes of a job: long enough for its class, small enough for many cases."""
    large = spec.ranks > 64  # noqa: PLR2004 - fewer calls where there are many ranks
    huge = spec.ranks > 8192  # noqa: PLR2004 - and very few where there are very many
    late = spec.fault.startswith(("late", "healthy-one-late", "healthy-skewed"))
    steps = 8 if late else 1 if huge else 2 if large else rng.choice((3, 4, 5))
    return LayoutRequest(
        ranks=spec.ranks,
        seed=seed,
        steps=steps,
        layers=1 if huge else 2 if large else rng.choice((2, 3)),
        microbatches=2 if huge else 4 if large else rng.choice((4, 6, 8)),
        naming=rng.choice(("global", "global", "hashed", "local")),
        backend="gloo" if spec.condition.startswith("gloo") else "nccl",
        world_calls=not huge,  # the lists of members alone would be gigabytes
        batched=rng.random() < 0.7,  # noqa: PLR2004 - most jobs batch
        ends=rng.random() < 0.5,  # noqa: PLR2004 - either way
    )
