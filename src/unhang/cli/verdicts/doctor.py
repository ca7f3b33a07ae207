"""Check nodes, network, GPUs and collectives, before a job or while one is stuck.

Without a part all parts that fit are run: env (settings, limits, versions), net (interfaces and a
full matrix of connections), gpu, comm (real collectives with a time-out that names missing ranks).
On this node, on all nodes that a launcher reaches, or as a job itself: started by torchrun, srun or
mpirun, its ranks are those of the test. Nothing is changed on any node.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import TYPE_CHECKING

from unhang.cli.shared.launching import add_launcher_arguments, checked_launcher, is_chosen, plan_of
from unhang.cli.shared.output import add_report_arguments, emit, report_options
from unhang.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unhang.doctor.asking.joined import Seat
    from unhang.doctor.asking.nodes import Node, NodeAsker
    from unhang.doctor.checks.results import CheckResult
    from unhang.doctor.running import Facts

EXAMPLES = """unhang doctor
unhang doctor env
unhang doctor --slurm 4711
unhang doctor net --hosts node[01-03]
unhang doctor net --hosts a=10.0.0.1,b=10.0.0.2 --via 'ip netns exec {host}'
unhang doctor comm --nproc 4
unhang doctor comm --hosts node01,node02 --python /opt/venv/bin/python
torchrun --nnodes 2 --nproc-per-node 8 --no-python unhang doctor comm
srun --nodes 4 --ntasks-per-node 8 unhang doctor comm
unhang doctor --hosts node01,node02 --format json -o doctor.json"""

PARTS = ("env", "net", "gpu", "comm")
MAX_PORT = 65_535
MOST_RANKS = 1_024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang doctor`."""
    parser.add_argument("parts", nargs="*", metavar="PART", help="env, net, gpu, comm")
    add_launcher_arguments(parser)
    net = parser.add_argument_group("net")
    net.add_argument("--ports", default="29500-29502", metavar="A-B", help="master port and others")
    net.add_argument(
        "--seconds", type=float, default=12.0, metavar="S", help="time limit of the matrix"
    )
    comm = parser.add_argument_group("comm")
    comm.add_argument(
        "--nproc", type=int, metavar="N", help="ranks on each node (default: its GPUs, else 1 or 2)"
    )
    comm.add_argument("--backend", choices=("gloo", "nccl"), help="default: nccl where GPUs are")
    comm.add_argument("--timeout", type=float, default=60.0, metavar="S", help="for each step")
    comm.add_argument(
        "--start-timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="time to load torch and connect (default: 60)",
    )
    comm.add_argument(
        "--isolate",
        type=float,
        default=600.0,
        metavar="S",
        help="time to isolate a failure, 0 for none (default: 600)",
    )
    comm.add_argument(
        "--allocate",
        type=int,
        default=64,
        metavar="MB",
        help="memory that each rank fills and reads back",
    )
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the parts and judge."""
    named, ports = _parts(args), _ports(args.ports)
    args.parts, parts = named, named or PARTS
    seat = None
    if not is_chosen(args) and args.nproc is None:
        from unhang.doctor.asking.joined import seat_of

        seat = seat_of(os.environ)
    return _launched(args, parts, ports) if seat is None else _joined(args, parts, ports, seat)


def _launched(args: argparse.Namespace, parts: Sequence[str], ports: Sequence[int]) -> int:
    """This node, or those that a launcher reaches."""
    from unhang.doctor.asking.nodes import Launched, Node, split_addresses
    from unhang.doctor.reporting import to_report
    from unhang.doctor.running import ask_facts, silent

    told: dict[str, str] = {}
    if args.hosts is not None:
        args.hosts, told = split_addresses(args.hosts)
    launcher = checked_launcher(args)
    plan = plan_of(args, {})
    names = list(launcher.nodes())
    asking = Launched(launcher, plan.python, plan.ship)
    _say(f"asking {len(names)} node{'s' if len(names) > 1 else ''}")
    facts = ask_facts(asking, [Node(name) for name in names], told, plan.timeout_s)
    results = silent(facts.answers)
    results += _machine_parts(args, parts, ports, asking, facts)
    if "comm" in parts:
        results += _comm(args, ports, asking, facts, facts.nodes)
    return emit(to_report(results, args.parts), report_options(args))


def _joined(
    args: argparse.Namespace, parts: Sequence[str], ports: Sequence[int], seat: Seat
) -> int:
    """As one rank of a job: the first one judges, the others serve."""
    from unhang.doctor.asking.joined import expected_hosts, one_per_machine, take_seat
    from unhang.doctor.reporting import to_report
    from unhang.doctor.running import absent, ask_facts, silent

    joined = take_seat(seat, args.start_timeout)
    if joined is None:
        return 0
    try:
        machines = one_per_machine(joined.nodes)
        facts = ask_facts(joined, machines, {}, args.node_timeout)
        hosts = expected_hosts(os.environ, joined.nodes, joined.absent)
        results = absent(joined.absent, hosts, joined.nodes, args.start_timeout)
        results += silent(facts.answers)
        free = [port for port in ports if port != seat.port] or ports
        results += _machine_parts(args, parts, free, joined, facts)
        if "comm" in parts:
            results += _comm(args, free, joined, facts, joined.nodes)
    finally:
        joined.close()
    return emit(to_report(results, args.parts), report_options(args))


def _machine_parts(
    args: argparse.Namespace,
    parts: Sequence[str],
    ports: Sequence[int],
    asking: NodeAsker,
    facts: Facts,
) -> list[CheckResult]:
    """Parts env, net and gpu: each machine gives one answer."""
    from unhang.doctor.running import NetPlan, kernels_ports, run_env, run_gpu, run_net

    results: list[CheckResult] = []
    if "env" in parts:
        results += run_env(facts, measured="net" in parts)
    if "net" in parts:
        plan = NetPlan(tuple(ports), args.seconds, any_ports=kernels_ports())
        results += run_net(asking, facts, plan, _say)
    if "gpu" in parts:
        results += run_gpu(asking, facts, args.node_timeout)
    return results


def _comm(
    args: argparse.Namespace,
    ports: Sequence[int],
    asking: NodeAsker,
    facts: Facts,
    ranks: Sequence[Node],
) -> list[CheckResult]:
    from unhang.doctor.comm.judging import CommPlan
    from unhang.doctor.running import comm_between, default_backend

    gpus = [int(data["gpus"]) for data in facts.by_name.values()]
    backend = args.backend or default_backend(gpus)
    usual = min(gpus) if backend == "nccl" and gpus else 0
    per_node = args.nproc or usual or (2 if len(ranks) == 1 else 1)
    plan = CommPlan(
        backend, args.timeout, args.start_timeout, args.isolate, allocate=args.allocate << 20
    )
    return comm_between(asking, facts, ranks, plan, (per_node, ports), _say)


def _parts(args: argparse.Namespace) -> tuple[str, ...]:
    """The parts that were named, each once; none where all that fit are meant."""
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        raise UsageError(f"there is no part {unknown[0]!r}", f"Parts: {', '.join(PARTS)}.")
    if args.nproc is not None and not 1 <= args.nproc <= MOST_RANKS:
        raise UsageError(f"--nproc {args.nproc} is out of bounds", f"1 to {MOST_RANKS}.")
    if not 1 <= args.allocate <= 1 << 20:
        raise UsageError(f"--allocate {args.allocate} is out of bounds", "MB, 1 to 1048576.")
    for name in ("timeout", "start_timeout", "seconds", "isolate"):
        value = getattr(args, name)
        least = 0 if name == "isolate" else 0.001
        if not math.isfinite(value) or value < least:
            raise UsageError(
                f"--{name.replace('_', '-')} {value:g} is not a time", "Seconds, above 0."
            )
    return tuple(dict.fromkeys(args.parts))


def _ports(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    numbers = (first, last) if last else (first,)
    if not all(number.isascii() and number.isdigit() and len(number) < 6 for number in numbers):  # noqa: PLR2004 - five digits
        raise UsageError(f"--ports {text!r} is not a range", "For example: --ports 29500-29510")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports.start < 1 or ports.stop > MAX_PORT + 1 or len(ports) > 64:  # noqa: PLR2004 - enough for any job
        raise UsageError(f"--ports {text!r} is empty or too large", "At most 64 ports, 1 to 65535.")
    return tuple(ports)


def _say(text: str) -> None:
    """Progress, on a terminal only: stdout belongs to the report."""
    if sys.stderr.isatty():
        print(f"unhang doctor: {text} …", file=sys.stderr)
