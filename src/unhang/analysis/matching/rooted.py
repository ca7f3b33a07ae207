"""Who is the root of a gather or a scatter, by what each member has recorded: there must be one.

torch records no roots, but the root of these two alone has a tensor for every member. Where several
have, or no member, members have named different roots. Their number does not show who is wrong,
since all but the root look alike; that a member always had the other role in this call does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from unhang.analysis.state.index import Evidence
from unhang.analysis.state.ops import is_root

_LEAST_TIMES = 2
"""As often as anything must have been before it is a habit (`unhang.analysis.divergence.rhythm`)"""


class RootsOfCall(Struct, frozen=True):
    """Members (global ranks) of a call that has several roots, or none.

    Attributes:
        roots: Who took it as its root.
        changed: Those who have another role than in all earlier ones, which had one root for all.
    """

    roots: tuple[int, ...]
    changed: tuple[int, ...]


def roots_apart(
    evidence: Evidence, channel: int, by_rank: Mapping[int, Sequence[int]]
) -> RootsOfCall | None:
    """The roots of a call, unless it has one, as it must, or nothing can be said.

    That there is none is said only where every member has made the call, and one was its root
    before; that all are, only where the dumps tell a root from the rest. Those of unfinished calls
    leave out the members that have come out of it, which are mostly no root.

    Args:
        evidence: The case.
        channel: Of the call.
        by_rank: Rows of the call by global rank, the last of each in question.
    """
    now = {rank: _role(evidence, rows[-1]) for rank, rows in by_rank.items()}
    roots = {rank for rank, role in now.items() if role}
    if None in now.values() or len(roots) == 1:
        return None
    before = {rank: _role_before(evidence, rows[-1]) for rank, rows in by_rank.items()}
    changed = {rank for rank, role in before.items() if role != now[rank]}
    if None in before.values() or len(roots ^ changed) != 1:
        changed = set()  # the root goes round, or is not known
    members = evidence.case.groups[evidence.group_of(channel)].members
    told = roots and (changed or len(roots) < len(now) or _left_out(evidence, channel, by_rank))
    if told or (changed and set(members) <= set(now)):
        return RootsOfCall(tuple(sorted(roots)), tuple(sorted(changed)))
    return None


def _left_out(evidence: Evidence, channel: int, by_rank: Mapping[int, Sequence[int]]) -> bool:
    """Whether dumps of unfinished calls, of a recorder that tells roots, leave other members out.

    NCCL's lets the others of a gather or scatter have one tensor alone; older torch than 2.6 tells
    no root at all.
    """
    case = evidence.case
    dumps = [case.dumps[int(case.calls.dump[rows[-1]])] for rows in by_rank.values()]
    kinds = [evidence.recorder_of(dump) for dump in dumps if dump.active_only]
    members = case.groups[evidence.group_of(channel)].members
    return len(kinds) == len(dumps) < len(members) and all(kind.marks_ends for kind in kinds)


def _role(evidence: Evidence, row: int) -> bool | None:
    case = evidence.case
    return is_root(case.names[case.calls.name[row]], case.signatures[case.calls.signature[row]])


def _role_before(evidence: Evidence, row: int) -> bool | None:
    """The one role that a rank has had in earlier calls of this kind and line; None for no one."""
    calls = evidence.case.calls
    start = evidence.case.dumps[int(calls.dump[row])].start
    alike = np.ones(row - start, np.bool_)
    for column in (calls.group, calls.name, calls.stack):
        alike &= column[start:row] == column[row]
    rows = start + np.flatnonzero(alike)
    roles = {_role(evidence, each) for each in rows.tolist()}
    return roles.pop() if len(rows) >= _LEAST_TIMES and len(roles) == 1 else None
