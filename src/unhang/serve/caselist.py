"""Which cases the list shows, and in which order: what the address asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from unhang.context.recalled import Past
from unhang.wording import fold_ranks

PAGE = 200
"""Rows of one page: more are no easier to read, and a browser takes longer to draw them."""
_MOST_WORD = 200

SORTED_BY: dict[str, Callable[[Past], Any]] = {
    "when": lambda past: -past.time_s,
    "status": lambda past: past.status,
    "job": lambda past: past.job_id,
    "culprits": lambda past: past.culprits or (1 << 62,),
    "verdict": lambda past: past.summary,
    "hosts": lambda past: past.culprit_hosts or ("\U0010ffff",),
}
"""Columns by which the list can be sorted; those that name nothing come last."""


def culprits_of(past: Past) -> str:
    """The ranks at fault, folded."""
    return fold_ranks(past.culprits) if past.culprits else ""


@dataclass(frozen=True, slots=True)
class CaseQuery:
    """What the list is asked for.

    Attributes:
        text: What a case must have somewhere: job, host, line, kind, name, verdict.
        status: Its status, or "" for any.
        sort: A key of `SORTED_BY`.
        page: From 0.
    """

    text: str = ""
    status: str = ""
    sort: str = "when"
    page: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> CaseQuery:
        """Of an address; what is no choice is none."""
        page, sort = query.get("page", ""), query.get("sort", "")
        return cls(
            text=query.get("text", "")[:_MOST_WORD].strip(),
            status=query.get("status", "")[:_MOST_WORD],
            sort=sort if sort in SORTED_BY else "when",
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 0,  # noqa: PLR2004 - a number
        )

    def link(self, **changes: object) -> str:
        """The address of this list with something else."""
        kept = {"text": self.text, "status": self.status, "sort": self.sort, "page": self.page}
        return "/?" + urlencode({key: value for key, value in {**kept, **changes}.items() if value})

    def chosen(self, pasts: Mapping[str, Past]) -> list[tuple[str, Past]]:
        """All cases that are asked for, in order; of equal ones the newest first."""
        found = [item for item in pasts.items() if self.fits(item[1])]
        found.sort(key=lambda item: -item[1].time_s)
        return sorted(found, key=lambda item: SORTED_BY[self.sort](item[1]))

    def fits(self, past: Past) -> bool:
        """Whether a case is one that is asked for."""
        if self.status and past.status != self.status:
            return False
        words: Iterable[Sequence[str]] = (
            (past.job_id, past.summary, past.code, past.slug, past.path.name, past.op),
            past.hosts,
            past.culprit_hosts,
            past.places,
            past.parts,
        )
        text = self.text.casefold()
        return not text or any(text in word.casefold() for group in words for word in group)
