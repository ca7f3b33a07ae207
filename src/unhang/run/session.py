"""One `unhang run` from its start to its exit code: plan, announce, supervise, judge.

Everything up to the child's start stays within the standard library's cheap parts, because it is
paid by every command (no dataclasses on this path either: their import alone is a sixth of the
budget); what is needed to watch and to collect is imported by the watching thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from unhang.run.environment import Options, Plan, plan_environment
from unhang.run.guard import Guard, Orders
from unhang.run.identity import job_id, run_id
from unhang.run.speak import say
from unhang.run.streams import plan_streams
from unhang.run.supervisor import supervise

__all__ = ["Wishes", "run_session"]


class Wishes(NamedTuple):
    """What the command line asks for; see `unhang run --help`."""

    hang_after_s: float = 300.0
    on_hang: str = "report"
    exit_verdict: bool = False
    case: str = ""
    job: str = ""
    logs: str = "auto"
    arm: bool = True
    buffer_size: int = 0
    timing: bool = False
    rank_logs: bool = True
    blocking: bool = False
    verbose: bool = False
    quiet: bool = False
    dry_run: bool = False


def run_session(command: Sequence[str], wishes: Wishes) -> int:
    """Run `command` as `wishes` say and return the exit code of `unhang run`.

    Raises:
        UsageError, OutputError: --case cannot be used.
        NotFoundError, NotExecutableError: The command cannot be started.
    """
    run = run_id()
    job = job_id(os.environ, command, wishes.job)
    folder = _private_folder(run, job, make=not wishes.dry_run)
    plan = plan_environment(
        os.environ,
        command,
        staging=f"{folder}/staging",
        run_id=run,
        job_id=job,
        options=Options(
            wishes.arm, wishes.buffer_size, wishes.timing, wishes.rank_logs, wishes.blocking
        ),
    )
    if wishes.verbose or wishes.dry_run:
        _announce(plan, command)
    if wishes.dry_run:
        return 0
    env = plan.apply(os.environ)
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
        on_hang=wishes.on_hang,
        verbose=wishes.verbose,
        quiet=wishes.quiet,
    )
    with _reserved(wishes.case, orders.job, run):
        guard = Guard(orders)
        code = supervise(command, env, streams, f"{folder}/logs", guard)
    _tidy(folder, orders.job)
    if wishes.exit_verdict:
        return guard.verdict.exit_code if guard.verdict else int(code != 0)
    return code


@contextmanager
def _reserved(path: str, job: str, run: str) -> Iterator[None]:
    """Keep --case for this job from its beginning; give it back if nothing happened."""
    if not path:
        yield
        return
    from pathlib import Path

    from unhang.caseclaim import claim, release

    taken = claim(Path(path).absolute(), job, run)
    try:
        yield
    finally:
        release(taken)


def _tidy(folder: str, job: str) -> None:
    """Remove what this run kept for itself, and the job's directory where nobody is left in it."""
    home = os.path.dirname(folder)  # noqa: PTH120 - pathlib and shutil are dear, and mostly idle
    with suppress(OSError):
        for path in (f"{folder}/staging/nccl", f"{folder}/staging", folder, home):
            os.rmdir(path)  # noqa: PTH106 - as above; most commands leave nothing in it
        return
    import shutil

    from unhang.record.marks import alive, read_marks

    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(f"{home}/marks") and not any(map(alive, read_marks(job))):  # noqa: PTH112
        shutil.rmtree(home, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(home)  # noqa: PTH106 - another run of the job may still use it


def _private_folder(run: str, job: str, *, make: bool) -> str:
    """Where this run keeps what is no case yet: beside the marks and sockets of its processes.

    What torch writes into must be there before it starts: it makes no directories.
    """
    from unhang.record.places import RuntimeDirError, job_dir, roots, safe_name

    if not make:
        return f"{roots()[0] / safe_name(job)}/run-{run}"
    try:
        folder = f"{job_dir(job)}/run-{run}"
    except RuntimeDirError as error:
        import tempfile

        say(f"{error}: the processes cannot be reached, they are sampled from outside only")
        folder = f"{tempfile.mkdtemp(prefix='unhang-')}/run-{run}"
    os.makedirs(f"{folder}/staging/nccl", mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is dear
    return folder


def _announce(plan: Plan, command: Sequence[str]) -> None:
    import shlex

    lines = [f"torch {plan.torch or 'not found'}"]
    for setting in plan.settings:
        value = f"{setting.name}={shlex.quote(setting.value)}"
        lines.append(f"yours: {setting.kept_as}" if setting.kept_as else f"set:   {value}")
    lines += [f"note:  {remark}" for remark in plan.remarks]
    lines.append(f"run:   {shlex.join(command)}")
    say("\n".join(lines))
