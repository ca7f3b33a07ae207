"""Ranks that print different versions, interfaces or settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule
from unhang.analysis.rules.telling import Words, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.kinds import Kind
from unhang.report import Subject
from unhang.wording import rank_phrase

KIND: Final = Kind(
    "UH795",
    "ranks-differ",
    "environment",
    "Ranks report different versions, interfaces or settings.",
    role="observation",
)

_LOCAL = re.compile(r"lo$|docker|veth|br-|virbr|cni|lxcbr")
_IS_NAME = re.compile(r"[\w.-]{1,15}", re.ASCII)


class Differing(Struct, frozen=True):
    """A fact about which ranks disagree: values with the ranks that have them."""

    name: str
    said: tuple[tuple[str, tuple[int, ...]], ...]


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    for name, values in facts.lives.said.differing.items():
        yield Claim(
            kind=KIND,
            rests_on="logs",
            about=Differing(name, tuple(values.items())),
            subjects=(Subject("setting", name),),
            doubts=(Doubt.A_LINE_ALONE,),
        )


RULE: Final = Rule(kind=KIND, tells=_claims)


@words_for(Differing)
def _verdict_of_differing(about: Differing, claim: Claim) -> Words:  # noqa: ARG001
    return Words(
        f"Ranks differ in {about.name}.",
        tuple(f"{rank_phrase(ranks)}: {value}" for value, ranks in about.said),
        (),
        (
            *_one_interface(about),
            "Start all ranks with the same environment and the same libraries.",
        ),
    )


def _one_interface(about: Differing) -> Iterator[str]:
    """The setting that makes all ranks take what most of those took that others can reach."""
    if not about.name.startswith("socket interface"):
        return
    usable = [(len(ranks), name) for name, ranks in about.said if not _LOCAL.match(name)]
    if usable and _IS_NAME.fullmatch(name := max(usable)[1]):
        yield (
            f"export NCCL_SOCKET_IFNAME=={name} GLOO_SOCKET_IFNAME={name} on all hosts (the second "
            "= means this name exactly); unhang doctor net --hosts A,B says whether peers reach it."
        )
