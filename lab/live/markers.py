"""Read the comments of a job's script that say where its ranks get stuck.

The truth about a source line is the line itself: a number written down elsewhere would be wrong
after the next edit. A comment reads

    # lab: victims wait, step 4, site

that is: who (victims, culprits or all), whether they `wait` in a call that the recorder holds
unfinished or just `stay` at that line, in which step of the loop (any, if left out), and whether a
right verdict shows this line. `# lab: site` marks a line at which nobody stands, and `armed site`
one that only our own recorder sees, because no call is made there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"#\s*lab:\s*(.+?)\s*$")
_STAND = re.compile(r"(victims|culprits|all) (wait|stay)$")
_STEP = re.compile(r"step (\d+)$")


@dataclass(frozen=True, slots=True)
class Marker:
    """One marked line.

    Attributes:
        line: Counted from 1.
        who: "victims", "culprits", "all", or "" where nobody stands.
        waits: They are in a call that the recorder holds unfinished.
        step: In which step of the loop; -1 for any.
        site: A right verdict shows this line.
        armed_site: It does where our own recorder was armed.
    """

    line: int
    who: str = ""
    waits: bool = False
    step: int = -1
    site: bool = False
    armed_site: bool = False

    def holds(self, role: str, line: int, step: int) -> bool:
        """Whether a rank of this role that stands at `line` in `step` is where it should be."""
        return self.who in (role, "all") and self.line == line and self.step in (-1, step)


def read_markers(script: Path) -> tuple[Marker, ...]:
    """All marked lines of a script, in order.

    Raises:
        ValueError: A comment that begins with `lab:` says something else.
    """
    lines = script.read_text(encoding="utf-8").splitlines()
    found = ((number, _COMMENT.search(line)) for number, line in enumerate(lines, 1))
    return tuple(_marker(number, match[1].split(", ")) for number, match in found if match)


def _marker(line: int, words: Iterable[str]) -> Marker:
    who, waits, step, site, armed_site = "", False, -1, False, False
    for word in words:
        if stand := _STAND.match(word):
            who, waits = stand[1], stand[2] == "wait"
        elif at := _STEP.match(word):
            step = int(at[1])
        elif word == "site":
            site = True
        elif word == "armed site":
            armed_site = True
        else:
            raise ValueError(f"line {line}: {word!r} is nothing that a marker can say")
    return Marker(line, who, waits, step, site, armed_site)
