"""The start-up hook: harmless where there is no torch, effective where there is (here, a stub)."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import unhang
from unhang.record import HOOK_DIR

SRC = Path(unhang.__file__).parent

STUB = '''
"""A stand-in for torch.distributed.distributed_c10d: what arming touches, and no more."""
class ProcessGroup:
    group_name, group_desc = "0", "default_pg"
    def rank(self): return 0
    def name(self): return "gloo"
    def allreduce(self, tensors): return Work()
class Work:
    def wait(self): return True
    def is_completed(self): return False
class _World:
    def __init__(self):
        self.pg_map, self.pg_group_ranks, self.pg_names, self.pg_backend_config = {}, {}, {}, {}
_world = _World()
def _new_process_group_helper(): return None, None
def init_process_group():
    group = ProcessGroup()
    _world.pg_map[group] = ("gloo", None)
    _world.pg_group_ranks[group] = {0: 0, 1: 1}
    return group
def destroy_process_group(): pass
def batch_isend_irecv(operations): return operations
'''
PACKAGE = """
from .distributed_c10d import *
from .distributed_c10d import init_process_group
def get_rank(): return 0
def get_world_size(): return 2
def is_available(): return True
def is_initialized(): return True
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A directory with a stub of torch."""
    package = tmp_path / "libraries" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("__version__ = '0.stub'\n")
    (package / "__init__.py").write_text(PACKAGE)
    (package / "distributed_c10d.py").write_text(STUB)
    return tmp_path / "libraries"


def python(place: Path, program: str, *path: Path, flags: tuple[str, ...] = (), **env: str) -> str:
    """Run a program with the hook first on its path; returns what it printed, on both streams."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", program],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(map(str, (HOOK_DIR, *path))),
            "UNHANG_RUNTIME_DIR": str(place / "runtime"),
            "UNHANG_JOB": "job",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def marks(place: Path) -> list[dict[str, object]]:
    """The marks that programs left."""
    return [json.loads(path.read_text()) for path in place.glob("runtime/job/marks/*.json")]


def test_a_program_without_torch_is_left_alone(tmp_path: Path) -> None:
    """Nothing of ours is imported, nothing is written."""
    program = "import sys, json; print([n for n in sys.modules if n.startswith('unhang')])"
    assert python(tmp_path, program) == "[]\n"
    assert list(tmp_path.iterdir()) == []


RPC_STUB = """
from types import SimpleNamespace
def init_rpc(name, backend=None, rank=-1, world_size=None): return name
def rpc_sync(to, func, args=None): return func(*args)
def shutdown(graceful=True): return None
api = SimpleNamespace(rpc_sync=rpc_sync, shutdown=shutdown)
"""


def test_a_worker_of_rpc_is_a_rank(libraries: Path, tmp_path: Path) -> None:
    """It is armed behind the group's module, whose functions it never calls."""
    (libraries / "torch" / "distributed" / "rpc").mkdir()
    (libraries / "torch" / "distributed" / "rpc" / "__init__.py").write_text(RPC_STUB)
    program = (
        "import torch.distributed as d; import torch.distributed.rpc as rpc, sys\n"
        "d.is_initialized = lambda: False\n"
        "print(rpc.init_rpc('ps', rank=1, world_size=3), rpc.rpc_sync('w', abs, args=(-2,)))\n"
        "print([type(f).__name__ for f in sys.meta_path].count('Finder'))\n"
        "from unhang.record.calls import rpc as ours; print(ours.counts())\n"
        "rpc.shutdown()"
    )
    assert python(tmp_path, program, libraries) == "ps 2\n0\n(1, 1)\n"
    (mark,) = marks(tmp_path)
    assert (mark["role"], mark["rank"], mark["world_size"]) == ("rank", 1, 3)
    assert (mark["failures"], mark["phase"]) == ([], "exited")


def test_the_hidden_sitecustomize_is_run(tmp_path: Path) -> None:
    """As if ours were not there, under its own name."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("word = 'theirs'\n")
    program = "import sitecustomize; print(sitecustomize.word)"
    assert python(tmp_path, program, tmp_path / "theirs") == "theirs\n"


def test_a_hidden_sitecustomize_that_fails_is_reported_by_python_as_ever(tmp_path: Path) -> None:
    """And the program runs."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    said = python(tmp_path, "print('ran')", tmp_path / "theirs")
    assert "ValueError: theirs" in said
    assert said.startswith("ran\n")


