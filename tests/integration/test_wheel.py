"""The wheel as a user gets it: installed into an environment of its own, without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from unhang import __version__

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "unhang"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that must not find this checkout."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    place = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--outdir", place, ROOT, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def unhang(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that the wheel installs, in a fresh environment."""
    place = tmp_path_factory.mktemp("environment")
    made = run(sys.executable, "-m", "venv", place, cwd=place)
    assert made.returncode == 0, made.stderr
    python = place / "bin" / "python"
    done = run(python, "-m", "pip", "install", "-q", "--no-compile", wheel, cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "bin" / "unhang"


def test_everything_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    """Scripts, SQL, schema, pages, the type marker: no file of the package stays behind."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("unhang/")}
    files = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert files <= packed


@pytest.mark.debian("cargo")
def test_the_decoder_comes_with_it(wheel: Path, unhang: Path, tmp_path: Path) -> None:
    """For this platform and every Python, built from what it is called by."""
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    what = "from unhang.ingest.native.library import found; print(type(found()).__name__)"
    found = run(unhang.with_name("python"), "-c", what, cwd=tmp_path)
    assert found.stdout == "Library\n", found.stderr


def test_it_starts_and_has_no_torch(unhang: Path, tmp_path: Path) -> None:
    """The version is this checkout's; what runs is not this checkout; torch is not there."""
    assert run(unhang, "--version", cwd=tmp_path).stdout == f"unhang {__version__}\n"
    where = "import unhang, importlib.util as u; print(unhang.__file__, u.find_spec('torch'))"
    found = run(unhang.with_name("python"), "-c", where, cwd=tmp_path).stdout.split()
    assert Path(found[0]).is_relative_to(unhang.parents[1])
    assert found[1] == "None"


def test_it_diagnoses_a_capture(unhang: Path, tmp_path: Path) -> None:
    """The main job works from the wheel alone; SQL says which extra it needs."""
    capture = tmp_path / "capture"
    shutil.copytree(ROOT / "examples" / "never-joined", capture)
    done = run(unhang, "diagnose", "capture", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "rank 2" in done.stdout
    query = "SELECT count(*) AS stuck FROM stuck_calls"
    for words in (("query", "capture", query), ("diagnose", "capture", "--db", "out.duckdb")):
        asked = run(unhang, *words, cwd=tmp_path)
        assert (asked.returncode, asked.stdout) == (2, "")
        assert "pip install 'unhang[sql]'" in asked.stderr


def test_the_demo_replays_where_there_is_no_torch(unhang: Path, tmp_path: Path) -> None:
    """It says so, and shows the verdict on the captured hang that travels with it."""
    done = run(unhang, "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch is not installed here")
    assert "culprit    rank 2" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_lab_stays_at_home(wheel: Path) -> None:
    """The wheel has the product alone: no simulator, no live faults, no scores."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"unhang"}
    assert not [name for name in names if "lab" in Path(name).parts]
