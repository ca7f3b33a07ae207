"""One `unhang run` from its start to its exit code: plan, announce, supervise, judge.

Everything up to the child's start stays within the standard library's cheap parts, because it is
paid by every command (no dataclasses on this path either: their import alone is a sixth of the
budget). What is needed to watch and to collect is imported by the watching thread.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from unhang.errors import UsageError
from unhang.run.child.environment import EnvironmentPlan, Options, plan_environment
from unhang.run.child.ranklogs import make_place, place_for_logs, settle_logs
from unhang.run.child.speak import say
from unhang.run.child.streams import plan_streams
from unhang.run.child.supervisor import NoRoomError, not_started, supervise
from unhang.run.guard import Guard, Orders
from unhang.run.identity import job_id, run_id
from unhang.run.meeting.invitation import TOKEN, Invitation, invitation_of

_SIGNALLED = 128
_KILLED = _SIGNALLED + signal.SIGKILL


class NoFolderError(OSError):
    """Nothing takes the files that a run keeps for itself."""


class Wishes(NamedTuple):
    """What the command line asks for; see `unhang run --help`."""

    hang_after_s: float = 300.0
    auto: bool = False
    grace_s: float = 60.0
    on_hang: str = "report"
    exit_verdict: bool = False
    case: str = ""
    job: str = ""
    logs: str = "auto"
    arm: bool = True
    buffer_size: int = 0
    timing: bool = False
    rank_logs: bool = True
    rank_log_place: str = ""
    blocking: bool = False
    gpus: str = ""
    symbolize: str = ""
    verbose: bool = False
    quiet: bool = False
    notify: Sequence[str] = ()
    dry_run: bool = False
    metrics: str = ""
    meet: str = ""
    meet_token: str = ""


def run_session(command: Sequence[str], wishes: Wishes) -> int:
    """Run `command` as `wishes` say and return the exit code of `unhang run`.

    Raises:
        UsageError, OutputError: --case, --meet, --metrics or --rank-logs cannot be used.
        NotFoundError, NotExecutableError: The command cannot be started.
    """
    run = run_id()
    job = job_id(os.environ, command, wishes.job)
    if wishes.dry_run:
        _announce(_plan(command, wishes, (run, job), _planned_folder(run, job)), command)
        return 0
    try:
        folder = _private_folder(run, job)
        try:
            return _supervised(command, wishes, (run, job), folder)
        finally:
            _tidy(folder, os.environ.get("UNHANG_JOB", job))
    except OSError as error:
        if not isinstance(error, (NoRoomError, NoFolderError)):
            raise
        say(f"no resources left to watch the command ({error.strerror}): it runs without unhang")
    return _become(command)


def _plan(
    command: Sequence[str], wishes: Wishes, names: tuple[str, str], folder: str
) -> EnvironmentPlan:
    run, job = names
    wanted = wishes.rank_logs or wishes.rank_log_place
    # Without us in it, torchrun holds back what it reads from the logs.
    placed = wanted and (wishes.arm or wishes.rank_log_place)
    options = Options(
        wishes.arm,
        wishes.buffer_size,
        wishes.timing,
        bool(wanted),
        place_for_logs(wishes.rank_log_place, folder, run) if placed else "",
        wishes.blocking,
        wishes.symbolize,
        wishes.gpus,
    )
    return plan_environment(
        os.environ,
        command,
        staging=f"{folder}/staging",
        run_id=run,
        job_id=job,
        options=options,
    )


def _supervised(command: Sequence[str], wishes: Wishes, names: tuple[str, str], folder: str) -> int:
    plan = _plan(command, wishes, names, folder)
    if wishes.verbose:
        _announce(plan, command)
    if wishes.rank_log_place:
        make_place(wishes.rank_log_place)
    run, job = names
    env = plan.apply(os.environ)
    meet = _invitation(command, wishes, env.get("UNHANG_JOB", job))
    env.pop(TOKEN, None)  # a secret of ours, which the job has no use for
    streams = plan_streams(wishes.logs)
    orders = Orders(
        command=command,
        plan=plan,
        streams=streams,
        folder=folder,
        run=run,
        job=env.get("UNHANG_JOB", job),
        named=wishes.case,
        hang_after_s=wishes.hang_after_s,
        auto=wishes.auto,
        grace_s=wishes.grace_s,
        on_hang=wishes.on_hang,
        verbose=wishes.verbose,
        quiet=wishes.quiet,
        notify=wishes.notify,
        meet=meet,
    )
    with _reserved(wishes.case, orders.job, run):
        guard = _guard(orders)
        with _metered(wishes.metrics, orders.job, guard):
            code = supervise(command, env, streams, f"{folder}/logs", guard)
    if not wishes.rank_log_place:
        failed = code != 0 and guard.verdict is None and not guard.interrupted_s
        # Ranks of a launcher that was killed may print on, and nothing passes that on.
        failed = failed or code == _KILLED
        settle_logs(plan.log_place, run, failed=failed)
    if guard.verdict is not None:
        from unhang.run.incident.closing import closing_line, first_line

        say(first_line(guard.first, guard.verdict))
        say(closing_line(guard.verdict, code))
    elif code > _SIGNALLED and not guard.interrupted_s:
        from unhang.run.incident.closing import ending_line

        say(ending_line(code))
    if wishes.exit_verdict:
        return guard.verdict.exit_code if guard.verdict else int(code != 0)
    return code


def _invitation(command: Sequence[str], wishes: Wishes, job: str) -> Invitation | None:
    """Where to meet the other supervisors; a directory that they share is a meeting already."""
    if not (wishes.meet or wishes.meet_token or TOKEN in os.environ):
        return None
    if wishes.case:
        if wishes.meet or wishes.meet_token:
            raise UsageError(
                "the supervisors meet over --case, or over the network",
                "leave out --case, or --meet and --meet-token",
            )
        return None
    found = invitation_of(os.environ, command, job, wishes.meet, wishes.meet_token)
    if found is None and os.environ.get("MASTER_ADDR"):
        say(f"{TOKEN} is set, and nothing shows where to meet: name a place by --meet HOST:PORT")
    return found


def _guard(orders: Orders) -> Guard:
    def patrol(guard: Guard, child: int) -> None:
        from unhang.run.patrol import Patrol

        Patrol(guard, orders, child).walk()

    try:
        return Guard(patrol)
    except OSError as error:
        raise NoRoomError(error.errno, error.strerror) from error


@contextmanager
def _metered(path: str, job: str, guard: Guard) -> Iterator[None]:
    """Keep a file of metrics up to date, where one is asked for."""
    if not path:
        yield
        return
    from unhang.run.metrics import Meter

    with Meter(path, job, lambda: guard.verdict):
        yield


def _become(command: Sequence[str]) -> int:
    """Let the command take our place, in the environment that it would have had without us."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them for itself.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the user's own
    except OSError as error:
        raise not_started(command[0], error) from error


