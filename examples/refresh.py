"""Write the examples anew: READMEs with the real output, and with --recapture the captures too.

    python examples/refresh.py                        READMEs of all examples, the list of them
    python examples/refresh.py --recapture dead-rank  run that job again first (needs torch)

The live faults of `unhang lab live --list` are the examples; tests/integration/test_examples.py
checks that every page still tells what the command prints.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from unhang.lab.live.capture import capture, checked_request
from unhang.lab.live.faults import FAULTS, Fault
from unhang.lab.live.truth import Truth, read_truth

EXAMPLES = Path(__file__).resolve().parent
JOBS = "src/unhang/lab/live/jobs"
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
`unhang lab live {name} --diagnose` runs it afresh.
"""

LIST = """# Captured hangs

Real jobs that were made to hang, and what torch's flight recorder held when they did. Each folder
has the dumps, the truth, and a page with the verdict.

| example | what happened |
|---|---|
{rows}

`python examples/refresh.py` writes these pages; with `--recapture` it runs the jobs again.
"""


def page(fault: Fault) -> str:
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
    """What a user sees who diagnoses an example, and the exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "unhang", "diagnose", f"examples/{name}", "--width", str(WIDTH)],
        cwd=EXAMPLES.parent,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout or done.stderr, done.returncode


def index() -> str:
    """The list of all examples."""
    rows = (f"| [{f.name}]({f.name}/README.md) | {f.meaning} |" for f in FAULTS.values())
    return LIST.format(rows="\n".join(rows))


def recapture(fault: Fault) -> None:
    """Run one job and replace its capture."""
    fresh = EXAMPLES / f".{fault.name}.fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    capture(checked_request(fault, redact=True), fresh)
    shutil.rmtree(EXAMPLES / fault.name, ignore_errors=True)
    fresh.rename(EXAMPLES / fault.name)


def main() -> int:
    """Refresh what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help="default: all")
    parser.add_argument("--recapture", action="store_true", help="run the jobs again")
    args = parser.parse_args()
    for name in args.names or FAULTS:
        fault = FAULTS[name]
        if args.recapture:
            print(f"capturing {name}", flush=True)
            recapture(fault)
        (EXAMPLES / name / "README.md").write_text(page(fault), encoding="utf-8")
    (EXAMPLES / "README.md").write_text(index(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
