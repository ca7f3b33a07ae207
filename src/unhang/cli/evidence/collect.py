"""Collect the evidence of a job from all its nodes, into one case with a manifest.

Dumps (triggered where a recorder listens, found where files lie), stacks, the ends of logs, process
state, versions, GPUs, kernel log, network. All nodes at once; one dead node never stops the rest,
and --resume asks again those that did not answer. Nothing needs to be installed on the nodes but
Python 3.10.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang.cli.shared.launching import (
    add_launcher_arguments,
    checked_launcher,
    gather_with_progress,
    is_chosen,
    plan_of,
    refuse_mixture,
    tell_failures,
)
from unhang.cli.shared.output import EXIT_HEALTHY, EXIT_INSUFFICIENT, EXIT_PROBLEM
from unhang.errors import InputError, UsageError
from unhang.incoming import value_of
from unhang.regular import open_regular

if TYPE_CHECKING:
    from unhang.collect.gather import Gathered

EXAMPLES = """unhang collect
unhang collect --slurm 4711
unhang collect --hosts node[01-16] --logs '/scratch/job/logs/*.out'
unhang collect --slurm 4711 --whole-dumps
unhang collect --kubectl job-name=train -n research
unhang collect --hostfile hosts --dumps '/shared/dumps/rank_*' --case evidence
unhang collect --resume unhang-cases/20260102-030405-4711
unhang collect --redact unhang-cases/20260102-030405-4711 --case for-the-issue"""

_STATE = "collect.json"
_MOST_STATE = 64 << 20
"""Bytes: a name for each of a hundred thousand nodes is some megabytes."""
_WHAT = ("dumps", "stacks", "logs", "env")
_MOST_SAMPLES = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang collect`."""
    parser.add_argument(
        "--case", metavar="DIR", help="a new directory; default: under unhang-cases"
    )
    parser.add_argument("--resume", metavar="CASE", help="ask again the nodes that did not answer")
    parser.add_argument(
        "--redact", metavar="CASE", help="instead, copy a case to --case without names and secrets"
    )
    add_launcher_arguments(parser)
    what = parser.add_argument_group("what to collect")
    what.add_argument("--only", metavar="LIST", help=f"of {','.join(_WHAT)}; default: all of them")
    what.add_argument("--job", metavar="ID", help="which job, if several run on a node")
    what.add_argument(
        "--dumps", action="append", default=[], metavar="GLOB", help="further dumps, on each node"
    )
    what.add_argument(
        "--whole-dumps",
        action="store_true",
        help="fetch dumps unreduced (default: nodes with unhang reduce large ones to 1 KB a rank)",
    )
    what.add_argument(
        "--logs", action="append", default=[], metavar="GLOB", help="further logs, on each node"
    )
    what.add_argument(
        "--log-kib", type=int, default=1024, metavar="N", help="end of each log (default: 1024)"
    )
    what.add_argument("--samples", type=int, default=2, metavar="N", help="number of stack samples")
    what.add_argument("--interval", type=float, default=1.0, metavar="S", help="between looks")
    what.add_argument("--native", action="store_true", help="include C and C++ frames")


def run(args: argparse.Namespace) -> int:
    """Collect, go on with a collection, or make a copy of one that may be shown to others."""
    if args.redact:
        return _redact(Path(args.redact), args)
    if args.resume:
        case, state = Path(args.resume), _read_state(Path(args.resume))
        args.__dict__.update({key: state["options"][key] for key in state["options"]})
        launcher = checked_launcher(args)
        nodes = [node for node in state["nodes"] if node not in state["whole"]]
        if not nodes:
            print(f"{case} is complete: all nodes have answered")
            return EXIT_HEALTHY
        launcher.nodes()  # is the job still there? the launcher looks it up again
    else:
        launcher = checked_launcher(args)
        state = {"run": "", "options": _options(args), "whole": []}
        _check(args)
        nodes = list(launcher.nodes())
        case = _new_case(args, launcher.job)
        state["nodes"] = nodes
    plan = plan_of(args, _orders(args, case), state["run"])
    gathered = gather_with_progress(launcher, nodes, plan, case)
    refuse_mixture(gathered, None if args.resume else case)
    state |= {"run": plan.run, "whole": sorted({*state["whole"], *gathered.whole})}
    _write_state(case, state)
    return _tell(case, nodes, gathered, wants_ranks=set(_wanted(args)) != {"env"})