@contextmanager
def _reserved(path: str, job: str, run: str) -> Iterator[None]:
    """Keep --case for this job from its beginning; give it back if nothing happened."""
    if not path:
        yield
        return
    from pathlib import Path

    from unhang.casedir.sharing import claim, release

    taken = claim(Path(path).absolute(), job, run)
    try:
        yield
    finally:
        release(taken)


def _tidy(folder: str, job: str) -> None:
    """Remove what this run kept for itself, and the job's directory if it is empty."""
    home = os.path.dirname(folder)  # noqa: PTH120 - pathlib and shutil are dear, and mostly idle
    with suppress(OSError):
        for path in (f"{folder}/staging/nccl", f"{folder}/staging", folder, home):
            os.rmdir(path)  # noqa: PTH106 - as above; most commands leave nothing in it
        return
    import shutil

    from unhang.record.contact.marks import alive, read_marks

    shutil.rmtree(folder, ignore_errors=True)
    if _is_last_run(home) and not any(map(alive, read_marks(job))):
        shutil.rmtree(home, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(home)  # noqa: PTH106 - another run of the job may still use it


def _is_last_run(home: str) -> bool:
    """Whether the job's directory holds marks and no other run's folder (runs may be nested)."""
    try:
        names = os.listdir(home)  # noqa: PTH208 - as above
    except OSError:
        return False
    return "marks" in names and not any(name.startswith("run-") for name in names)


def _planned_folder(run: str, job: str) -> str:
    from unhang.record.contact.runtime_dir import roots, safe_name

    return f"{roots()[0] / safe_name(job)}/run-{run}"


def _private_folder(run: str, job: str) -> str:
    """Where this run keeps what is no case yet: next to the marks and sockets of its processes.

    What torch writes into must be there before it starts: it makes no directories.

    Raises:
        NoFolderError: No place takes it.
    """
    from unhang.record.contact.runtime_dir import RuntimeDirError, job_dir

    try:
        try:
            folder = f"{job_dir(job)}/run-{run}"
        except RuntimeDirError as error:
            import tempfile

            say(f"{error}: cannot reach the processes: unhang only samples them from outside")
            folder = f"{tempfile.mkdtemp(prefix='unhang-')}/run-{run}"
        os.makedirs(f"{folder}/staging/nccl", mode=0o700)  # noqa: PTH103 - pathlib is dear
    except OSError as error:
        raise NoFolderError(error.errno, error.strerror) from error
    return folder


def _announce(plan: EnvironmentPlan, command: Sequence[str]) -> None:
    import shlex

    lines = [f"torch {plan.torch or 'not found'}"]
    for setting in plan.settings:
        value = f"{setting.name}={shlex.quote(setting.value)}"
        lines.append(f"yours: {setting.kept_as}" if setting.kept_as else f"set:   {value}")
    lines += [f"note:  {remark}" for remark in plan.remarks]
    lines.append(f"run:   {shlex.join(command)}")
    say("\n".join(lines))
