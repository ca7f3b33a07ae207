"""Make what is made: rows and pages of rules, tables from the schema, examples by running them.

    python docs/refresh.py            writes what has changed
    python docs/refresh.py --check    exits 1 and names the files that are out of date

Of a page only text between the marks is touched; the prose around it is written by people.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # for `lab`, which is not installed

from unhang.case import Case
from unhang.cli.main import build_parser
from unhang.kinds import KINDS, Kind, Trait
from unhang.tables.schema import TABLES, VIEWS, Table

BLOCK = re.compile(r"(<!-- made: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Job(NamedTuple):
    """A simulated job: the arguments of `python -m lab simulate`."""

    fault: str
    layout: str = "ddp"
    ranks: int = 8
    condition: str = "plain"
    seed: int = 0

    @property
    def command(self) -> str:
        """The command line that makes it."""
        words = f"python -m lab simulate job --fault {self.fault} --layout {self.layout}"
        for name, value, default in (
            ("ranks", self.ranks, 8),
            ("condition", self.condition, "plain"),
            ("seed", self.seed, 0),
        ):
            words += f" --{name} {value}" if value != default else ""
        return words


CHECKPOINT = """\
job = FakeJob(4)
job.call(range(4), site="train.py:30 step")
place = "checkpoint.py:12 save < train.py:35 step"
case = job.case(samples=[sample_of(rank, place, sample=n) for n in (0, 1) for rank in range(4)])
"""
ONE_LOOK = CHECKPOINT.replace("for n in (0, 1) ", "for n in (0,) ")

EXAMPLES: dict[str, tuple[Job | str, Job | str]] = {
    "UH101": (Job("never-joined"), Job("fabric-stuck")),
    "UH102": (Job("skipped-call", "fsdp"), Job("never-joined-broadcast", "fsdp")),
    "UH103": (
        Job("never-joined", condition="culprit-missing"),
        Job("never-joined", "tp", 8, "lost", 1),
    ),
    "UH104": (
        Job("inside-enqueue", condition="nccl-status"),
        Job("device-stuck", condition="nccl-status"),
    ),
    "UH105": (
        Job("device-error", "hsdp", condition="nccl-status"),
        Job("device-stuck", condition="nccl-status"),
    ),
    "UH201": (Job("wrong-op", "fsdp"), Job("wrong-root", "fsdp")),
    "UH202": (Job("wrong-shape"), Job("healthy", "moe")),
    "UH203": (Job("wrong-dtype"), Job("wrong-shape")),
    "UH204": (Job("split-mismatch-even", "moe"), Job("healthy", "moe")),
    "UH205": (Job("membership", "hsdp"), Job("healthy", "torchft")),
    "UH301": (Job("crossed-groups", "hsdp"), Job("fabric-stuck-widely", "hsdp", 16)),
    "UH302": (Job("pipeline-stall", "pp", 4), Job("healthy", "cp")),
    "UH303": (Job("receive-first-ring", "cp"), Job("wrong-size", "cp")),
    "UH304": (Job("wrong-size", "cp"), Job("receive-first-ring", "cp")),
    "UH401": (Job("fabric-stuck"), Job("partly-finished")),
    "UH402": (Job("partly-finished"), Job("device-error", "hsdp", condition="nccl-status")),
    "UH501": (Job("late-rank"), Job("healthy-one-late-step")),
    "UH601": (Job("healthy", "cp"), CHECKPOINT),
    "UH602": (CHECKPOINT, ONE_LOOK),
    "UH901": (Job("most-dumps-lost", condition="few"), Job("never-joined", condition="ring")),
}
"""For each code a job that has it, and one that nearly has it: simulated, or written down where it
takes stacks, which the simulator does not make."""


def diagnosed(job: Job | str) -> str:
    """Make a job and return what `unhang diagnose` prints about it."""
    from unhang.analysis import diagnose
    from unhang.reports import render

    return render("text", diagnose(_written(job) if isinstance(job, str) else _simulated(job)))


def _written(text: str) -> Case:
    """Run lines of this file that write a job down."""
    from unhang.testing import FakeJob, sample_of

    names: dict[str, Any] = {"FakeJob": FakeJob, "sample_of": sample_of}
    exec(text, names)  # noqa: S102 - our own lines, above
    return cast("Case", names["case"])


def _simulated(job: Job) -> Case:
    from lab.simulate.corpus import CaseSpec
    from lab.simulate.writing import DUMPS, simulate
    from unhang.ingest import load

    spec = CaseSpec("docs", job.fault, job.layout, job.ranks, job.condition, job.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "job"
        simulate(spec, place)
        return load(place / DUMPS)


def example(code: str) -> str:
    """The example of a code: what makes it, and the whole report."""
    job = EXAMPLES[code][0]
    return _shown(job, diagnosed(job))


def near_miss(code: str) -> str:
    """The near miss of a code: what makes it, and the verdict."""
    job = EXAMPLES[code][1]
    return _shown(job, diagnosed(job).split("\n\n", 1)[0] + "\n")


def _shown(job: Job | str, output: str) -> str:
    if isinstance(job, str):
        return f"```python\n{job}```\n\n```text\n{output}```\n"
    return f"```console\n$ {job.command}\n$ unhang diagnose job/dumps\n{output}```\n"


def tables() -> str:
    """Every table with its columns."""
    return "\n".join(line for table in TABLES for line in _table(table)) + "\n"


def views() -> str:
    """Every view with its columns."""
    return "\n".join(line for view in VIEWS for line in _table(view)) + "\n"


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield table.meaning
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for column in table.columns:
        yield f"| `{column.name}` | {column.type} | {column.meaning} |"
    yield ""


def launchers() -> str:
    """Every way to the nodes of a job."""
    from unhang.collect.launchers.choosing import CHOICES

    ways = ["none | a shell | this one", *(way for choice in CHOICES for way in choice.ways)]
    rows = [f"| {way} |" for way in ways]
    return "\n".join(["| option | tool | nodes |", "|---|---|---|", *rows]) + "\n"


def remedies() -> str:
    """What helps against each kind that can be a cause, as far as its row tells."""
    from unhang.catalogue import all_kinds

    kinds = [kind for kind in all_kinds().values() if kind.role == "cause" and kind.code < "UH800"]
    rows = [f"| {kind.code} {kind.slug} | {kind.helps.value} |" for kind in kinds]
    return "\n".join(["| kind | what helps |", "|---|---|", *rows]) + "\n"


def kinds() -> str:
    """Every kind by family: those with a page by name, the others with all that is said of them."""
    from unhang.kinds import FAMILIES
    from unhang.reports.content.kind_pages import by_family

    parts = []
    for family, found in by_family():
        own = [kind for kind in found if kind.code in KINDS]
        parts.append(f"## {family}: {FAMILIES[family]}")
        parts.append(
            "\n".join(f"- [{k.code} {k.slug}](codes/{k.code}.md): {k.meaning}" for k in own)
        )
        parts += [_section_of(kind) for kind in found if kind.code not in KINDS]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section_of(kind: Kind) -> str:
    """What is said of a row of a table: the address of its code leads here."""
    from unhang.checks import CHECKS
    from unhang.logs.rules import rule_of

    row = rule_of(kind.code) or CHECKS[kind.code]
    return f"### {kind.code} {kind.slug}\n\n{kind.meaning}\n\n{row.action}"


def commands() -> str:
    """Every command with its options and examples, from the parsers themselves.

    Options that several commands take alike are told once, before them.
    """
    parsers = _subparsers(build_parser())
    takers = Counter(row for each in parsers for row in dict.fromkeys(_options(each)))
    shared = {row: action for each in parsers for row, action in _options(each).items()}
    shared = {row: shared[row] for row, count in takers.items() if count >= _SEVERAL}
    first = "\n\n".join(["## Options of several commands", _rows(shared)])
    return "\n\n".join([first, "".join(_command(each, 2, shared) for each in parsers)])


_SEVERAL = 3
"""How many commands take an option alike before it is told once for all of them."""


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return []


def _command(
    parser: argparse.ArgumentParser, level: int, shared: Container[str] = frozenset()
) -> str:
    epilog = (parser.epilog or "").replace("examples:\n", "").replace("\n  ", "\n").strip()
    parts = [f"{'#' * level} {parser.prog}", parser.description or ""]
    options = _options(parser)
    own = [row for row in options if row not in shared]
    if own:
        parts.append(_rows(own))
    if elsewhere := [options[row] for row in options if row in shared]:
        names = ", ".join(f"`{_name(action)}`" for action in elsewhere)
        parts.append(f"And [options of several commands](#options-of-several-commands): {names}.")
    if epilog:
        parts.append(f"```sh\n{epilog}\n```")
    below = [_command(sub, level + 1) for sub in _subparsers(parser)]
    return "\n\n".join(parts) + "\n\n" + "".join(below)


def _rows(rows: Iterable[str]) -> str:
    return "\n".join(["| argument | meaning |", "|---|---|", *rows])


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {row: action for action in parser._actions if (row := _option(action))}


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else _value(action)


def _option(action: argparse.Action) -> str:
    if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
        return ""
    takes = "" if action.nargs == 0 else f" {_value(action)}"
    names = ", ".join(action.option_strings) + takes if action.option_strings else _value(action)
    return f"| `{names}` | {(action.help or '').replace('%%', '%')} |"


def _value(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = action.metavar or choices or action.dest.upper()
    return " ".join(value) if isinstance(value, tuple) else value


SHOWN = {
    "hang": "unhang diagnose examples/never-joined",
    "shout": "unhang logs docs/samples/disk-full.log",
    "joined": "unhang diagnose examples/never-joined --log docs/samples/disk-full.log",
    "cuda": "unhang logs docs/samples/device-assert.log",
}
"""For the pages of tasks: commands on files of this repository, shown with what they print."""


def verdict() -> str:
    """The README's first screen: a captured hang and what diagnose says of it."""
    return shown("unhang diagnose examples/never-joined-armed")


