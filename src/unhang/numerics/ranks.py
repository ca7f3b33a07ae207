"""Compare parameters and buffers of all ranks: hashes first, tensors only where hashes differ."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from unhang.kinds import Kind
from unhang.model import Note
from unhang.report import Finding, Job, RankStatus, Report, Subject
from unhang.wording import fold_ranks, printable

RANKS_NUMBERS_DIFFER: Final = Kind(
    "UH872",
    "ranks-numbers-differ",
    "failure",
    "Ranks hold different values of one tensor.",
    actions=(
        "Compare them after every step to find the first one that differs.",
        "Check seeds, loaded checkpoints, parameters that no gradient synchronisation reaches.",
    ),
)

MAX_SHOWN = 16


def digest(tensor: Any) -> str:  # noqa: ANN401 - a tensor
    """SHA-256 of shape, dtype and bytes."""
    import torch

    plain = tensor.detach().to("cpu").contiguous()
    head = f"{list(plain.shape)} {plain.dtype}|".encode()
    body = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return hashlib.sha256(head + body).hexdigest()


def compare_across_ranks(module: Any) -> Report | None:  # noqa: ANN401 - a torch module
    """Compare a replicated module over the ranks of the default group.

    Call it on every rank, at the same point. Tensors are only sent where their hashes differ.

    Returns:
        The verdict on rank 0, None on the others.
    """
    import torch.distributed as dist

    own = dict(module.named_parameters()) | dict(module.named_buffers())
    hashes: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(hashes, {name: digest(tensor) for name, tensor in own.items()})
    errors: dict[str, float] = {}
    for name in _differing(hashes)[:MAX_SHOWN]:
        errors[name] = _largest_error(own.get(name), hashes, name)
    return judge_hashes(hashes, errors) if dist.get_rank() == 0 else None


def _differing(hashes: Sequence[Mapping[str, str]]) -> list[str]:
    names = sorted({name for one in hashes for name in one})
    return [name for name in names if len({one.get(name) for one in hashes}) > 1]


def _largest_error(tensor: Any, hashes: Sequence[Mapping[str, str]], name: str) -> float:  # noqa: ANN401 - a tensor
    """Largest difference to the ranks' middle value; NaN where not all have the tensor alike."""
    import torch
    import torch.distributed as dist

    shapes: list[object] = [None] * len(hashes)
    dist.all_gather_object(shapes, None if tensor is None else tuple(tensor.shape))
    if len(set(shapes)) > 1 or tensor is None:
        return float("nan")
    mine = tensor.detach().cpu().double().contiguous()
    parts: list[Any] = [None] * len(hashes)
    dist.all_gather_object(parts, mine)
    del name
    stacked = torch.stack(parts)
    return float((stacked - stacked.median(dim=0).values).abs().max())


def judge_hashes(hashes: Sequence[Mapping[str, str]], errors: Mapping[str, float]) -> Report:
    """Fold what differs by the ranks that are in the minority; without one, blame no rank."""
    bad = _differing(hashes)
    sides: dict[tuple[int, ...], list[str]] = {}
    for name in bad:
        sides.setdefault(_minority(hashes, name), []).append(name)
    findings = tuple(
        _finding(i, odd, names, errors) for i, (odd, names) in enumerate(sides.items())
    )
    count = len({name for one in hashes for name in one})
    compared = count > 0 and len(hashes) > 1
    culprits = {rank for finding in findings for rank in finding.culprits}
    return Report(
        status="problem" if bad else "healthy" if compared else "insufficient",
        summary=findings[0].summary if findings else _agreement(count, len(hashes)),
        job=Job(world_size=len(hashes), ranks_seen=len(hashes)),
        findings=findings,
        ranks=tuple(
            RankStatus(rank, "culprit" if rank in culprits else "ok") for rank in range(len(hashes))
        ),
        notes=(Note("info", "numerics", f"{count - len(bad)} of {count} tensors agree"),),
    )


def _agreement(count: int, ranks: int) -> str:
    if not count:
        return "Nothing could be compared: the module has no parameter and no buffer."
    if ranks < 2:  # noqa: PLR2004 - a comparison has two sides
        return "Nothing could be compared: there is one rank only."
    return f"{count} tensors agree on all ranks."


def _minority(hashes: Sequence[Mapping[str, str]], name: str) -> tuple[int, ...]:
    """Ranks whose tensor is not that of more than half of all ranks; () where none is."""
    common, votes = Counter(one.get(name) for one in hashes).most_common(1)[0]
    if votes * 2 <= len(hashes):
        return ()
    return tuple(rank for rank, one in enumerate(hashes) if one.get(name) != common)


def _finding(
    index: int, odd: tuple[int, ...], names: Sequence[str], errors: Mapping[str, float]
) -> Finding:
    who = f"Rank{'s' if len(odd) > 1 else ''} {fold_ranks(odd)}" if odd else "Ranks"
    verb = "differ" if len(odd) != 1 else "differs"
    shown = [
        printable(name) + (f": largest difference {errors[name]:.3g}" if name in errors else "")
        for name in names[:MAX_SHOWN]
    ]
    return Finding(
        id=f"f{index + 1}",
        code=RANKS_NUMBERS_DIFFER.code,
        role="cause",
        confidence="high" if odd else "medium",
        confidence_reasons=() if odd else ("no side has a majority, so either may be wrong",),
        summary=f"{who} {verb} in {len(names)} tensors, first {printable(names[0])}.",
        culprits=odd,
        subjects=tuple(Subject("rank", f"rank {rank}", rank=rank) for rank in odd[:MAX_SHOWN]),
        evidence=tuple(shown),
        alternatives=(() if odd else ("No side has a majority, so no rank is blamed.",)),
        actions=RANKS_NUMBERS_DIFFER.actions,
    )
