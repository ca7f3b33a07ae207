"""Whether the versions that a case tells of have a known fault that looks like its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.device_behind import DEVICE_BEHIND
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING, PARTLY_FINISHED
from unhang.analysis.rules.rule import ANY, Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.case import Case
from unhang.faults import DRIVER, KnownFault, faults_of
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.wording import printable

_BY_FACT = {"NCCL version": "NCCL", "torch version": "torch", "driver version": DRIVER}


class Faulty(Observation, frozen=True, kw_only=True):
    """A version that the job runs, and its fault."""

    version: str
    fault: KnownFault


def _known_faults(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Faults in which ranks stand without a rank at fault; nothing next to a claim that names one.

    Where there is not enough evidence, they fit if ranks waited in vain or an engine stands.
    """
    said = facts.lives.said
    open_question = claim.kind is INSUFFICIENT_EVIDENCE
    if claim.culprits or (open_question and not (any(said.waiters) or said.standing)):
        return
    for library, version in sorted(_versions(facts.case)):
        for fault in faults_of(library, version):
            if fault.stands:
                seen = Faulty(source="logs", version=version, fault=fault)
                yield seen, Bearing.KNOWN_FAULT


RULE: Final = Rule(
    observers=(
        Observer(
            sees=_known_faults,
            roles=ANY,
            kinds=(JOINED_NOT_PROGRESSING, PARTLY_FINISHED, DEVICE_BEHIND, INSUFFICIENT_EVIDENCE),
        ),
    )
)


def _versions(case: Case) -> set[tuple[str, str]]:
    """Libraries with their versions, by logs, dumps and NCCL's RAS."""
    told = {(_BY_FACT[f.name], f.value) for f in case.log_facts if f.name in _BY_FACT}
    told |= {("NCCL", answer.version) for answer in case.ras if answer.version}
    return told | {("NCCL", dump.comm_lib_version) for dump in case.dumps if dump.comm_lib_version}


@adding_for(Faulty)
def _adding_fault(seen: Faulty, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    """A known fault of a version, next to what names no rank."""
    fault, version = seen.fault, printable(seen.version, 40)
    helps = f"; until it is updated: {fault.helps}" if fault.helps else ""
    said = f"{fault.library} {version} has a known fault: {fault.what} ({fault.thread}){helps}."
    others = claim.kind.alternatives if words.alternatives is None else words.alternatives
    return replace(words, alternatives=(*others, said))
