"""Be one rank: arm torch, run the user's script as Python would, and tell how it ended."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import torch

from unhang.rehearse.inside.arming import arm
from unhang.rehearse.inside.devices import NoDevices
from unhang.rehearse.inside.refusing import REFUSERS
from unhang.rehearse.inside.valueless import LargeAreShapes
from unhang.rehearse.inside.works import Desk
from unhang.rehearse.matching.talking import Foreign, GoneError, RankLine


def run(plan: dict[str, Any]) -> int:
    """Run the script to its end; returns the exit code."""
    client = RankLine(plan["socket"])
    client.tell("alive")
    desk = Desk(client, plan["values"])
    arm(desk, plan["steps"])
    _fork_instead_of_spawn(client)
    _rehearse_what_starts_again(plan)
    real = time.sleep
    time.sleep = lambda seconds: real(min(float(seconds), _SLEEP_S))
    sys.argv = [plan["script"], *plan["words"]]
    return ended(client, lambda: _script(plan, desk))


def _script(plan: dict[str, Any], desk: Desk) -> None:
    with _modes(plan, desk):
        _in_every_thread(lambda: _modes(plan, desk))
        if plan["module"]:
            sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as text
            runpy.run_module(plan["script"], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(plan["script"])))  # noqa: PTH100, PTH120
            runpy.run_path(plan["script"], run_name="__main__")


def _modes(plan: dict[str, Any], desk: Desk) -> contextlib.ExitStack:
    """What stands in for devices, and for large values where these are asked for."""
    modes = contextlib.ExitStack()
    modes.enter_context(NoDevices(desk.readings))
    if plan["shapes"]:
        modes.enter_context(LargeAreShapes(desk.readings))
    return modes


def _in_every_thread(modes: Callable[[], contextlib.ExitStack]) -> None:
    """Threads that the script starts enter them too: torch keeps modes by thread."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        body = self.run

        def run() -> None:
            with modes():
                body()

        self.run = run  # type: ignore[method-assign] # what a subclass has for it is called
        real(self)

    threading.Thread.start = start  # type: ignore[method-assign] # the same call


def ended(client: RankLine, body: Foreign) -> int:
    """Run something and tell the referee how it ended."""
    code, error, frames = 0, "", list[tuple[str, str, int]]()
    try:
        body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        left = _frames(_without_ours(end))
        frames = [] if left and left[0][1].startswith(_HERE) else left  # --steps ends a rank, too
    except GoneError:
        code = 1
    except BaseException as failure:  # noqa: BLE001 - the script's own, which is reported
        code, error = 1, f"{type(failure).__name__}: {failure}"[:2000]
        shown = _without_ours(failure)
        frames = _frames(shown)
        print("".join(shown.format()), end="", file=sys.stderr)
    client.told_end = os.getpid()
    with contextlib.suppress(GoneError):
        client.tell("end", code=code, error=error, frames=frames)
    return code


_SLEEP_S: Final = 0.05
"""Nothing is slow in a rehearsal: a rank sleeps no longer, however long it wants to."""
_HERE: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - compared as text
_UNDER_ALL: Final = ("__torch_function__", "ended", "_script", "<lambda>", "__call__")
"""Functions of ours that stand under every line of a script."""
_AROUND_TORCHS: Final = ("replicated", "on_cpu", "moved")
"""Functions of ours that call torch's own with other devices: what that raises is torch's."""


def _without_ours(failure: BaseException) -> traceback.TracebackException:
    """What is raised as it would be without a rehearsal: our part under each line left out."""
    whole = traceback.TracebackException.from_exception(failure)
    kept = [
        each
        for each in whole.stack
        if "runpy" not in each.filename
        and not (each.name in (*_UNDER_ALL, *_AROUND_TORCHS) and each.filename.startswith(_HERE))
    ]
    if whole.stack and whole.stack[-1].name in REFUSERS and _is_below(whole.stack[-1], _HERE):
        kept = [each for each in kept if not _is_below(each, _HERE)]  # as torch would have raised
    whole.stack = traceback.StackSummary.from_list(kept)
    return whole


def _is_below(frame: traceback.FrameSummary, folder: str) -> bool:
    return frame.filename.startswith(folder)


def _frames(shown: traceback.TracebackException) -> list[tuple[str, str, int]]:
    """Innermost first."""
    return [(each.name, each.filename, each.lineno or 0) for each in reversed(shown.stack)]


def _fork_instead_of_spawn(client: RankLine) -> None:
    """A script that starts its ranks itself: they are forks of this process, armed as it is."""
    spawning: Foreign = sys.modules["torch.multiprocessing.spawn"]  # a function has taken its name
    real: Foreign = spawning.start_processes

    def start(
        fn: Foreign, args: Foreign = (), nprocs: int = 1, *how: bool, **more: Foreign
    ) -> Foreign:
        if client.rank > 0:
            return None  # each rank of a launcher runs the script; the first starts them for all
        more.pop("start_method", None)
        client.tell("launches", count=nprocs)
        return real(_Child(fn, client), args, nprocs, *how[:2], start_method="fork", **more)

    spawning.start_processes = start
    torch.multiprocessing.start_processes = start
    torch.multiprocessing.spawn = spawning.spawn = start
    _tell_ends_of_children(client)
    context, get = multiprocessing.get_context("fork"), multiprocessing.get_context
    modules: tuple[Foreign, ...] = (multiprocessing, torch.multiprocessing)
    for module in modules:
        module.get_context = lambda method=None: context if method == "spawn" else get(method)
        module.set_start_method = lambda *_, **__: None


def _rehearse_what_starts_again(plan: dict[str, Any]) -> None:
    """A script that starts itself again, as Lightning does: what it starts are ranks, too."""
    real: Foreign = subprocess.Popen.__init__
    itself = [os.path.realpath(each) for each in (sys.executable, plan["script"])]
    nursery = os.path.join(_HERE, "nursery.py")  # noqa: PTH118 - as text

    @functools.wraps(real)
    def started(self: Foreign, args: Foreign, *more: Foreign, **named: Foreign) -> None:
        words = list(map(os.fspath, args)) if isinstance(args, list | tuple) else []
        if [os.path.realpath(each) for each in words[:2]] == itself:
            args = [words[0], nursery, plan["path"], "again", *words[2:]]
        real(self, args, *more, **named)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign] # the same call


def _tell_ends_of_children(client: RankLine) -> None:
    """A process that the script starts, and that joins the job, is a rank of it."""
    real: Foreign = multiprocessing.process.BaseProcess.run

    def run_and_tell(self: Foreign) -> None:
        code = 1
        try:
            real(self)
            code = 0
        finally:
            if client.joined == os.getpid() != client.told_end:
                failure = sys.exc_info()[1]
                error = f"{type(failure).__name__}: {failure}" if failure else ""
                frames = _frames(_without_ours(failure)) if failure else []
                client.tell("end", code=code, error=error, frames=frames)

    multiprocessing.process.BaseProcess.run = run_and_tell  # type: ignore[method-assign] # the same call


class _Child:
    """What a spawned rank does: the same as it would, and then it tells how it ended."""

    def __init__(self, fn: Foreign, client: RankLine) -> None:
        self.fn, self.client = fn, client

    def __call__(self, number: int, *args: Foreign) -> None:
        """Be the rank that the script makes of number."""
        self.client.rank = number
        os.environ["LOCAL_RANK"] = str(number)
        self.client.tell("alive")
        code = ended(self.client, lambda: self.fn(number, *args))
        if code:
            sys.exit(code)
