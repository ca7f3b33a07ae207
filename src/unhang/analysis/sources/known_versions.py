"""Whether the versions that a case tells of have a known fault that looks like its verdict."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.analysis.claims import Bearing, Claim, Observation, Seeing
from unhang.analysis.sources.logs import Said
from unhang.case import Case
from unhang.faults import DRIVER, KnownFault, faults_of
from unhang.kinds import INSUFFICIENT_EVIDENCE

__all__ = ["Faulty", "known_faults"]

_BY_FACT = {"NCCL version": "NCCL", "torch version": "torch", "driver version": DRIVER}


class Faulty(Observation, frozen=True, kw_only=True):
    """A version that the job runs, and its fault."""

    version: str
    fault: KnownFault


def known_faults(claim: Claim, case: Case, said: Said) -> Iterator[Seeing]:
    """Faults in which ranks stand without a rank at fault; nothing beside a claim that names one.

    Where there is not enough evidence, they fit if ranks waited in vain or an engine stands.
    """
    open_question = claim.kind is INSUFFICIENT_EVIDENCE
    if claim.culprits or (open_question and not (any(said.waiters) or said.standing)):
        return
    for library, version in sorted(_versions(case)):
        for fault in faults_of(library, version):
            if fault.stands:
                seen = Faulty(source="logs", version=version, fault=fault)
                yield seen, Bearing.KNOWN_FAULT


def _versions(case: Case) -> set[tuple[str, str]]:
    """Libraries with their versions, by logs, dumps and NCCL's RAS."""
    told = {(_BY_FACT[f.name], f.value) for f in case.log_facts if f.name in _BY_FACT}
    told |= {("NCCL", answer.version) for answer in case.ras if answer.version}
    return told | {("NCCL", dump.comm_lib_version) for dump in case.dumps if dump.comm_lib_version}