def shown(line: str) -> str:
    """A command and its whole output."""
    command = line.split()
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    return f"```\n$ {' '.join(command)}\n{done.stdout.strip()}\n```\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "tables": tables,
    "views": views,
    "commands": commands,
    "launchers": launchers,
    "remedies": remedies,
    "kinds": kinds,
    "verdict": verdict,
}


def made(name: str) -> str:
    """Return the content of the block of a name."""
    kind, _, code = name.partition(":")
    if kind == "example":
        return example(code)
    if kind == "near-miss":
        return near_miss(code)
    if kind == "shown":
        return shown(SHOWN[code])
    return BLOCKS[kind]()


def refreshed(text: str) -> str:
    """Return a document with all its blocks made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{made(found[2])}{found[3]}", text)


def picture(_: str) -> str:
    """The README's terminal: the same captured hang, without what leads further."""
    from terminal import terminal

    lines = verdict().strip("`\n").splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith("  next"))
    return terminal(lines[:end], "unhang diagnose names the rank, the call and the line of a hang")


def log_rules(_: str) -> str:
    """The table of log rules that the product reads, from the rows that people write."""
    from lab.rules.rows import as_json

    return as_json()


def kind_rows(_: str) -> str:
    """The kinds that files of findings declare, for those who read a code without the analysis."""
    lines = (json.dumps(_row_of(kind), ensure_ascii=False) for kind in _declared())
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _declared() -> dict[Kind, str]:
    """Each kind that a file of a finding declares, with the docstring of the file."""
    found = {}
    for path in sorted((ROOT / "src" / "unhang").rglob("*.py")):
        if DECLARES.search(path.read_text(encoding="utf-8")) and path.stem != "kinds":
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            own = (value for value in vars(module).values() if isinstance(value, Kind))
            found |= {kind: module.__doc__ or "" for kind in own if _is_of(path, kind)}
    return dict(sorted(found.items(), key=lambda item: int(item[0].code[2:])))


