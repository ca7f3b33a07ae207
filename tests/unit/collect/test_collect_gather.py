from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from unhang.casedir.manifest import create_case
from unhang.collect.gather import Gathered, GatherPlan, NodeJob, gather
from unhang.collect.launchers import Launch, Program
from unhang.collect.parcel import write_parcel
from unhang.collect.ship import collector_zip, make_program

PLAN = GatherPlan(orders={"incident": "i1"}, run="run1", timeout_s=20.0, ship=False)


def lines(node: str, ranks: Sequence[int], world_size: int = 4, **more: object) -> str:
    """What a node prints that has these ranks."""
    part = {
        **more,
        "host": node,
        "job": "train",
        "world_size": world_size,
        "time_ns": 5,
        "notes": ["a note"],
        "ranks": [
            {"rank": r, "pid": 100 + r, "state": "S", "came": {"dump": f"d{r}"}} for r in ranks
        ],
    }
    out = io.StringIO()
    files: dict[str, bytes | Path] = {f"dumps/gloo/rank_{r}": b"dump" for r in ranks}
    write_parcel({**files, "part.json": json.dumps(part).encode()}, "run1", node, out)
    return out.getvalue()


@dataclass(frozen=True)
class Scripted:
    """Nodes that are shell scripts: by node, or for a whole batch under its joined names."""

    scripts: dict[str, str]
    at_once: int = 1
    name: str = "scripted"

    def nodes(self) -> Sequence[str]:
        """All that have a script of their own."""
        return [node for node in self.scripts if "+" not in node]

    def launch(self, nodes: Sequence[str], program: Program) -> Launch:
        """A shell with the script, whose lines have the name that was given for this launch."""
        found = re.search('"run":"([^"]+)"', program.inline)
        script = self.scripts["+".join(nodes)]
        script = script.replace("@unhang run1 ", f"@unhang {found[1] if found else ''} ")
        return Launch(tuple(nodes), ("sh", "-c", script))

    def orders(self, node: str) -> dict[str, object]:
        """Its name."""
        return {"node": node}


def says(text: str) -> str:
    """A script that prints a text."""
    return f"cat <<'END'\n{text}END"


def collected(launcher: Scripted, tmp_path: Path, plan: GatherPlan = PLAN) -> tuple[Gathered, Path]:
    """Collect from scripted nodes into a new case."""
    case = create_case(tmp_path, "train", 0.0)
    return gather(launcher, launcher.nodes(), plan, case), case


def manifest(case: Path) -> dict[str, object]:
    """The manifest of a case."""
    loaded: dict[str, object] = json.loads((case / "manifest.json").read_text())
    return loaded


def test_one_dead_node_never_stops_the_rest(tmp_path: Path) -> None:
    """What came is there, and the manifest says of each rank what is not and why."""
    launcher = Scripted(
        {
            "a": says(f"Welcome to a!\n{lines('a', [0, 1])}"),
            "b": "echo 'ssh: connect to host b port 22: No route to host' >&2; exit 255",
            "c": says(lines("c", [2]).replace("end", "eend")),
            "d": "exit 0",
        }
    )
    gathered, case = collected(launcher, tmp_path)
    assert (gathered.whole, gathered.ranks, gathered.world_size) == (["a"], {0, 1}, 4)
    assert gathered.failed == {
        "b": "ssh: connect to host b port 22: No route to host",
        "c": "it ended before all answers came",
        "d": "sh ended without an answer",
    }
    assert gathered.notes == ["a: a note"]
    assert (case / "dumps" / "gloo" / "rank_1").read_bytes() == b"dump"
    told = manifest(case)
    assert told["world_size"] == 4
    assert told["job"]["job"] == "train"  # type: ignore[index]  # JSON
    ranks = told["ranks"]
    assert ranks["0"]["came"] == {"dump": "d0"}  # type: ignore[index]  # JSON
    assert ranks["3"]["missing"] == {"all": "no node reported this rank"}  # type: ignore[index]  # JSON
    notes = {node["host"]: node["notes"] for node in told["nodes"]}  # type: ignore[attr-defined]  # JSON
    assert notes["b"] == [f"nothing came from this node: {gathered.failed['b']}"]
    assert not list(case.glob(".incoming*"))


def test_a_node_that_hangs_is_given_up(tmp_path: Path) -> None:
    """After its time; what other nodes of the same command sent is kept."""
    plan = GatherPlan(orders={}, run="run1", timeout_s=3.0, ship=False)
    launcher = Scripted(
        {"a+b": f"{says(lines('a', [0]))}\nsleep 100", "a": "", "b": "sleep 100"}, 2
    )
    gathered, _ = collected(launcher, tmp_path, plan)
    assert gathered.whole == ["a"]
    assert gathered.failed == {"b": "no answer within 3 s"}


