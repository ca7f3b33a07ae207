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

NEXT = """\
Next:
  unhang entries examples/{hang} --last 3         what each rank called, side by side
  unhang query examples/{hang} "SELECT rank, name, seq, state FROM calls_flat ORDER BY 1, 3"
  unhang diagnose examples/crossed-order            a deadlock in which no rank is to blame
  unhang explain UH101                              what the code means, and what else it could be
  unhang diagnose examples/{hang} --format json   the same verdict for a program

The commands live in .venv/bin; examples/README.md lists all captured hangs.
`make demo-live` hangs a real job on this machine (installs torch's CPU build first).
"""


def main() -> int:
    """Tell the story, run the command that a user would run, say what to try next."""
    print(STORY.format(hang=HANG))
    words = ["diagnose", f"examples/{HANG}"]
    print("$ unhang", *words, "\n", flush=True)
    done = subprocess.run([sys.executable, "-m", "unhang", *words], cwd=EXAMPLES.parent, check=False)
    print()
    if done.returncode != 1:
        print(f"unhang ended with {done.returncode}; a problem that was found is 1", file=sys.stderr)
        return 1
    print(NEXT.format(hang=HANG))
    return 0


if __name__ == "__main__":
    sys.exit(main())