def _is_of(path: Path, kind: Kind) -> bool:
    """Whether a file declares a kind rather than importing it."""
    return f'"{kind.code}"' in path.read_text(encoding="utf-8")


def _row_of(kind: Kind) -> dict[str, object]:
    traits = [trait.name for trait in Trait if trait.value and trait in kind.traits]
    remedy = kind.remedy.name if kind.remedy else None
    return {**dataclasses.asdict(kind), "traits": traits, "remedy": remedy}


def kind_page(old: str, kind: Kind, text: str) -> str:
    """The page of a kind: the one written by hand, if any, else what its file says of it."""
    if old and _MADE_PAGE not in old:
        return refreshed(old)
    body = "\n## ".join(["", *text.split("\n## ")[1:]]).strip()
    parts = [f"# {kind.code} {kind.slug}", kind.meaning, body]
    if kind.alternatives:
        others = "\n".join(f"- {each}" for each in kind.alternatives)
        parts += ["## What else it could be", others]
    steps = (f"{number}. {step}" for number, step in enumerate(kind.actions, 1))
    parts += ["## What to do", "\n".join(steps)] if kind.actions else []
    return "\n\n".join([*parts, _MADE_PAGE]) + "\n"


DECLARES = re.compile(r"^[A-Z0-9_]+: Final = Kind\(", re.MULTILINE)
_MADE_PAGE = "<!-- made of the file of the finding -->"


def made_files() -> Iterator[tuple[Path, Callable[[str], str]]]:
    """Each file, and what makes its content of the old one; rows first: pages show them."""
    from lab.rules.rows import ROWS

    yield ROWS, log_rules
    yield ROOT / "src" / "unhang" / "kinds.json", kind_rows
    declared = _declared()
    known = {**KINDS, **{kind.code: kind for kind in declared}}
    KINDS.clear()  # it is older than the file that was just made
    KINDS.update(sorted(known.items(), key=lambda item: int(item[0][2:])))
    pages = {DOCS / "codes" / f"{kind.code}.md": (kind, text) for kind, text in declared.items()}
    for path, (kind, text) in pages.items():
        yield path, partial(kind_page, kind=kind, text=text)
    yield DOCS / "images" / "hang.svg", picture
    for path in [ROOT / "README.md", *sorted({*DOCS.rglob("*.md")} - {*pages})]:
        yield path, refreshed


def main(words: list[str]) -> int:
    """Refresh or check the files; all of them, or those that are named."""
    names = [word for word in words if not word.startswith("-")]
    stale = []
    for path, make in made_files():
        if names and path.name not in names:
            continue
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = make(old)
        if new != old:
            stale.append(path)
            if "--check" not in words:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{'out of date' if '--check' in words else 'written'}: {path.relative_to(ROOT)}")
    return int("--check" in words and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
