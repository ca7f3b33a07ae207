"""The same case in another order: dumps, processes, lines of logs; what a case promises stays."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from random import Random
from typing import TypeVar

import numpy as np

from unhang.case import Calls, Case, GroupStatus
from unhang.model import ProcessSample

__all__ = ["in_other_order"]

Columns = TypeVar("Columns", Calls, GroupStatus)


def in_other_order(case: Case, seed: int) -> Case:
    """The case with its dumps, looks, log lines and facts of logs in an order that `seed` makes.

    Calls stay in the order of their dump, looks at one process in the order of time. Lines of logs
    keep their own number (`LogEvent.order`), which tells their place in the input.
    """
    random = Random(seed)  # noqa: S311 - nothing is secret here
    events, facts = list(case.log_events), list(case.log_facts)
    random.shuffle(events)
    random.shuffle(facts)
    return dataclasses.replace(
        _dumps_shuffled(case, random),
        samples=_samples_shuffled(case, random),
        log_events=tuple(events),
        log_facts=tuple(facts),
    )


def _dumps_shuffled(case: Case, random: Random) -> Case:
    order = random.sample(range(len(case.dumps)), len(case.dumps))
    if not order:
        return case
    place = np.argsort(order)
    rows = [np.arange(case.dumps[old].start, case.dumps[old].stop) for old in order]
    dumps, start = [], 0
    for new, old in enumerate(order):
        dump = case.dumps[old]
        stop = start + dump.stop - dump.start
        dumps.append(dataclasses.replace(dump, index=new, start=start, stop=stop))
        start = stop
    return dataclasses.replace(
        case,
        dumps=tuple(dumps),
        calls=_moved(case.calls, np.concatenate(rows), place),
        group_status=_moved(
            case.group_status, np.argsort(place[case.group_status.dump], kind="stable"), place
        ),
    )


def _moved(columns: Columns, rows: np.ndarray, place: np.ndarray) -> Columns:
    """Columns with their rows elsewhere, and dumps under their new numbers."""
    made = {each.name: getattr(columns, each.name)[rows] for each in dataclasses.fields(columns)}
    made["dump"] = place[made["dump"]].astype(made["dump"].dtype)
    return type(columns)(**made)


def _samples_shuffled(case: Case, random: Random) -> tuple[ProcessSample, ...]:
    by_process: defaultdict[object, list[ProcessSample]] = defaultdict(list)
    for sample in case.samples:
        by_process[sample.host, sample.pid, sample.rank, sample.parent_rank].append(sample)
    processes = list(by_process.values())
    random.shuffle(processes)
    return tuple(sample for looks in processes for sample in looks)
