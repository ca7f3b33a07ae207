"""Diagnose one captured hang, step by step: what `make demo` runs. Needs no torch and no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
HANG = "never-joined"

STORY = """\
Four processes trained together until nothing moved any more. Each of them left what torch's
flight recorder held at that moment: examples/{hang}/dumps/gloo/rank_0 to rank_3.
Three ranks wait for the fourth. Which one is it, where do they wait, and what now?
"""

NEXT = (
    (f"unhang entries examples/{HANG} --last 3", "what each rank called, side by side"),
    (f"unhang diagnose examples/{HANG} --format json", "the same verdict for a program"),
    ("unhang diagnose examples/crossed-order", "a deadlock in which no rank is to blame"),
    ("unhang explain UH101", "what the code means, and what else it could be"),
    ("make demo-live", "hangs a real job here (installs torch's CPU build first)"),
)
WHERE = "The commands live in .venv/bin; examples/README.md lists all captured hangs."


def main() -> int:
    """Tell the story, run the command that a user would run, say what to try next."""
    print(STORY.format(hang=HANG))
    words = ["diagnose", f"examples/{HANG}"]
    print("$ unhang", *words, "\n", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "unhang", *words], cwd=EXAMPLES.parent, check=False
    )
    print()
    if done.returncode != 1:
        print(
            f"unhang ended with {done.returncode}; a problem that was found is 1", file=sys.stderr
        )
        return 1
    print("Next:")
    width = max(len(command) for command, _ in NEXT)
    for command, why in NEXT:
        print(f"  {command:{width}}  {why}")
    print(WHERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