def _redact(case: Path, args: argparse.Namespace) -> int:
    """Copy a case without names; says on stdout what was replaced, on stderr what was left out."""
    from unhang.collect.redaction import redact_case
    from unhang.redact import Redactor
    from unhang.wording import printable

    if not case.is_dir():
        raise InputError(f"{case} is not a directory", "Name a case directory.")
    if args.resume or is_chosen(args):
        raise UsageError("--redact copies an existing case", "Collect first, then redact.")
    redactor = Redactor()
    redactor.learn(hosts=[socket.gethostname()], users=[getpass.getuser()])
    target = Path(args.case or f"{case.absolute()}-redacted")
    done = redact_case(case, target, redactor)
    for name, why in done.left_out.items():
        print(f"unhang: left out {printable(name)}: {why}", file=sys.stderr)
    print(f"{os.path.relpath(target)}: {done.summary}")
    return EXIT_HEALTHY


def _check(args: argparse.Namespace) -> None:
    if not 1 <= args.samples <= _MOST_SAMPLES:
        raise UsageError(f"--samples {args.samples} is out of bounds", f"1 to {_MOST_SAMPLES}.")
    if args.interval < 0 or args.log_kib < 1:
        raise UsageError("--interval and --log-kib are above 0", "Leave them out for the defaults.")
    unknown = set(_wanted(args)) - set(_WHAT)
    if unknown:
        raise UsageError(f"--only knows no {min(unknown)!r}", f"Of {', '.join(_WHAT)}.")


def _wanted(args: argparse.Namespace) -> list[str]:
    return [word.strip() for word in args.only.split(",")] if args.only else list(_WHAT)


def _orders(args: argparse.Namespace, case: Path) -> dict[str, object]:
    orders: dict[str, object] = {
        "incident": case.name,
        "what": _wanted(args),
        "looks": args.samples,
        "interval_s": args.interval,
        "native": args.native,
        "dumps": args.dumps,
        "whole_dumps": args.whole_dumps,
        "logs": args.logs,
        "log_bytes": args.log_kib << 10,
    }
    return orders | ({} if args.job is None else {"job": args.job})


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What must be the same when the collection goes on."""
    left_out = {"command", "run_command", "resume", "case", "at_once", "node_timeout"}
    return {key: value for key, value in vars(args).items() if key not in left_out}


def _new_case(args: argparse.Namespace, job: str) -> Path:
    from unhang.casedir.manifest import CASES, create_case
    from unhang.casedir.sharing import claim

    job = args.job or job or "collected"
    named = claim(Path(args.case), job).path if args.case else None
    return create_case(Path(CASES), job, time.time(), named=named)


def _read_state(case: Path) -> dict[str, Any]:
    try:
        with open_regular(case / _STATE) as file:
            state = value_of(file.read(_MOST_STATE))
        known = isinstance(state["options"], dict) and isinstance(state["nodes"], list)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{case} is not a case of unhang collect", "Name a case directory that it made."
        ) from error
    if not known:
        raise InputError(f"{case / _STATE} is damaged", "Collect again.")
    return dict(state)


def _write_state(case: Path, state: dict[str, Any]) -> None:
    from unhang.casedir.manifest import save_file
    from unhang.casedir.sharing import cannot_write

    try:
        save_file(case / _STATE, (json.dumps(state, indent=1) + "\n").encode())
    except OSError as error:
        raise cannot_write(case, error) from error


def _holds_evidence(case: Path) -> bool:
    """Whether something of a job came, though no rank of it runs any more."""
    kinds = (case / kind for kind in ("dumps", "stacks", "logs"))
    return any(path.is_file() for kind in kinds for path in kind.rglob("*"))


def _tell(case: Path, nodes: Sequence[str], gathered: Gathered, *, wants_ranks: bool) -> int:
    """Say what came; 0 if all did, 1 if something is missing, 3 if nothing of a rank came."""
    from unhang.wording import count_of, fold_ranks, printable

    for note in dict.fromkeys(gathered.notes):
        print(f"note: {printable(note)}", file=sys.stderr)
    tell_failures(gathered, nodes)
    if not gathered.whole:
        return EXIT_INSUFFICIENT
    found = f"ranks {fold_ranks(gathered.ranks)}" if gathered.ranks else "no rank"
    where = os.path.relpath(case)
    print(f"{where}: {found} from {count_of(len(gathered.whole), 'node')}")
    if wants_ranks and not (gathered.ranks or gathered.failed or _holds_evidence(case)):
        print("found no rank of a job: unhang stacks --all-python shows what runs; or name")
        print("what it left behind: unhang collect --dumps GLOB --logs GLOB")
        return EXIT_INSUFFICIENT
    print(f"next: unhang diagnose {where}")
    if gathered.failed:
        print(f"      unhang collect --resume {where}")
    missing = set(range(gathered.world_size)) - gathered.ranks
    return EXIT_PROBLEM if gathered.failed or missing else EXIT_HEALTHY
