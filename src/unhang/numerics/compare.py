"""Compare two recordings: where they first part beyond what their dtypes allow, and by how much.

The tolerance is that of torch.testing.assert_close for the less precise dtype (relative 1.3e-6 and
absolute 1e-5 for float32, 1.6e-2 and 1e-5 for bfloat16, 1e-3 and 1e-5 for float16). An error is
also given in units in the last place (ULPs) of that dtype at the value's size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from unhang.kinds import Kind
from unhang.model import Note
from unhang.numerics.recording import Output, Recording
from unhang.report import Finding, Report, Status, Subject
from unhang.wording import count_of, printable

NUMBERS_DIFFER: Final = Kind(
    "UH870",
    "numbers-differ",
    "failure",
    "Two settings give numbers that differ too much.",
    alternatives=("Errors add up over a deep network: --scale widens the allowed difference.",),
    actions=("Run it with --ops to see the operator; compare its inputs there.",),
)

NOT_FINITE: Final = Kind(
    "UH871",
    "not-finite",
    "failure",
    "A module or operator gives NaN or infinity.",
    actions=("Look at its inputs: overflow, division by zero, log of zero.",),
)

# dtype -> (relative, absolute, bits of the mantissa); torch.testing's defaults.
_DTYPES = {
    "float64": (1e-7, 1e-7, 52),
    "float32": (1.3e-6, 1e-5, 23),
    "float16": (1e-3, 1e-5, 10),
    "bfloat16": (1.6e-2, 1e-5, 7),
}
SHOWN = 12


class Tolerance(NamedTuple):
    """What is allowed, as in torch.testing: `atol + rtol * |reference|`, whatever the dtypes."""

    rtol: float
    atol: float

    @property
    def exact(self) -> bool:
        """Whether nothing is."""
        return not (self.rtol or self.atol)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two outputs are apart.

    Attributes:
        max_abs, max_rel: Largest absolute error, and largest relative to the reference's value.
        at_abs, at_rel: The indices of these.
        ulps: Largest error in units in the last place of the less precise dtype.
        excess: Largest error divided by what is allowed there: above 1 is too much.
        differing: Elements that are further apart than is allowed, of `size`.
        reason: Why they cannot be compared ("shapes differ…"), or "".
    """

    output: Output
    max_abs: float = 0.0
    max_rel: float = 0.0
    at_abs: tuple[int, ...] = ()
    at_rel: tuple[int, ...] = ()
    ulps: float = 0.0
    excess: float = 0.0
    differing: int = 0
    size: int = 0
    reason: str = ""

    @property
    def too_much(self) -> bool:
        """Whether it is beyond what is allowed."""
        return bool(self.reason) or self.differing > 0

    def __str__(self) -> str:
        what = f"{self.output.kind} {printable(self.output.name)}"
        if self.output.index:
            what += f" (call {self.output.index + 1})"
        if self.reason:
            return f"{what}: {self.reason}"
        times = (
            f"; {self.excess:.2g} times the allowed difference"
            if math.isfinite(self.excess)
            else ""
        )
        return (
            f"{what}: {self.differing} of {count_of(self.size, 'element')} differ "
            f"({self.differing / max(self.size, 1):.1%}), max error {self.max_abs:.6g} absolute at "
            f"index {_index(self.at_abs)}, {self.max_rel:.6g} relative at index "
            f"{_index(self.at_rel)}, {self.ulps:.0f} ULPs{times}"
        )


def _index(at: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, at))}{',' if len(at) == 1 else ''})"