def test_importing_torch_leaves_a_mark_without_a_rank(libraries: Path, tmp_path: Path) -> None:
    """RANK is inherited by everybody: it is a hint and no more."""
    said = python(tmp_path, "import torch.distributed", libraries, RANK="5")
    assert said == ""
    (mark,) = marks(tmp_path)
    assert (mark["rank"], mark["env_rank"], mark["role"], mark["phase"]) == (
        None, 5, "unknown", "imported",
    )  # fmt: skip
    assert (mark["armed_by"], mark["torch"], mark["failures"]) == ("hook", "0.stub", [])


def test_a_process_that_inits_becomes_a_rank(libraries: Path, tmp_path: Path) -> None:
    """However it imported the function."""
    program = "from torch.distributed import init_process_group as begin; begin()"
    assert python(tmp_path, program, libraries) == ""
    (mark,) = marks(tmp_path)
    assert (mark["rank"], mark["world_size"], mark["role"], mark["phase"]) == (
        0, 2, "rank", "exited",
    )  # fmt: skip
    assert (mark["backend"], mark["groups"], mark["failures"]) == ("gloo", 1, [])


def test_switched_off(libraries: Path, tmp_path: Path) -> None:
    """UNHANG_ARM=0 leaves torch as it is."""
    program = "import sys, torch.distributed; print('unhang' in sys.modules)"
    assert python(tmp_path, program, libraries, UNHANG_ARM="0") == "False\n"
    assert marks(tmp_path) == []


@pytest.mark.parametrize("flag", ["-E", "-I", "-S"])
def test_what_goes_past_the_hook(flag: str, tmp_path: Path) -> None:
    """These interpreters do not run it: `unhang run` has to say so."""
    program = "import sys; print([f for f in sys.meta_path if type(f).__name__ == 'Finder'])"
    assert python(tmp_path, program, flags=(flag,)) == "[]\n"


def test_an_error_of_ours_is_one_line(libraries: Path, tmp_path: Path) -> None:
    """The import of torch succeeds all the same."""
    (libraries / "unhang").mkdir()
    (libraries / "unhang" / "__init__.py").write_text("")
    program = "import unhang, torch.distributed; print('ran')"
    said = python(tmp_path, program, libraries)
    assert (
        said == "ran\nunhang: not armed: ModuleNotFoundError(\"No module named 'unhang.record'\")\n"
    )


def test_a_failure_while_arming_is_in_the_mark(libraries: Path, tmp_path: Path) -> None:
    """A torch that has changed: the job goes on, and the mark says what is missing."""
    stub = libraries / "torch" / "distributed" / "distributed_c10d.py"
    stub.write_text(stub.read_text().replace("def destroy_process_group", "def renamed"))
    program = "import torch.distributed as dist; dist.init_process_group(); print('ran')"
    assert python(tmp_path, program, libraries) == "ran\n"
    (mark,) = marks(tmp_path)
    assert mark["failures"] == ["this torch has no destroy_process_group"]
    assert mark["rank"] == 0


def test_a_ray_worker_keeps_the_hook_in_a_path_of_its_own(tmp_path: Path) -> None:
    """Its starter sets the PYTHONPATH of a runtime_env; another program that does is obeyed."""
    starter = tmp_path / "ray" / "_private" / "workers" / "setup_worker.py"
    starter.parent.mkdir(parents=True)
    other = tmp_path / "other.py"
    for program in (starter, other):
        program.write_text(
            "import os, sys\n"
            "os.environ['PYTHONPATH'] = '/opt/src'\n"
            "show = 'import os; print(os.environ[\"PYTHONPATH\"])'\n"
            "os.execvp(sys.executable, [sys.executable, '-c', show])\n"
        )
    said = [
        subprocess.run(
            [sys.executable, str(program)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK_DIR)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for program in (starter, other)
    ]
    assert said == [f"{HOOK_DIR}:/opt/src", "/opt/src"]


@pytest.mark.parametrize("hook", sorted(SRC.glob("*/hook/sitecustomize.py")), ids=str)
def test_older_pythons_run_the_hidden_one_alone(hook: Path, tmp_path: Path) -> None:
    """A job may start Python 2: no word or file of ours, and its own sitecustomize as ever."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    installed = tmp_path / "installed"
    installed.mkdir()
    hook = Path(shutil.copy(hook, installed))
    (installed / "sitecustomize.pyc").write_bytes(b"as Python 2 leaves it")
    program = (
        "import sys, types\n"
        "sys.version_info, sys.path = (3, 6), [sys.argv[2]]\n"
        "module = sys.modules['sitecustomize'] = types.ModuleType('sitecustomize')\n"
        "module.__file__ = sys.argv[1]\n"
        "import os\n"
        "exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), vars(module))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(hook), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("theirs\n", "")
    assert [path.name for path in installed.iterdir()] == ["sitecustomize.py"]
    parsed = ast.parse(hook.read_text())
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr)
    assert not [node for node in ast.walk(parsed) if isinstance(node, new)]
