"""Write the skeleton of a log rule, with the next free code, at the end of a file of rows.

A row is whole when its tests pass: the line that it fires on, one that it spares, and an anchor in
each alternative of its pattern. `python docs/refresh.py` then makes rows.json and docs/kinds.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import count
from typing import Final

EXAMPLES = """python -m lab new-rule nccl nccl-ring-broken
python -m lab new-rule cluster pod-lost --family environment --role cause"""

_FIRST: Final = 7001
_OTHERS: Final = 7300
"""From here on numbers belong to messages about addresses (interfaces.toml)."""

_SKELETON = """
[[rule]]
code = "{code}"
slug = "{slug}"
family = "{family}"
role = "{role}"
trust = "C"
anchors = [""]
pattern = '''
  first words
  |other words
'''
meaning = ""
action = ""
source = ""
fires = ''
spares = ''
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `python -m lab new-rule`."""
    from lab.rules.rows import FILES
    from unhang.kinds import FAMILIES

    roles = ("cause", "consequence", "observation", "hint", "noise")
    parser.add_argument("file", choices=FILES, metavar="FILE", help=", ".join(FILES))
    parser.add_argument("slug", help="its short name, such as nccl-ring-broken")
    parser.add_argument("--family", choices=tuple(FAMILIES), default="failure")
    parser.add_argument("--role", choices=roles, default="observation")


def run(args: argparse.Namespace) -> int:
    """Write it, and say where it stands."""
    from lab.rules.rows import PLACE, rows
    from unhang.checks import CHECKS
    from unhang.errors import UsageError
    from unhang.kinds import KINDS

    taken = {row["code"]: row["slug"] for row in rows()}
    taken |= {kind.code: kind.slug for kind in KINDS.values()}
    taken |= {code: check.kind.slug for code, check in CHECKS.items()}
    if args.slug in taken.values():
        raise UsageError(f"{args.slug} is the name of another kind")
    row = _SKELETON.format(
        code=next_code(taken), slug=args.slug, family=args.family, role=args.role
    )
    path = PLACE / f"{args.file}.toml"
    line = path.read_text(encoding="utf-8").count("\n") + 2
    with path.open("a", encoding="utf-8") as file:
        file.write(row)
    print(f"{path}:{line}")
    print("the first rule that matches a line has it: move the row above more general ones")
    print("then: python docs/refresh.py && pytest tests/unit/logs/test_log_rules.py")
    return 0


def next_code(taken: Iterable[str]) -> str:
    """The code behind the last one that a log rule has, so that no retired one comes back."""
    numbers = {int(code[2:]) for code in taken}
    last = max(number for number in numbers if _FIRST <= number < _OTHERS)
    return f"UH{next(number for number in count(last + 1) if number not in numbers)}"
