"""How a finding is declared: what its file says of it, next to its words.

A file holds the kind (`KIND`), a struct of facts, a function that makes claims of them, one that
words them (`words_for`), and this `RULE`, which says when it is asked. The docstring of the file is
the source of its page, from the first heading on; `python docs/refresh.py` makes the page and the
row of `kinds.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.shared.claims import Claim, Seeing
from unhang.analysis.shared.reason import Reason
from unhang.kinds import Kind, Role, Trait

ANY: Final[tuple[Role, ...]] = ("cause", "consequence", "observation")


class When(Enum):
    """When a rule is asked: each step knows what those before it have claimed."""

    STACKS = auto()
    CALLS = auto()
    LOGS = auto()
    OTHERS = auto()
    REPORTS = auto()


class Unless(Enum):
    """What makes a rule needless."""

    NEVER = "it is reported in any case"
    CAUSE = "a cause is found"
    CLAIM = "anything is found"
    ANSWER = "a cause is found, or dumps leave no question open"


class Observer(Struct, frozen=True, kw_only=True):
    """One way to look for more about claims, and the claims with which it may be reported.

    Attributes:
        roles: Of these roles.
        kinds, traits: Of one of these kinds, or of a kind with this trait; all if neither is given.
        but: Of no such kind.
        apart: Only with claims that rest on another source than this one.
        early: Before it is decided what explains what: it may take a cause back, or make it a
            reason.
        gives: What a claim is to others, once it is seen so.
    """

    sees: Callable[[Claim, CaseFacts], Iterable[Seeing]]
    roles: tuple[Role, ...] = ("cause",)
    kinds: tuple[Kind, ...] = ()
    traits: Trait = Trait.NONE
    but: tuple[Kind, ...] = ()
    apart: str = ""
    early: bool = False
    gives: tuple[Reason, ...] = ()

    def fits(self, claim: Claim) -> bool:
        """Whether it may be reported in addition to a claim."""
        if claim.role not in self.roles or claim.kind in self.but or claim.rests_on == self.apart:
            return False
        of_kind = claim.kind in self.kinds or bool(self.traits and claim.kind.has(self.traits))
        return of_kind or not (self.kinds or self.traits)


class Rule(Struct, frozen=True, kw_only=True):
    """A rule, and when it is asked.

    Attributes:
        tells: Its claims, from what is known of the case; none where it only looks at others'.
        kind: The kind that its file declares; None where its claims are of kinds of others.
        over_empty: What it finds replaces that nothing was found.
        observers: What it sees about the claims of others.
    """

    tells: Callable[[CaseFacts], Iterable[Claim]] = lambda _: ()
    kind: Kind | None = None
    when: When = When.OTHERS
    unless: Unless = Unless.NEVER
    over_empty: bool = False
    observers: tuple[Observer, ...] = ()