def test_a_batch_that_fails_is_tried_node_by_node(tmp_path: Path) -> None:
    """SLURM refuses a step as a whole where one node is down."""
    launcher = Scripted(
        {
            "a+b": "echo 'srun: error: Required node not available (down)' >&2; exit 1",
            "a": says(lines("a", [0])),
            "b": "echo 'srun: error: node b is down' >&2; exit 1",
        },
        at_once=2,
    )
    gathered, _ = collected(launcher, tmp_path)
    assert gathered.whole == ["a"]
    assert gathered.failed == {"b": "srun: error: node b is down"}


def test_nodes_may_call_themselves_otherwise(tmp_path: Path) -> None:
    """With a domain, or by another name where only one is left over."""
    both = lines("a.cluster", [0]) + lines("other-name", [1])
    launcher = Scripted({"a+b": says(both), "a": "", "b": ""}, 2)
    gathered, _ = collected(launcher, tmp_path)
    assert sorted(gathered.whole) == ["a", "b"]


def test_a_part_that_lies_does_no_harm(tmp_path: Path) -> None:
    """Wrong types, absurd numbers, no JSON: taken as nothing, or refused."""
    odd = {"ranks": [7, {"rank": -1}, {"rank": 1, "came": 5, "pid": "x"}], "world_size": 10**30,
           "host": 5, "notes": [5, "x"], "timings_s": []}  # fmt: skip
    out, broken = io.StringIO(), io.StringIO()
    write_parcel({"part.json": json.dumps(odd).encode()}, "run1", "a", out)
    write_parcel({"part.json": b"{"}, "run1", "b", broken)
    launcher = Scripted({"a": says(out.getvalue()), "b": says(broken.getvalue())})
    gathered, case = collected(launcher, tmp_path)
    assert (gathered.whole, gathered.ranks, gathered.world_size) == (["a"], {1}, 0)
    assert "no JSON" in gathered.failed["b"]
    assert manifest(case)["ranks"]["1"]["pid"] == 0  # type: ignore[index]  # JSON


def part_of(node: str, part: object) -> str:
    """What a node prints that sends this part, and nothing else."""
    out = io.StringIO()
    write_parcel({"part.json": json.dumps(part).encode()}, "run1", node, out)
    return out.getvalue()


def test_what_a_node_calls_itself_is_written_nowhere(tmp_path: Path) -> None:
    """Nothing appears outside of the case, and the case has its own folders only."""
    evil = "../../../EVIL"
    spoken = f"@unhang run1 {evil} 0 AAAA\n@unhang run1 /tmp/EVIL2 0 AAAA\n"
    launcher = Scripted({"a": says(spoken), "b": says(lines("b", [0]))})
    gathered, case = collected(launcher, tmp_path)
    assert gathered.whole == ["b"]
    assert set(gathered.failed) == {"a"}
    assert [path.name for path in tmp_path.iterdir()] == [case.name]
    assert not list(tmp_path.rglob("*EVIL*"))


def test_no_node_answers_as_another(tmp_path: Path) -> None:
    """Not in its name, nor with its files, nor later in a launch of another: each is said."""
    named = lines("b", [0])
    out = io.StringIO()
    files = {"part.json": b'{"host": "b"}', "logs/b/x.log": b"FAKE"}
    write_parcel(files, "run1", "c", out)
    replayed = lines("d", [1]).replace("@unhang run1 ", "@unhang run1-0 ")
    scripts = {"a": named, "c": out.getvalue(), "d": replayed, "b": lines("b", [2]) * 2}
    launcher = Scripted({node: says(text) for node, text in scripts.items()})
    gathered, case = collected(launcher, tmp_path)
    assert gathered.whole == ["b"]
    assert "another node" in gathered.failed["a"]
    assert "another node's name" in gathered.failed["c"]
    assert gathered.ranks == {2}
    assert any("more than one answer" in note for note in gathered.notes)
    assert not list((case / "logs").rglob("*.log"))


def test_a_launch_ends_with_its_time_or_its_command(tmp_path: Path) -> None:
    """Whatever holds its output: a child in a session of its own that prints now and then."""
    stay = "setsid sh -c 'while :; do printf x; sleep 0.1; done' & "
    launcher = Scripted({"a": f"{stay}{says(lines('a', [0]))}", "b": f"{stay}sleep 60"})
    plan = replace(PLAN, timeout_s=4.0)
    gathered, _ = collected(launcher, tmp_path, plan)
    assert gathered.whole == ["a"]
    assert gathered.failed == {"b": "no answer within 4 s"}


