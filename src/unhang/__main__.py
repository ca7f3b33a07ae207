"""`python -m unhang` is the same as `unhang`: both begin here, and first of all with safe paths."""

import sys

from unhang.isolated import isolate


def main() -> int:
    """Run the command line in a process of ours; returns the exit code."""
    isolate()
    from unhang.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
