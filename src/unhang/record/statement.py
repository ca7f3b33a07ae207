"""What a process tells of itself: records that are handed on whole, from recorder to verdict.

A mark and a heartbeat have their fields, a sample has both. A new fact is named here, set where
it is seen and asked for where it matters; what lies between hands it on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def handed_on(whole: object, kind: type[DataclassInstance]) -> dict[str, Any]:
    """The fields of one kind of record by name, of whatever else it is: to make another of them."""
    return {each.name: getattr(whole, each.name) for each in fields(kind)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Meeting:
    """How a process came to its job: what it gave `init_process_group`, or was started with.

    Attributes:
        phase: How far it has come: "starting", "imported" (torch.distributed), "initialising" (in
            `init_process_group`), "ready", "destroyed" or "exited"; "" where nothing tells.
        env_rank: Its rank by that word; a hint only, helpers inherit it. None where nothing says.
        told_size: The number of ranks by the same word; 0 where nothing says.
        rendezvous: Where it meets its peers ("node01:29500", a file), or "" before it does.
        leftover_s: Where they meet at a file: for how long it had been there, with something in it,
            when the run began; 0 where it was not.
        earlier: How many attempts of torchrun have met at this place before, and left their
            addresses there; 0 where each has a store of its own.
    """

    phase: str = ""
    env_rank: int | None = None
    told_size: int = 0
    rendezvous: str = ""
    leftover_s: int = 0
    earlier: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class ProgramState:
    """What the recorder saw of the program of a process when its heartbeat was read.

    Attributes:
        activity: What the program says that it does between steps ("evaluation"), or "".
        awaits, has_set: The key of a store that it waits for, and the one that it set last through
            Python; of long ones the end. "" where there is none, or nothing tells.
        worker, serving: Its name as a worker of torch's RPC, and how many of its threads serve the
            others; "" and 0 where it is none.
        asks, asks_in, asks_for: The workers that it waits for, with commas, in which call of RPC,
            and for which function to be run; "" where it waits for none, or nothing tells.
        lost_ns: When a call of it last raised because a peer was gone or did not come in time; 0
            where none did.
        roots: Numbers of its last call that had a root, and of the one right before it if it had
            one, too; and that root: the rank in the group that the data come from or go to.
    """

    activity: str = ""
    awaits: str = ""
    has_set: str = ""
    worker: str = ""
    serving: int = 0
    asks: str = ""
    asks_in: str = ""
    asks_for: str = ""
    lost_ns: int = 0
    roots: tuple[tuple[int, int], ...] = ()