def measure(
    reference: Output, other: Output, scale: float = 1.0, allowed: Tolerance | None = None
) -> Difference:
    """Compare two outputs element by element.

    Args:
        reference: The more trusted one.
        other: The one to judge.
        scale: Widens what the dtypes allow: errors add up over a deep network.
        allowed: What is allowed instead.
    """
    a, b = reference.value, other.value
    if a.shape != b.shape:
        return Difference(other, reason=f"shapes differ: {list(a.shape)} and {list(b.shape)}")
    if a.numel() == 0:
        return Difference(other)
    finite = a.isfinite() & b.isfinite()
    if reason := _not_alike(a, b, finite):
        return Difference(other, reason=reason)
    if not bool(finite.any()):
        return Difference(other)
    return _measured(reference, other, finite, scale, allowed)


def _not_alike(a: Any, b: Any, finite: Any) -> str:  # noqa: ANN401 - tensors
    """How NaN and infinity differ; "" where both have the same ones."""
    alike = finite | (a.isnan() & b.isnan()) | (a == b)
    if bool(alike.all()):
        return ""
    number, first = int((~alike).sum()), _place(int((~alike).flatten().int().argmax()), a.shape)
    values = f"{float(a[first]):g} and {float(b[first]):g}"
    return (
        f"one of them is NaN or infinite where the other is not: {number} of "
        f"{count_of(a.numel(), 'element')}, the first at index {_index(first)} ({values})"
    )


def _place(flat: int, shape: Any) -> tuple[int, ...]:  # noqa: ANN401 - a torch.Size
    """An index into a tensor, from one into its elements in order."""
    place = []
    for length in reversed(shape):
        flat, rest = divmod(flat, length)
        place.append(rest)
    return tuple(reversed(place))


def _measured(
    reference: Output,
    other: Output,
    finite: Any,  # noqa: ANN401 - a tensor
    scale: float,
    tolerance: Tolerance | None,
) -> Difference:
    a = reference.value.where(finite, 0.0)
    b = other.value.where(finite, 0.0)
    relative, absolute, bits = max(
        (_DTYPES.get(name, _DTYPES["float32"]) for name in (reference.dtype, other.dtype)),
        key=lambda row: row[0],
    )
    error = (a - b).abs()
    # A sum of large terms may come out near zero with the error of its terms: nothing smaller
    # than the tensor's own root mean square is asked to be more exact than that.
    mean_square = float(a.square().sum()) / max(int(finite.sum()), 1)
    magnitude = a.abs().clamp(min=math.sqrt(mean_square))
    if tolerance is None:
        allowed = (absolute + relative * magnitude) * scale
    else:
        allowed = tolerance.atol + tolerance.rtol * b.abs()
    # As torch.testing.assert_close(first, second) has it, where its tolerances are given.
    size = (a if tolerance is None else b).abs().clamp(min=2.0**-126)
    ulp = 2.0 ** (magnitude.clamp(min=2.0**-126).log2().floor() - bits)
    by_size = error / size
    excess = (error / allowed).where(error > 0, 0.0)
    return Difference(
        other,
        max_abs=float(error.max()),
        max_rel=float(by_size.max()),
        at_abs=_place(int(error.flatten().argmax()), a.shape),
        at_rel=_place(int(by_size.flatten().argmax()), a.shape),
        ulps=float((error / ulp).max()),
        excess=float(excess.max()),
        differing=int((error > allowed).sum()),
        size=a.numel(),
    )


def compare(
    reference: Recording,
    other: Recording,
    scale: float = 1.0,
    allowed: Tolerance | None = None,
) -> Report:
    """Find the first output of `other` that is too far from the reference's.

    Outputs are matched by kind, name and how often the name had come before.
    """
    known = {(o.kind, o.name, o.index): o for o in reference.outputs}
    pairs = [
        (known[key], output)
        for output in other.outputs
        if (key := (output.kind, output.name, output.index)) in known
    ]
    differences = [measure(*pair, scale, allowed) for pair in pairs]
    findings = [*_not_finite(reference, other), *_parts(differences, reference, other)]
    notes = [
        Note("warning", str(r.setting), "not all outputs could be kept") for r in (reference, other)
        if r.cut
    ]  # fmt: skip
    only = len(other.outputs) - len(differences)
    if only:
        notes.append(Note("info", "compare", f"{only} outputs exist on one side only"))
    causes = [f for f in findings if f.role == "cause"]
    unseen = _unseen(pairs, reference, other)
    status: Status = "problem" if causes else "insufficient" if unseen else "healthy"
    return Report(
        status=status,
        summary=causes[0].summary
        if causes
        else unseen or _agree(differences, reference, other, allowed),
        findings=tuple(findings),
        notes=tuple(notes),
    )


