"""Check nodes, network, GPUs and collectives before a job, or beside one that is stuck.

Without a part all parts that fit are run: env (settings, limits, versions), net (interfaces and a
full matrix of connections), gpu, comm (real collectives with a time-out that names who is missing).
Nothing is changed on any node.
"""

from __future__ import annotations

import argparse
import socket
import sys
from typing import TYPE_CHECKING

from unhang.cli.output import add_report_arguments, emit
from unhang.errors import UsageError

if TYPE_CHECKING:
    from unhang.doctor.nodes import Node
    from unhang.doctor.results import Result

EXAMPLES = """unhang doctor
unhang doctor env
unhang doctor net --hosts node01,node02,node03
unhang doctor net --hosts a=10.0.0.1,b=10.0.0.2 --via 'ssh -p 2222 {host}'
unhang doctor comm --nproc 4
unhang doctor --hosts node01,node02 --format json -o doctor.json"""

PARTS = ("env", "net", "gpu", "comm")
MAX_PORT = 65_535


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang doctor`."""
    parser.add_argument("parts", nargs="*", metavar="PART", help="env, net, gpu, comm")
    where = parser.add_argument_group("where")
    where.add_argument("--hosts", metavar="LIST", help="node01,node02 or node01=ADDRESS,…")
    where.add_argument("--via", metavar="COMMAND", help="how to start a program on {host}")
    net = parser.add_argument_group("net")
    net.add_argument("--ports", default="29500-29502", metavar="A-B", help="master port and others")
    net.add_argument("--seconds", type=float, default=12.0, metavar="S", help="limit of the matrix")
    comm = parser.add_argument_group("comm")
    comm.add_argument("--nproc", type=int, default=2, metavar="N", help="ranks of the own test")
    comm.add_argument("--backend", choices=("gloo", "nccl"), help="default: nccl where GPUs are")
    comm.add_argument("--timeout", type=float, default=60.0, metavar="S", help="for each step")
    comm.add_argument("--no-isolate", action="store_true", help="do not look for what is left")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the parts and judge."""
    from unhang.doctor.reporting import to_report
    from unhang.doctor.running import ask_facts, now_ns, run_env, silent

    parts = _parts(args)
    nodes = _nodes(args)
    asked = now_ns()
    _say(f"asking {len(nodes)} node{'s' if len(nodes) > 1 else ''}")
    answers = ask_facts(nodes)
    results: list[Result] = [*silent(answers)]
    if "env" in parts:
        results += run_env(answers, asked)
    if "net" in parts:
        from unhang.doctor.running import NetPlan, run_net

        plan = NetPlan(_ports(args.ports), args.seconds)
        results += run_net(answers, plan, _say)
    if "gpu" in parts:
        from unhang.doctor.running import run_gpu

        results += run_gpu(answers)
    if "comm" in parts and not args.hosts:
        from unhang.doctor.comm import CommPlan, run_comm

        results += run_comm(
            CommPlan(args.nproc, args.backend, args.timeout, not args.no_isolate), _say
        )
    return emit(to_report(results), args)


def _parts(args: argparse.Namespace) -> tuple[str, ...]:
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        raise UsageError(f"there is no part {unknown[0]!r}", f"Parts: {', '.join(PARTS)}.")
    if args.nproc < 1 or args.timeout <= 0 or args.seconds <= 0:
        raise UsageError("--nproc, --timeout and --seconds must be above 0", "See --help.")
    if args.via and not args.hosts:
        raise UsageError("--via says how to reach hosts: name them with --hosts", "See --help.")
    return tuple(args.parts) or PARTS


def _nodes(args: argparse.Namespace) -> list[Node]:
    from unhang.doctor.nodes import local_node, parse_hosts

    if args.hosts:
        return parse_hosts(args.hosts, args.via)
    return [local_node(socket.gethostname())]


def _ports(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        raise UsageError(f"--ports {text!r} is no range", "For example: --ports 29500-29510")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports.start < 1 or ports.stop > MAX_PORT + 1 or len(ports) > 64:  # noqa: PLR2004 - enough for any job
        raise UsageError(f"--ports {text!r} is empty or too large", "At most 64 ports, 1 to 65535.")
    return tuple(ports)


def _say(text: str) -> None:
    """Progress, on a terminal only: stdout belongs to the report."""
    if sys.stderr.isatty():
        print(f"unhang doctor: {text} …", file=sys.stderr)
