"""Where the partner of a send or receive that waits has met one like it before.

A rank that waits in a collective has left out its side of an exchange, or its partner makes one too
many. No line of its own says so: the one at which it met such a call in an earlier step does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.model import Frame
from unhang.rehearse.matching.parties import LivingRank, MadeCall
from unhang.rehearse.matching.referee import Referee
from unhang.report import Finding, Site
from unhang.stacks.ownership import user_frame
from unhang.wording import printable

_SIDES: Final = {"send": ("recv", "received from"), "recv": ("send", "sent to")}


def with_earlier_partners(finding: Finding, referee: Referee) -> Finding:
    """A finding with the lines at which partners of its exchanges made their side before."""
    told = {(site.file, site.line) for site in finding.sites}
    ranks = sorted({rank for call in finding.calls for rank in call.ranks})
    for rank in ranks if finding.role == "cause" else ():
        process = referee.ranks.get(rank)
        for call in unmet(process) if process else ():
            partner = referee.ranks.get(call.issue.peer)
            before = _before(call, partner) if partner else None
            frame = user_frame(Frame(*each) for each in before.frames) if before else None
            if partner is None or frame is None or (frame.file, frame.line) in told:
                continue
            told.add((frame.file, frame.line))
            finding = _with(finding, call, partner, frame)
    return finding


def unmet(process: LivingRank) -> Iterator[MadeCall]:
    """Sends and receives of a rank that have not met."""
    return (c for c in process.calls.values() if c.issue.op in _SIDES and not c.met_ns)


def _before(call: MadeCall, partner: LivingRank) -> MadeCall | None:
    """The last call of a partner that met one like this; None where it waits in an exchange."""
    return None if any(unmet(partner)) else last_partner(call, partner)


def last_partner(call: MadeCall, partner: LivingRank) -> MadeCall | None:
    """The last call of a partner that met one like this."""
    other = _SIDES[call.issue.op][0]
    found = (
        each
        for each in reversed(partner.calls.values())
        if each.circle is call.circle
        and (each.issue.op, each.issue.peer) == (other, call.process.rank)
    )
    return next(found, None)


def _with(finding: Finding, call: MadeCall, partner: LivingRank, frame: Frame) -> Finding:
    role = "culprit" if partner.rank in finding.culprits else "victim"
    verb = _SIDES[call.issue.op][1]
    site = Site((partner.rank,), role, frame.file, frame.line, frame.function)
    where = printable(f"{Path(frame.file).name}:{frame.line} in {frame.function}")
    text = (
        f"Rank {partner.rank} {verb} rank {call.process.rank} before, at {where}, "
        f"and did not come there again."
    )
    return replace(finding, sites=(*finding.sites, site), evidence=(text, *finding.evidence))
