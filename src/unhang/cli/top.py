"""Show what runs on this node, live in the terminal: ranks, rates, who waits for whom, verdicts.

It looks once a second at what armed ranks tell (`unhang run`, or `unhang.arm()` in the script), as
the live page of `unhang serve` does; that costs the ranks nothing, and nothing is asked of them.
Keys: n shows the next job, q ends. Where the output is no terminal, and with --once, it prints one
frame: 0 while there is no verdict about a job here, 1 with one of a problem, 3 without a rank.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.cli.shared.case_paths import CASES
from unhang.cli.shared.output import EXIT_HEALTHY, EXIT_PROBLEM
from unhang.errors import NoEvidenceError, UsageError
from unhang.wording import printable

if TYPE_CHECKING:
    from rich.console import Console

    from unhang.context.recalled import Past
    from unhang.run.watching.now import JobNow
    from unhang.serve.frame import Screen

EXAMPLES = """unhang top
unhang top --job train
unhang top --once
unhang top /shared/unhang-cases --every 5"""

_ALL = "'unhang top' shows all jobs that run here."
_HINT = "Start the job with 'unhang run -- CMD…', or call unhang.arm() in the script."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang top`."""
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="CASE", help=f"where verdicts come; default: {CASES}"
    )
    parser.add_argument("--job", default="", metavar="ID", help="this job alone")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="S", help="seconds between looks; default: 1"
    )
    parser.add_argument("--once", action="store_true", help="print one frame, after two looks")
    parser.add_argument("--no-color", action="store_true", help="also: set NO_COLOR")
    parser.add_argument("--width", type=int, metavar="N", help="columns of the frame")


def run(args: argparse.Namespace) -> int:
    """Look until q or Ctrl-C; or once."""
    from rich.console import Console

    if not 0 < args.every < 3600:  # noqa: PLR2004 - an hour
        raise UsageError(f"--every {args.every:g} is not a number of seconds between 0 and 3600")
    console = Console(no_color=args.no_color or None, width=args.width, highlight=False)
    view = _View(args.paths or [CASES], args.job)
    if args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _once(view, console, args.every)
    with _keys() as pressed, suppress(KeyboardInterrupt):
        _live(view, console, args.every, pressed)
    return EXIT_HEALTHY


class _View:
    """What was seen so far."""

    def __init__(self, paths: Sequence[Path], job: str) -> None:
        from unhang.run.watching.now import Looker
        from unhang.serve.frame import Trends
        from unhang.serve.past import Verdicts

        self._looker, self._trends, self._cases = Looker(job), Trends(), Verdicts(paths)
        self.wanted = job
        self._lived: set[str] = set()
        self._told: dict[str, int] = {}
        self._past: dict[str, Past] = {}
        self.jobs: Sequence[JobNow] = ()
        self.chosen = 0

    def look(self) -> None:
        """Once more at ranks and cases; of jobs that ended before the first look at none."""
        jobs = self._looker.look()
        self._lived |= {job.job for job in jobs if any(rank.alive for rank in job.ranks)}
        self.jobs = [job for job in jobs if job.job in self._lived or job.job == self.wanted]
        self._trends.add(self.jobs)
        for _, past in self._cases.since(self._told, self.jobs):
            self._past[past.job_id] = past

    def drawn(self, console: Console, window: Screen) -> str:
        """A frame as text, with colours where the terminal has them."""
        from unhang.serve.frame import frame_of

        with console.capture() as caught:
            for line in frame_of(self.jobs, self.chosen, self._trends, self._past, window):
                console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return caught.get()

    @property
    def has_problem(self) -> bool:
        """Whether a job that is shown has one."""
        return any(
            job.job in self._past and self._past[job.job].status == "problem" for job in self.jobs
        )


def _once(view: _View, console: Console, every_s: float) -> int:
    """Print a frame of each job.

    Raises:
        NoEvidenceError: No armed rank runs here, or none of the job that was asked for.
    """
    from unhang.serve.frame import Screen

    view.look()
    if not view.jobs:
        of_it = f" of job {printable(view.wanted)!r}" if view.wanted else ""
        raise NoEvidenceError(f"no armed rank{of_it} runs here", _ALL if view.wanted else _HINT)
    time.sleep(every_s)
    view.look()
    window = Screen(console.width, 0, ascii=not _is_unicode())
    for number in range(len(view.jobs)):
        view.chosen = number
        print(view.drawn(console, window))
    return EXIT_PROBLEM if view.has_problem else EXIT_HEALTHY


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def _live(view: _View, console: Console, every_s: float, pressed: int) -> None:
    """Draw over the whole screen until q; what stood there before comes back."""
    from unhang.serve.frame import Screen

    with console.screen(hide_cursor=True):
        while True:
            view.look()
            size = console.size
            window = Screen(console.width, size.height, ascii=not _is_unicode(), live=True)
            frame = view.drawn(console, window).rstrip("\n").replace("\n", "\x1b[K\r\n")
            sys.stdout.write(f"\x1b[H{frame}\x1b[K\x1b[J")
            sys.stdout.flush()
            key = _key_within(pressed, every_s)
            if key in ("q", "Q", "\x03"):
                return
            view.chosen += key in ("n", "\t")


@contextmanager
def _keys() -> Iterator[int]:
    """The terminal hands over each key at once; what it was set to comes back."""
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield number
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _key_within(number: int, seconds: float) -> str:
    """The next key, or "" where none came in time; the end of the input ends it."""
    import select

    ready, _, _ = select.select([number], [], [], seconds)
    if not ready:
        return ""
    return os.read(number, 1).decode("ascii", "replace") or "q"
