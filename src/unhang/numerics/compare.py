"""Compare two recordings: where they first part beyond what their dtypes allow, and by how much.

The tolerance is that of torch.testing.assert_close for the less precise dtype (relative 1.3e-6 and
absolute 1e-5 for float32, 1.6e-2 and 1e-5 for bfloat16, 1e-3 and 1e-5 for float16). An error is
also given in units in the last place (ULPs) of that dtype at the value's size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unhang.kinds import NOT_FINITE, NUMBERS_DIFFER
from unhang.model import Note
from unhang.numerics.recording import Output, Recording
from unhang.report import Finding, Report, Status, Subject
from unhang.wording import printable

__all__ = ["Difference", "compare", "measure"]

# dtype -> (relative, absolute, bits of the mantissa); torch.testing's defaults.
_DTYPES = {
    "float64": (1e-7, 1e-7, 52),
    "float32": (1.3e-6, 1e-5, 23),
    "float16": (1e-3, 1e-5, 10),
    "bfloat16": (1.6e-2, 1e-5, 7),
}
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two outputs are apart.

    Attributes:
        max_abs, max_rel: Largest absolute error, and relative to the reference's value there.
        ulps: Largest error in units in the last place of the less precise dtype.
        excess: Largest error divided by what is allowed there: above 1 is too much.
        reason: Why they cannot be compared ("shapes differ…"), or "".
    """

    output: Output
    max_abs: float = 0.0
    max_rel: float = 0.0
    ulps: float = 0.0
    excess: float = 0.0
    reason: str = ""

    @property
    def too_much(self) -> bool:
        """Whether it is beyond what the dtypes allow."""
        return bool(self.reason) or self.excess > 1

    def __str__(self) -> str:
        what = f"{self.output.kind} {printable(self.output.name)}"
        if self.output.index:
            what += f" (call {self.output.index + 1})"
        if self.reason:
            return f"{what}: {self.reason}"
        return (
            f"{what}: max error {self.max_abs:.3g} absolute, {self.max_rel:.3g} relative, "
            f"{self.ulps:.0f} ULPs; {self.excess:.2g} times what is expected"
        )


def measure(reference: Output, other: Output, scale: float = 1.0) -> Difference:
    """Compare two outputs element by element.

    Args:
        reference: The more trusted one.
        other: The one to judge.
        scale: Widens what is allowed: errors add up over a deep network.
    """
    a, b = reference.value, other.value
    if a.shape != b.shape:
        return Difference(other, reason=f"shapes differ: {list(a.shape)} and {list(b.shape)}")
    if a.numel() == 0:
        return Difference(other)
    finite = a.isfinite()
    if bool((finite != b.isfinite()).any()):
        return Difference(other, reason="one of them is NaN or infinite where the other is not")
    a, b = a[finite], b[finite]
    if a.numel() == 0:
        return Difference(other)
    relative, absolute, bits = max(
        (_DTYPES.get(name, _DTYPES["float32"]) for name in (reference.dtype, other.dtype)),
        key=lambda row: row[0],
    )
    error = (a - b).abs()
    # A sum of large terms may come out near zero with the error of its terms: nothing smaller
    # than the tensor's own root mean square is asked to be more exact than that.
    magnitude = a.abs().clamp(min=float(a.square().mean().sqrt()))
    allowed = (absolute + relative * magnitude) * scale
    size = a.abs().clamp(min=2.0**-126)
    ulp = 2.0 ** (magnitude.clamp(min=2.0**-126).log2().floor() - bits)
    return Difference(
        other,
        max_abs=float(error.max()),
        max_rel=float((error / size).max()),
        ulps=float((error / ulp).max()),
        excess=float((error / allowed).max()),
    )


def compare(reference: Recording, other: Recording, scale: float = 1.0) -> Report:
    """Find the first output of `other` that is too far from the reference's.

    Outputs are matched by kind, name and how often the name had come before.
    """
    known = {(o.kind, o.name, o.index): o for o in reference.outputs}
    pairs = [
        (known[key], output)
        for output in other.outputs
        if (key := (output.kind, output.name, output.index)) in known
    ]
    differences = [measure(*pair, scale) for pair in pairs]
    findings = [*_not_finite(reference, other), *_parts(differences, reference, other)]
    notes = [
        Note("warning", str(r.setting), "not all outputs could be kept") for r in (reference, other)
        if r.cut
    ]  # fmt: skip
    only = len(other.outputs) - len(differences)
    if only:
        notes.append(Note("info", "compare", f"{only} outputs came on one side only"))
    causes = [f for f in findings if f.role == "cause"]
    unseen = _unseen(pairs, reference, other)
    status: Status = "problem" if causes else "insufficient" if unseen else "healthy"
    return Report(
        status=status,
        summary=causes[0].summary if causes else unseen or _agree(differences, reference, other),
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


def _agree(differences: Sequence[Difference], a: Recording, b: Recording) -> str:
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
    count = int((~output.value.isfinite()).sum())
    what = f"{output.kind} {printable(output.name)}"
    return Finding(
        id=f"f{recording.setting}",
        code=NOT_FINITE.code,
        role="cause",
        confidence="high",
        summary=f"On {recording.setting} {what} is the first to give NaN or infinity.",
        subjects=(Subject("setting", str(recording.setting)),),
        evidence=(f"{count} of {_size(output.value)} values",),
        actions=NOT_FINITE.actions,
    )


def _size(tensor: Any) -> int:  # noqa: ANN401 - a tensor
    return int(tensor.numel())