def _unseen(pairs: Sequence[tuple[Output, Output]], a: Recording, b: Recording) -> str:
    """Why that nothing differs proves nothing; "" if it does."""
    if not pairs:
        return "Nothing could be compared: no floating point tensor came out on both sides."
    for what in ("dtype", "device"):
        wanted = (getattr(a.setting, what), getattr(b.setting, what))
        if wanted[0] != wanted[1] and all(getattr(x, what) == getattr(y, what) for x, y in pairs):
            return (
                f"Nothing shows that {wanted[1]} took effect: every output is of "
                f"{what} {getattr(pairs[0][1], what)} on both sides."
            )
    return ""


def _agree(
    differences: Sequence[Difference], a: Recording, b: Recording, allowed: Tolerance | None
) -> str:
    if allowed is not None and allowed.exact:
        elements = sum(difference.size for difference in differences)
        return (
            f"All is equal on {a.setting} and {b.setting}: {count_of(len(differences), 'output')} "
            f"with {count_of(elements, 'element')}."
        )
    worst = max((d.excess for d in differences), default=0.0)
    return (
        f"{len(differences)} outputs agree on {a.setting} and {b.setting}: the largest error is "
        f"{worst:.2g} of what is expected."
    )


def _parts(
    differences: Sequence[Difference], reference: Recording, other: Recording
) -> list[Finding]:
    bad = [difference for difference in differences if difference.too_much]
    if not bad:
        return []
    first = bad[0]
    worst = sorted(bad, key=lambda d: -(math.inf if d.reason else d.excess))[:SHOWN]
    return [
        Finding(
            id="f1",
            code=NUMBERS_DIFFER.code,
            role="cause",
            confidence="medium",
            confidence_reasons=("the allowed error is an estimate, and errors add up over layers",),
            summary=f"{reference.setting} and {other.setting} first part at {first}.",
            subjects=(Subject("setting", str(other.setting)),),
            evidence=(
                f"{len(differences) - len(bad)} of {len(differences)} outputs agree",
                *(str(difference) for difference in worst),
            ),
            alternatives=NUMBERS_DIFFER.alternatives,
            actions=NUMBERS_DIFFER.actions,
        )
    ]


def _not_finite(*recordings: Recording) -> list[Finding]:
    findings = []
    for recording in recordings:
        first = next((o for o in recording.outputs if not bool(o.value.isfinite().all())), None)
        if first is not None:
            findings.append(_infinite(recording, first))
    return findings


def _infinite(recording: Recording, output: Output) -> Finding:
    wrong = ~output.value.isfinite()
    count, first = int(wrong.sum()), _place(int(wrong.flatten().int().argmax()), wrong.shape)
    value = f"at index {_index(first)}: {float(output.value[first]):g}"
    what = f"{output.kind} {printable(output.name)}"
    if output.index:
        what += f" (call {output.index + 1})"
    return Finding(
        id=f"f{recording.setting}",
        code=NOT_FINITE.code,
        role="cause",
        confidence="high",
        summary=f"On {recording.setting} {what} is the first to give NaN or infinity.",
        subjects=(Subject("setting", str(recording.setting)),),
        evidence=(f"{count} of {_size(output.value)} values, the first {value}",),
        actions=NOT_FINITE.actions,
    )


def _size(tensor: Any) -> int:  # noqa: ANN401 - a tensor
    return int(tensor.numel())
