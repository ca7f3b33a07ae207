"""Whether a call of one rank is of the kind that another one waits for."""

from __future__ import annotations

import numpy as np

from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.ops import rule_of


def group_peer(situation: Situation, name: int, *, sending: bool) -> int:
    """Group rank at the other end of calls of a name and direction; -1 for others."""
    op = situation.evidence.case.names[name]
    if rule_of(op.op).family != ("send" if sending else "recv"):
        return -1
    return op.dst if sending else op.src


def is_asked_for(situation: Situation, row: int, waiting_call: int) -> bool:
    """Whether a call of the kind of this row would meet a waiting call: no send meets a send."""
    evidence, heads = situation.evidence, situation.heads
    calls = evidence.case.calls
    if int(evidence.channel(np.asarray([row]))[0]) != int(heads.channel[waiting_call]):
        return False
    if waiting_call < heads.n_collective:
        return bool(evidence.collective[row])
    if evidence.collective[row]:
        return False
    members = evidence.case.groups[int(calls.group[row])].members
    waiting = int(evidence.ranks.numbers[int(heads.owner[waiting_call])])
    sending_there = situation.pairs.sending[situation.pairs.of_waiting_call(waiting_call)]
    for sending in {not each for each in sending_there.tolist()}:
        peer = group_peer(situation, int(calls.name[row]), sending=sending)
        if 0 <= peer < len(members) and members[peer] == waiting:
            return True
    return False


def would_meet(situation: Situation, row: int, waiting_call: int) -> bool:
    """Whether a send or receive of the kind of this row is one that a waiting call lacks."""
    pairs, case = situation.pairs, situation.evidence.case
    calls = pairs.of_waiting_call(waiting_call)
    lacks = {
        "recv" if sends else "send" for sends in pairs.sending[calls[pairs.counterpart[calls] < 0]]
    }
    kind = rule_of(case.names[int(case.calls.name[row])].op).family
    return kind in lacks and is_asked_for(situation, row, waiting_call)
