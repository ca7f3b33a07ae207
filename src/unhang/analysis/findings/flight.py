"""Whether who waits has only just begun to: then no rank is missed yet."""

from __future__ import annotations

import numpy as np

from unhang.analysis.matching.roots import Root
from unhang.analysis.shared.situation import Situation
from unhang.analysis.state.progress import Known


def in_flight(situation: Situation, root: Root) -> bool:
    """Whether all who wait at a root had only just begun to when their dumps were made.

    Those whose dumps do not tell may have waited as briefly: they accuse no rank. A circle never
    ends, however young it is, if it is known who waits for whom: its sends and receives are the
    ones that meet, and what a rank has not made its dump would show. Or the rank that is waited for
    was seen to move. Where all have come and their hosts ran ahead, dumps that hide what has ended
    do not show for how long they have been in the call.
    """
    inside = [situation.heads.inside(call) for call in root.waiting_calls]
    ranks, ages = np.concatenate(inside), situation.ages
    waited_long = (ages.old | ages.stood)[ranks].any()
    if root.kind == "call" and (ages.unnoticed | ages.queued)[ranks].all():
        return True
    if root.kind != "cycle" and ages.slowly[ranks].all() and not ages.unproven[ranks].any():
        return True
    if root.kind == "ranks" and not waited_long and _moved(situation, root):
        return True
    pairs, blame = situation.pairs, situation.graph.blame
    sure = pairs.sure[np.isin(pairs.waiting_call, root.waiting_calls)].all()
    ways = np.isin(blame.waiting_call, root.waiting_calls) & np.isin(blame.rank, root.ranks)
    sure &= (blame.known[ways] >= Known.SURE).all()
    doubted = (root.kind == "cycle" and sure) or (ages.old | ages.unproven)[ranks].any()
    return bool(ages.young[ranks].any() and not doubted)


def _moved(situation: Situation, root: Root) -> bool:
    """Whether calls of the ranks that others wait for had just ended when their dumps were made.

    Of all of them; or of one in the group of the call: no rank had waited for the next call there.
    """
    ranks, channels = np.divmod(situation.just_ended, situation.evidence.n_channels)
    here = np.isin(channels, situation.heads.channel[list(root.waiting_calls)])
    there = set(ranks[here].tolist())
    return set(ranks.tolist()).issuperset(root.ranks) or not there.isdisjoint(root.ranks)
