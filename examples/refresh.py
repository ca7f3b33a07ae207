"""Write the pages of the captured hangs, with what the command prints; capture them again.

    python examples/refresh.py                        writes the pages that have changed
    python examples/refresh.py --check                exits 1 and names those that are out of date
    python examples/refresh.py --recapture dead-rank  runs that job again first (needs torch)

The live faults of `python -m lab live --list` are the examples.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
sys.path.insert(0, str(EXAMPLES.parent))  # for `lab`, which is not installed

from lab.live.capture import capture, checked_request
from lab.live.faults import FAULTS, LiveFault
from lab.truth import Truth, read_truth
from unhang.cli.main import main as main_of_unhang

JOBS = "lab/live/jobs"
WIDTH = 80

PAGE = """# {name}

{meaning}

{ranks} ranks ran [`{script}`](../../{jobs}/{script}) over Gloo with torch 2.13.
These are the dumps of its recorder from the moment of the hang, with neutral paths.
{notes}
```console
$ unhang diagnose examples/{name}
{output}
```

The exit code is {exit_code}. `truth.json` says what is true, by construction.
`python -m lab live {name} --diagnose` runs it afresh.
"""

LIST = """# Captured hangs

Real jobs that were made to hang, and what torch's flight recorder held when they did. Each folder
has the dumps, the truth, and a page with the verdict.

| example | what happened |
|---|---|
{rows}

`python examples/refresh.py` writes these pages; with `--recapture` it runs the jobs again.
"""


def page(fault: LiveFault) -> str:
    """The page of one example, with the output of the command."""
    truth = read_truth(EXAMPLES / fault.name)
    output, exit_code = diagnosed(fault.name)
    return PAGE.format(
        name=fault.name,
        meaning=fault.meaning,
        ranks=truth.world_size,
        script=fault.script,
        jobs=JOBS,
        notes=_notes(truth),
        output=output.rstrip(),
        exit_code=exit_code,
    )


def _notes(truth: Truth) -> str:
    """What the truth adds to the meaning, which stands above."""
    return "".join(f"{note}\n" for note in truth.notes[1:])


def diagnosed(name: str) -> tuple[str, int]:
    """What a user sees who diagnoses an example from the checkout's root, and the exit code."""
    page = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(page):
        exit_code = main_of_unhang(["diagnose", f"examples/{name}", "--width", str(WIDTH)])
    page.seek(0)
    return page.read(), exit_code


def index() -> str:
    """The list of all examples."""
    rows = (f"| [{f.name}]({f.name}/README.md) | {f.meaning} |" for f in FAULTS.values())
    return LIST.format(rows="\n".join(rows))


def recapture(fault: LiveFault) -> None:
    """Run one job and replace its capture."""
    fresh = EXAMPLES / f".{fault.name}.fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    capture(checked_request(fault, redact=True), fresh)
    shutil.rmtree(EXAMPLES / fault.name, ignore_errors=True)
    fresh.rename(EXAMPLES / fault.name)


def pages(names: Iterable[str]) -> dict[Path, str]:
    """What the files should say: a page for each example, and the list of all."""
    made = {EXAMPLES / name / "README.md": page(FAULTS[name]) for name in names}
    return {**made, EXAMPLES / "README.md": index()}


def outdated(made: dict[Path, str]) -> list[Path]:
    """The files that do not exist or say something else."""
    return [p for p, text in made.items() if not p.exists() or p.read_text("utf-8") != text]


def main() -> int:
    """Refresh what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help="default: all")
    parser.add_argument("--recapture", action="store_true", help="run the jobs again")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    os.chdir(EXAMPLES.parent)
    names = args.names or list(FAULTS)
    for name in names if args.recapture else ():
        print(f"capturing {name}", flush=True)
        recapture(FAULTS[name])
    made = pages(names)
    changed = outdated(made)
    for path in changed:
        print(path.relative_to(EXAMPLES.parent))
        if not args.check:
            path.write_text(made[path], encoding="utf-8")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
