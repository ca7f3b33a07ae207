"""The jobs of the NCCL lab: what each needs of the fake device, and what is true about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lab.truth import Cause, Truth


@dataclass(frozen=True, slots=True)
class NcclFault:
    """A job that can be captured.

    Attributes:
        name: Of the job in `lab/nccl/jobs`.
        says: What happens, in a sentence.
        codes: Accepted codes of the cause; none: there is no problem.
        culprits: Who is to be named.
        also: Other sets that the dumps allow as well.
        ranks: How many processes.
        answers: How many of them leave a dump.
        device: Knobs of the fake device.
        observations: Codes that a job without a problem may carry.
        shows: Whether the hang leaves a dump by time-out.
        unseen: Its dumps are those of a job that is idle: nothing in them tells.
    """

    name: str
    says: str
    codes: tuple[str, ...] = ()
    culprits: tuple[int, ...] = ()
    also: tuple[tuple[int, ...], ...] = ()
    ranks: int = 4
    answers: int = 0
    device: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    observations: tuple[str, ...] = ()
    shows: bool = True
    unseen: bool = False

    @property
    def dumps(self) -> int:
        """How many ranks leave a dump."""
        return self.answers or self.ranks

    def truth(self) -> Truth:
        """The right verdict on its dumps."""
        cause = Cause(self.codes, self.culprits, self.also)
        told = Truth(("problem",), (cause,), self.ranks, fault=self.name)
        if self.unseen:  # by the recorder that it was found with; others may show it
            right = Truth(("insufficient",), (), self.ranks, fault=self.name, either=(told,))
        elif not self.codes:
            right = Truth(("healthy",), (), self.ranks, self.observations, self.name)
        else:
            right = told
        return replace(right, notes=(self.says,))


def _on_rank_2(how: str, after: int = 12) -> Mapping[str, str]:
    return {"FAKE_FAULT": how, "FAKE_FAULT_RANK": "2", "FAKE_FAULT_AFTER": str(after)}


_ALL = (
    NcclFault("healthy_ring", "Nothing is wrong: exchanges in a ring, and collectives."),
    NcclFault("healthy_all", "Nothing is wrong: every collective, alone and coalesced."),
    NcclFault("healthy_pipeline", "Nothing is wrong: a 1F1B pipeline by hand."),
    NcclFault("healthy_pipelining", "Nothing is wrong: torch's own 1F1B schedule."),
    NcclFault("graph_healthy", "Nothing is wrong: a captured step, replayed."),
    NcclFault(
        "slow_device",
        "Not stuck: rank 1 is slow, its kernels take 300 ms.",
        device={"FAKE_KERNEL_MS": "300", "FAKE_SLOW_RANK": "1"},
        observations=("UH501", "UH502"),
    ),
    NcclFault("late_once", "Not stuck: rank 2 is late once, for sixty calls made ahead."),
    NcclFault(
        "far_ahead",
        "Not stuck: hosts are seconds ahead of their devices, whose kernels take 100 ms.",
        device={"FAKE_KERNEL_MS": "100"},
    ),
    NcclFault("stall", "Rank 2 stands in its data loader.", ("UH101",), (2,)),
    NcclFault(
        "skipped_call", "Rank 1 leaves out the second of three calls.", ("UH102", "UH202"), (1,)
    ),
    NcclFault("extra_call", "Rank 3 makes one call too many.", ("UH102", "UH202"), (3,)),
    NcclFault("wrong_shape", "Rank 1 enters with another shape.", ("UH202",), (1,)),
    NcclFault("wrong_op", "Rank 3 calls broadcast instead of all_reduce.", ("UH201",), (3,)),
    NcclFault("killed", "Rank 2 is killed.", ("UH103", "UH106"), (2,), answers=3),
    NcclFault("alltoall_stall", "Rank 2 stands still in its router.", ("UH101",), (2,)),
    NcclFault("coalesced_stall", "Rank 1 stands still after batches.", ("UH101",), (1,)),
    NcclFault("coalesced_late", "Rank 3 stands still before a batch.", ("UH101",), (3,)),
    NcclFault("fsdp_stall", "Fully sharded: rank 2 stands still.", ("UH101",), (2,)),
    NcclFault("uneven_stall", "Rank 3 stands still before an uneven gather.", ("UH101",), (3,)),
    NcclFault("ddp_stall", "Rank 2 stands still in its forward.", ("UH101",), (2,)),
    NcclFault("pipeline_stall", "Stage 2 stands still.", ("UH101", "UH302"), (2,)),
    NcclFault(
        "pipelining_stall", "Stage 2 of torch's own 1F1B stands still.", ("UH101", "UH302"), (2,)
    ),
    NcclFault(
        "skipped_send",
        "Rank 1 leaves one send out and goes on to a collective.",
        ("UH302", "UH102"),
        (1,),
        also=((1, 2),),
    ),
    NcclFault(
        "skipped_recv", "Rank 1 leaves one receive out and goes on, ahead.", ("UH302",), (1,)
    ),
    NcclFault(
        "pipeline_skip",
        "Stage 1 leaves a receive of a batch out, in its second step.",
        ("UH302",),
        (1,),
    ),
    NcclFault("ring_stall", "Rank 5 stands still.", ("UH101", "UH302"), (5,), ranks=8),
    NcclFault("circle", "All receive before they send.", ("UH303",)),
    NcclFault("crossed_blocking", "Groups entered in crossed order.", ("UH301",), also=((1, 2),)),
    NcclFault(
        "crossed_ahead",
        "Groups entered in crossed order, ahead, on a device that runs one kernel at a time.",
        ("UH301",),
        also=((1, 2),),
        device={"FAKE_SERIAL": "1"},
    ),
    NcclFault(
        "gather_elsewhere",
        "Rank 2 sends its part of a gather to another root, which expects none.",
        ("UH402", "UH204"),
        (2,),
    ),
    NcclFault(
        "shorter_batch",
        "Rank 2's batch has a tensor less, and reads completed as all others do.",
        ("UH202", "UH401"),  # from 2.14 on NCCL records of a batch that it was made
        (2,),
        also=((),),
    ),
    NcclFault(
        "step_more",
        "Rank 3 makes one step more than its peers; or they all stand still before it.",
        ("UH101", "UH102"),
        (3,),
        also=((),),
    ),
    NcclFault("cube_stall", "Rank 5 stands still before tp.", ("UH101", "UH302"), (5,), ranks=8),
    NcclFault(
        "other_group",
        "Rank 1 reduces over dp where it should over tp.",
        ("UH301", "UH102", "UH302"),
        (1,),
        also=((),),
    ),
    NcclFault("sends_more", "Rank 0 sends a micro-batch too many.", ("UH302",), (0,)),
    NcclFault(
        "expert_skips",
        "Rank 1 leaves out one of three all_to_all, whose sizes differ anyway.",
        ("UH102",),
        (1,),
    ),
    NcclFault(
        "halo_raises",
        "Rank 2 ends before an exchange, and its neighbours wait in it.",
        ("UH103", "UH302", "UH101"),
        (2,),
        answers=3,
    ),
    NcclFault("leader_stalls", "Rank 3 stands still among leaders.", ("UH101",), (3,), ranks=6),
    NcclFault("mesh_stall", "Rank 3 stands still before a tp call.", ("UH101",), (3,)),
    NcclFault(
        "upper_half",
        "Ranks 2 and 3 have a group of their own; rank 3 stands still. Their files say 0 and 1.",
        ("UH101",),
        (3,),
        answers=2,
    ),
    NcclFault(
        "device_stops",
        "The device of rank 2 stops; all hosts go on.",
        ("UH105", "UH401", "UH402"),
        (2,),
        also=((),),
        device=_on_rank_2("device"),
    ),
    NcclFault(
        "kernel_hangs",
        "A kernel of rank 2 never ends; what is behind it never starts.",
        ("UH402", "UH401", "UH105"),
        (2,),
        also=((),),
        device=_on_rank_2("kernel"),
    ),
    NcclFault(
        "call_never_ends",
        "A collective of rank 2 never ends there; its peers finish it.",
        ("UH402", "UH105", "UH401"),
        (2,),
        device=_on_rank_2("finish"),
    ),
    NcclFault(
        "enqueue_hangs",
        "Rank 2 never comes back from NCCL.",
        ("UH104", "UH402"),  # formats without counters do not tell who
        (2,),
        also=((),),
        device=_on_rank_2("enqueue"),
    ),
    NcclFault(
        "remote_error",
        "NCCL reports an error on rank 2, which gives up.",
        ("UH101", "UH402"),
        (2,),
        also=((),),
        device=_on_rank_2("error"),
        shows=False,
    ),
    NcclFault(
        "network_stops",
        "The network of ranks 0 and 1 stops.",
        ("UH401",),
        device={"FAKE_NET_AFTER": "5", "FAKE_NET_RANKS": "0,1"},
    ),
)

FAULTS = {fault.name: fault for fault in _ALL}
"""Every job that is captured, by its name."""
