"""No Python process of ours imports what lies in the working directory."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted import HOSTILE, plant

import unhang
from unhang.collect.ship import make_program
from unhang.isolated import STANDARD_FIRST, own_paths, python_command
from unhang.run.incident.judging import judge

SRC = Path(unhang.__file__).parent
DUMPS = SRC.parents[1] / "examples" / "never-joined-armed" / "dumps"
NOT_OF_OURS = (("cli/demo.py", "str(_JOB)"), ("integrations/pytest_plugin.py", "'-m'"))
"""Programs of the user's: the demo's job, and pytest with the user's own tests."""


def starts_python(path: Path) -> list[tuple[str, str]]:
    """What follows `sys.executable` in the command lines of a file, two words each."""
    text = path.read_text()
    tree = ast.parse(text if "sys.executable" in text else "")
    lists = [node.elts for node in ast.walk(tree) if isinstance(node, (ast.List, ast.Tuple))]
    return [
        (ast.unparse(items[at + 1]), ast.unparse(items[at + 2]))
        for items in lists
        for at, item in enumerate(items[:-2])
        if ast.unparse(item) == "sys.executable"
    ]


def is_safe(path: Path, first: str, second: str) -> bool:
    """Isolated; or a program that begins with what leaves the working directory out."""
    text = path.read_text()
    if (str(path.relative_to(SRC)), first) in NOT_OF_OURS:
        return True
    return first in ("'-I'", "*how") or (first == "'-c'" and f"{second} = STANDARD_FIRST" in text)


def test_there_is_one_way_to_start_a_python_of_ours() -> None:
    """Every command line with our interpreter is isolated; new ones go through python_command."""
    found = {path: starts_python(path) for path in SRC.rglob("*.py")}
    assert sum(map(len, found.values())) >= 5
    unsafe = [
        (path.name, *s) for path, all_of in found.items() for s in all_of if not is_safe(path, *s)
    ]
    assert unsafe == []


@pytest.mark.parametrize("environ", [{}, {"PYTHONPATH": os.pathsep}, {"PYTHONPATH": "."}])
def test_a_child_imports_nothing_of_the_working_directory(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """Nor by a PYTHONPATH with an empty or a relative entry."""
    mark = plant(tmp_path / "case", *HOSTILE)
    done = subprocess.run(
        python_command("unhang", "--version"), cwd=tmp_path / "case", check=False,
        env={**os.environ, **environ}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == f"unhang {unhang.__version__}\n", done.stderr
    assert not mark.exists()


def test_a_verdict_comes_whatever_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own html.py does not cost the page."""
    mark = plant(tmp_path, *HOSTILE)
    shutil.copytree(DUMPS, tmp_path / "dumps")
    (tmp_path / "manifest.json").write_text('{"schema": "unhang.case/1", "world_size": 4}')
    monkeypatch.chdir(tmp_path)
    verdict = judge(tmp_path, (), lambda: True)
    assert verdict.status == "problem", verdict.text
    assert (tmp_path / "report.html").stat().st_size
    assert not mark.exists()


def test_a_package_of_the_parent_is_found_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of PYTHONPATH come last: for what only lies there."""
    plant(tmp_path, *HOSTILE)
    (tmp_path / "only_here.py").write_text("print('found')")
    script = (
        "import sys; from unhang.isolated import isolate; isolate(); import only_here, argparse"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SRC.parent}"}, cwd="/",
    )  # fmt: skip
    assert done.stdout == "", "unhang/ of PYTHONPATH itself is what Python takes first"
    shutil.rmtree(tmp_path / "unhang")  # with what Python compiled of it
    (tmp_path / "typing.py").unlink()
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SRC.parent}"}, cwd="/",
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("found\n", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) in python_command("unhang")[-2].split(os.pathsep)


def test_the_folder_of_a_script_and_the_working_directory_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python puts one of them first; an installed package is found all the same."""
    monkeypatch.chdir(tmp_path)
    for first, program in (("", "-c"), (str(tmp_path), "-m"), (str(tmp_path / "bin"), "bin/tool")):
        monkeypatch.setattr(sys, "argv", [program])
        monkeypatch.setattr(sys, "path", [first, "/usr/lib/python3", str(tmp_path / "src")])
        assert own_paths() == ["/usr/lib/python3", str(tmp_path / "src"), str(SRC.parent)]


@pytest.mark.parametrize("ship", [False, True])
def test_what_runs_on_nodes_imports_nothing_of_their_working_directory(
    tmp_path: Path, *, ship: bool
) -> None:
    """A container starts in the folder of the user's own modules, or names it in PYTHONPATH."""
    hostile = tuple(name for name in HOSTILE if name not in ("unhang/", "msgspec/", "numpy/"))
    mark = plant(tmp_path, *hostile)
    program = make_program({"node": "n1"}, sys.executable, ship=ship)
    for path in ("", os.pathsep, str(tmp_path)):
        subprocess.run(
            ["sh", "-c", program.script], input=program.stdin, cwd=tmp_path, check=False,
            capture_output=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert not mark.exists(), path


def test_a_program_for_a_node_keeps_the_order_of_other_folders() -> None:
    """Only the standard library goes before them."""
    code = f"{STANDARD_FIRST}print(*sys.path, sep=chr(10))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"/first{os.pathsep}/second"},
    )  # fmt: skip
    paths = done.stdout.splitlines()
    assert os.path.dirname(os.__file__) == paths[0]  # noqa: PTH120 - as Python has it
    assert paths.index("/first") < paths.index("/second")
    assert "" not in paths
