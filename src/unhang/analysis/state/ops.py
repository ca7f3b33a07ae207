"""What each operation demands of its members: which sizes must agree, and who may finish early.

One table of families and the rules that follow from it. An operation that is not in the table is
opaque: only its name is compared. Nothing here knows about ranks, windows or waiting.

Sizes are compared by number of elements, because that is what goes over the wire: a (4, 4) and a
(16,) all-reduce meet without harm. Of a gather and a scatter, which have one side at their root
alone, it is what each member gives or gets; which side that is differs from recorder to recorder.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from unhang.analysis.state.columns import Bools, Ints
from unhang.batches import is_closing
from unhang.case import Case
from unhang.model import OpName, Shape, Signature

Compared = Literal["input", "output", "part", "totals", "nothing"]


class OpRule(Struct, frozen=True):
    """What a family of operations demands.

    Attributes:
        family: Operations of one family meet each other on the wire.
        compared: Which sizes all members must agree in; "totals": inputs and outputs agree in sum
            over all members only; "part": one side is the root's alone, and all agree in the other.
        synchronising: It cannot finish anywhere before every member has called it. Not so for a
            broadcast (its source may run ahead) nor for exchanges with empty parts.
        known: False for an operation that is not in the table.
    """

    family: str
    compared: Compared
    synchronising: bool
    known: bool = True


_FAMILIES: dict[str, tuple[Compared, bool, tuple[str, ...]]] = {
    "all_reduce": (
        "input", True, ("all_reduce", "allreduce", "allreduce_coalesced", "all_reduce_coalesced"),
    ),
    "barrier": ("nothing", True, ("barrier", "all_reduce_barrier")),
    "all_gather": (
        "output", True,
        ("all_gather", "allgather", "_all_gather_base", "_allgather_base", "all_gather_into_tensor",
         "all_gather_single", "all_gather_into_tensor_coalesced", "all_gather_v",
         "allgather_into_tensor_coalesced"),
    ),
    "reduce_scatter": (
        "input", True,
        ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor", "reduce_scatter_single",
         "reduce_scatter_tensor_coalesced", "reduce_scatter_v"),
    ),
    "all_to_all": (
        "totals", False,
        ("all_to_all", "alltoall", "all_to_all_single", "alltoall_base", "all_to_all_v_single",
         "alltoall_single"),
    ),
    "broadcast": ("output", False, ("broadcast", "_broadcast_oop")),
    "reduce": ("input", False, ("reduce", "_reduce_oop")),
    "gather": ("part", False, ("gather", "gather_single")),
    "scatter": ("part", False, ("scatter",)),
    "coalesced": ("nothing", False, ("coalesced",)),
    "allgather_coalesced": ("nothing", True, ("allgather_coalesced",)),
    # NCCL marks an uneven one as finished at once: its parts run on another stream than its event.
    "reduce_scatter_coalesced": ("nothing", False, ("reduce_scatter_coalesced",)),
    "send": ("nothing", False, ("send",)),
    "recv": ("nothing", False, ("recv", "recv_any_source", "recvanysource")),
}  # fmt: skip

_RULES = {
    op: OpRule(family, compared, synchronising)
    for family, (compared, synchronising, ops) in _FAMILIES.items()
    for op in ops
}
PARTS = frozenset({"_broadcast_oop", "_reduce_oop"})
"""Operations that replace a call on uneven tensors in torch, one a rank under one number."""
_UNDEFINED = "UNKNOWN_SCALAR"
"""The dtype that NCCL's recorder writes for a tensor that is not there; its sizes are `[0]`."""

_ITEM_BYTES: Final = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Half": 2,
    "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
}  # fmt: skip


def rule_of(op: str) -> OpRule:
    """The rule of an operation, by the name that the recorder gives it."""
    return _RULES.get(op.lower()) or OpRule(op.lower(), "nothing", synchronising=False, known=False)


class Demand(Struct, frozen=True):
    """What one call demands of its peers; equal demands can meet.

    Attributes:
        family: See `OpRule`.
        elements: Number of elements that the others must have too, or None where sizes may differ
            from rank to rank or were not recorded.
        dtypes: Element types, each once, sorted; empty where not recorded or of no importance.
    """

    family: str
    elements: int | None
    dtypes: tuple[str, ...]


def demand_of(name: OpName, signature: Signature) -> Demand:
    """Boil one call down to what must be equal on all members."""
    rule = rule_of(name.op)
    if rule.family in ("barrier", "coalesced") or not rule.known:
        return Demand(rule.family, None, ())
    dtypes = tuple(sorted({*signature.input_dtypes, *signature.output_dtypes} - {_UNDEFINED}))
    if rule.compared == "part":
        return Demand(rule.family, min(_parts(signature), default=None), dtypes)
    if rule.compared == "input":
        return Demand(rule.family, elements(signature.input_sizes), dtypes)
    if rule.compared == "output":
        return Demand(rule.family, elements(signature.output_sizes), dtypes)
    return Demand(rule.family, None, dtypes)


def is_root(name: OpName, signature: Signature) -> bool | None:
    """Whether a member of a gather or scatter is its root: it alone has all parts, next to its own.

    None for other operations, and where what was recorded does not tell.
    """
    parts = _parts(signature)
    if rule_of(name.op).compared != "part" or not parts:
        return None
    return len(parts) > 1 and max(parts) > min(parts)


def _parts(signature: Signature) -> list[int]:
    """Elements of the sides of a call that are there."""
    sides = elements(signature.input_sizes), elements(signature.output_sizes)
    return [side for side in sides if side]


def elements(sizes: tuple[Shape, ...]) -> int | None:
    """Number of elements of all tensors together; None where no sizes were recorded.

    >>> elements(((2, 3), (4,)))
    10
    """
    return sum(prod(shape) for shape in sizes) if sizes else None


def bytes_of(signature: Signature) -> int:
    """The data of a call as nccl-tests counts them: the larger of its inputs and outputs."""
    sides = (
        (signature.input_sizes, signature.input_dtypes),
        (signature.output_sizes, signature.output_dtypes),
    )
    totals = [
        sum(
            prod(shape) * _ITEM_BYTES.get(dtype, 0)
            for shape, dtype in zip(shapes, dtypes, strict=False)
        )
        for shapes, dtypes in sides
    ]
    return max(totals)


class Names(Struct, frozen=True, eq=False):
    """What each entry of `Case.names` is, as columns next to it.

    Attributes:
        backend: Index in `Evidence.backends`.
        closing: It closes a batch, see `unhang.batches`.
        synchronising: See `OpRule`.
    """

    backend: Ints
    closing: Bools
    synchronising: Bools


def names_of(case: Case) -> tuple[tuple[str, ...], Names]:
    """The backends of a case, and what its names are."""
    backends: dict[str, int] = {}
    backend = [backends.setdefault(name.backend, len(backends)) for name in case.names]
    for dump in case.dumps:
        if dump.backend:
            backends.setdefault(dump.backend, len(backends))
    return tuple(backends) or ("",), Names(
        backend=np.asarray(backend, np.int64),
        closing=_flags(is_closing(name) for name in case.names),
        synchronising=_flags(rule_of(name.op).synchronising for name in case.names),
    )


def _flags(values: Iterable[bool]) -> Bools:
    return np.asarray(list(values), np.bool_)