def test_a_node_of_many_names_costs_only_itself(tmp_path: Path) -> None:
    """Names are bounded before anything is opened for them, and what was passed over is said."""
    many = "\n".join(f"@unhang run1 n{i} 0 AAAA" for i in range(3_000))
    launcher = Scripted({"a+b": says(f"{many}\n{lines('b', [1])}"), "a": "exit 1", "b": ""}, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        gathered, _ = collected(launcher, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (gathered.whole, set(gathered.failed)) == (["b"], {"a"})
    assert any("skipped lines under further names" in note for note in gathered.notes)


def test_a_world_that_nobody_can_have_is_not_believed(tmp_path: Path) -> None:
    """One node's number is not everybody's: no row is made for 16 million ranks."""
    giant = {"world_size": (1 << 24) - 1, "ranks": [{"rank": 1 << 22}, {"rank": 2}]}
    launcher = Scripted({"a": says(part_of("a", giant)), "b": says(lines("b", [0]))})
    gathered, case = collected(launcher, tmp_path)
    assert gathered.world_size == 4
    assert gathered.ranks == {0, 2}
    assert any("16,777,215 ranks: ignored" in note for note in gathered.notes)
    assert len(manifest(case)["ranks"]) == 4  # type: ignore[arg-type]  # JSON


def test_most_nodes_say_how_large_the_job_is(tmp_path: Path) -> None:
    """A node that says otherwise does not make ranks that nobody has."""
    told = {node: says(lines(node, [i], 4)) for i, node in enumerate("abc")}
    launcher = Scripted({**told, "d": says(lines("d", [3], 200_000))})
    gathered, case = collected(launcher, tmp_path)
    assert gathered.world_size == manifest(case)["world_size"] == 4


def test_long_names_that_begin_alike_have_a_part_each(tmp_path: Path) -> None:
    """Pods of one job differ at the end of their names only."""
    pods = [f"research/a-training-job-with-quite-a-long-name-{'x' * 30}-worker-{i}" for i in (0, 1)]
    launcher = Scripted({pod: says(lines("n", [i])) for i, pod in enumerate(pods)})
    _, case = collected(launcher, tmp_path)
    assert len(list((case / "parts").iterdir())) == 2


@pytest.mark.parametrize("with_py_spy", [True, False])
def test_the_collector_needs_only_the_standard_library(
    tmp_path: Path,
    with_py_spy: bool,  # noqa: FBT001 - both kinds
) -> None:
    """Its zip alone, in an interpreter without any packages, imports what the node runs."""
    path = tmp_path / "collector.zip"
    path.write_bytes(collector_zip(with_py_spy=with_py_spy))
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import unhang.collect.node.main"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert zipfile.ZipFile(path).testzip() is None


HERE = {"job": "one", "ranks": [0, 1], "world_size": 4, "command": "train.py"}


@pytest.mark.parametrize(
    ("on_a", "on_b", "mixed"),
    [
        ([HERE], [{**HERE, "ranks": [2, 3]}], False),
        ([HERE, {**HERE, "job": "two"}], [], True),  # two jobs on one node
        ([HERE], [{**HERE, "job": "two"}], True),  # each node has another job
        ([HERE], [{**HERE, "job": "two", "ranks": [2], "world_size": 3}], True),
        # One job: nothing but the session of each node's shell tells what it is called.
        ([{**HERE, "job": "session-7"}], [{**HERE, "job": "session-8", "ranks": [2, 3]}], False),
        ([HERE], [{"job": 7}, {"ranks": "all"}, 7], False),
    ],
)
def test_jobs_of_all_nodes_are_told_apart(
    tmp_path: Path,
    on_a: list[object],
    on_b: list[object],
    mixed: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """By their names where they cannot be one: a rank twice, or another number of ranks."""
    launcher = Scripted(
        {"a": says(lines("a", [0, 1], jobs=on_a)), "b": says(lines("b", [2], jobs=on_b))}
    )
    gathered, _ = collected(launcher, tmp_path)
    assert gathered.are_mixed is mixed
    assert NodeJob("one", "a", (0, 1), 4, "train.py") in gathered.jobs or HERE not in on_a


def test_a_rank_that_a_node_has_lost_is_in_the_manifest(tmp_path: Path) -> None:
    """The launcher has started it there: its node was looked at."""
    text = lines("a", [0, 1], not_found=[3, -1, "x"])
    gathered, case = collected(Scripted({"a": says(text)}), tmp_path)
    assert (gathered.ranks, manifest(case)["looked_at"]) == ({0, 1}, [[0, 1], [3, 3]])


def test_the_collector_fits_into_an_argument() -> None:
    """Linux allows 128 KiB for one argument; launchers without input need it there."""
    program = make_program({"run": "r"}, "", ship=True)
    assert len(program.inline) < 120_000
    assert program.stdin


def test_a_node_without_python_says_so() -> None:
    """One sentence and an exit code, not a shell's error."""
    program = make_program({"run": "r"}, "/no/such/python", ship=True)
    done = subprocess.run(
        ["sh", "-c", program.script], input=program.stdin, capture_output=True, check=False
    )
    assert done.returncode == 127
    assert b"no Python 3.10 or newer" in done.stderr


@pytest.mark.parametrize("way", ["stdin", "inline"])
def test_this_machine_can_be_collected_by_what_travels(way: str) -> None:
    """The shipped collector really runs, both ways, and sends a whole parcel."""
    program = make_program(
        {"run": "r", "node": "n1", "what": [], "job": "no-such-job"}, sys.executable, ship=True
    )
    script, data = (program.script, program.stdin) if way == "stdin" else (program.inline, b"")
    done = subprocess.run(["sh", "-c", script], input=data, capture_output=True, check=True)
    last = done.stdout.decode().splitlines()[-1]
    assert last.startswith("@unhang r n1 end ")
