from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import unhang
from unhang.cli.main import COMMANDS, build_parser, main

ROOT = Path(__file__).parents[2]
CLI = (ROOT / "docs" / "cli.md").read_text()


def test_made_parts_are_up_to_date() -> None:
    """Options, tables, columns and kinds are those of the program; so are pages of findings."""
    pages = ["README.md", "hang.svg", "cli.md", "tables.md", "collect.md", "kinds.json"]
    codes = (ROOT / "docs" / "codes").glob("*.md")
    pages += [page.name for page in codes if "<!-- made of the file" in page.read_text()]
    assert pages[-1].startswith("UH")
    command = [sys.executable, "docs/refresh.py", "--check", *pages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run: python docs/refresh.py\n{done.stdout}{done.stderr}"


def test_what_every_command_reads_and_sends_is_said() -> None:
    """Each stands in the first column of the table, and each extra in that of the extras."""
    page = (ROOT / "docs" / "install.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    told = {word for code in re.findall(r"`([^`]+)`", rows) for word in code.split()[:1]}
    assert [entry.name for entry in COMMANDS if entry.name not in told] == []
    project = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"\[project.optional-dependencies\]\n(.*?)\n\[", project, re.DOTALL)
    names = re.findall(r"^([a-z]+) = ", extras, re.MULTILINE)
    assert [name for name in names if name not in told] == []


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda e: e.name)
def test_every_command_is_documented_and_helps(
    entry: unhang.cli.main.CommandEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    """A section in docs/cli.md, a description, and examples that begin with the command."""
    section = re.search(
        rf"^## unhang {entry.name}\n(.*?)(?=^## |\Z)", CLI, re.MULTILINE | re.DOTALL
    )
    assert section is not None
    with pytest.raises(SystemExit) as ended:
        main([entry.name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"unhang {entry.name}" in text.split("examples:")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script for each shell names all commands, with their options."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [entry.name for entry in COMMANDS if entry.name not in script] == []
    assert "world-size" in script


def test_the_bash_script_completes() -> None:
    """A real bash completes a command, an option and a choice."""
    script = subprocess.run(
        [sys.executable, "-m", "unhang", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = {"unhang dia": "diagnose", "unhang diagnose --wo": "--world-size"}
    for line, wanted in words.items():
        parts = line.split()
        state = f"COMP_WORDS=({line}); COMP_CWORD={len(parts) - 1}; _shtab_unhang"
        ask = f"{script}\n{state}; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [wanted]


def test_every_example_is_a_command_line_that_parses() -> None:
    """Nobody is shown a command that the parser refuses."""
    examples = re.findall(r"^unhang .+$", CLI, re.MULTILINE)
    assert len(examples) > len(COMMANDS)
    for page in (ROOT / "docs" / "codes").glob("*.md"):
        examples += re.findall(r"^(?:    )?\$ (unhang [^;\n]+)$", page.read_text(), re.MULTILINE)
    parser = build_parser()
    for line in examples:
        words = shlex.split(line.split(" > ")[0].split(" | ")[0], comments=True)[1:]
        assert _parses(parser, words), line


def _parses(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        return ended.code == 0
    return True


def test_the_public_names_are_documented() -> None:
    """docs/library.md speaks of everything in `unhang.__all__`."""
    text = (ROOT / "docs" / "library.md").read_text()
    assert [name for name in unhang.__all__ if f"unhang.{name}" not in text] == []


LIGHT = """
import sys
before = set(sys.modules)
import unhang
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
unhang.UnhangError
print("numpy" in sys.modules)
unhang.Case
print("numpy" in sys.modules)
"""


def test_importing_unhang_imports_next_to_nothing() -> None:
    """It runs inside somebody's job: no numpy, rich, duckdb or torch until a name needs it."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    first, error, case = done.stdout.splitlines()
    assert set(first.split()) <= {"unhang", *sys.stdlib_module_names}
    assert (error, case) == ("False", "True")


def test_the_version_is_printed_without_the_parser() -> None:
    """`unhang --version` imports no argparse formatter, no command, no library."""
    code = "import sys; sys.argv = ['unhang', '--version']; import runpy\n"
    code += "try: runpy.run_module('unhang', run_name='__main__')\nexcept SystemExit: pass\n"
    code += "print(*[n for n in ('numpy', 'rich', 'duckdb', 'unhang.report') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"unhang {unhang.__version__}", ""]


def test_lazy_names_are_the_real_ones() -> None:
    """What the package gives is what its modules define; a wrong name is an AttributeError."""
    from unhang import analysis, ingest

    assert unhang.load is ingest.load
    assert unhang.diagnose is analysis.diagnose
    assert set(unhang.__all__) <= set(dir(unhang))
    with pytest.raises(AttributeError, match="nothing"):
        unhang.nothing  # noqa: B018 - asking is the test


def test_the_reasoning_names_files_that_are_there() -> None:
    """docs/how-it-works.md names the file of each step, as it is called in analysis/."""
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    analysis = ROOT / "src" / "unhang" / "analysis"
    places = (analysis, analysis / "divergence", ROOT / "src")
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
    steps = re.findall(r"^\d+\. \*\*[^*]+\*\*([^:]*)", text, re.MULTILINE)
    assert len(steps) > len(named) // 3


MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATH_IN_MAP = re.compile(r"(?<![\w/.<-])([a-z_]+(?:/[a-z_]+)*(?:\.py|/))")


def test_the_map_of_the_house_names_what_is_there() -> None:
    """Every module and folder that ARCHITECTURE.md names exists, by its path or by its end."""
    named = {name.rstrip("/") for name in PATH_IN_MAP.findall(MAP)}
    named |= set(re.findall(r"`((?:tests|docs|lab|native)/[\w/.]+)`", MAP))
    beside = ("lab", "tests", "docs", "native")
    there = [path for top in ("src", *beside) for path in (ROOT / top).rglob("*")]
    ends = {str(path.relative_to(ROOT)) for path in [*there, *(ROOT / top for top in beside)]}
    missing = {n for n in named if not any(e == n or e.endswith(f"/{n}") for e in ends)}
    assert missing == set()


def test_the_map_of_the_house_is_read_in_five_minutes() -> None:
    """It stays under 150 lines: what is added takes the place of something."""
    assert len(MAP.splitlines()) < 150


def test_the_map_of_the_house_leaves_nothing_out() -> None:
    """Every module and package at the top of the package stands on a floor of ARCHITECTURE.md."""
    top = (ROOT / "src" / "unhang").iterdir()
    names = {f"{path.name}/" if path.is_dir() else path.name for path in top}
    own = {name for name in names if name.endswith((".py", "/")) and name[0] not in "_."}
    assert {name for name in own if name not in MAP} == set()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z]+_[a-z_]+|[A-Z][A-Za-z]+)`", MAP))))
def test_the_map_of_the_house_names_what_is_defined(name: str) -> None:
    """Functions, classes and tables that ARCHITECTURE.md speaks of."""
    pattern = re.compile(rf"^(?:def|class) {name}\b|^{name}(?::| =)", re.MULTILINE)
    files = (ROOT / "src").rglob("*.py")
    assert any(pattern.search(path.read_text(encoding="utf-8")) for path in files)


PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.stem != "cli")
PROMPT = re.compile(r"^(?:    )?(?:\$ )?(unhang [^#\n]*[^#\s\\])", re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda path: path.stem)
def test_commands_in_pages_for_users_parse(page: Path) -> None:
    """Every line of a shell block that begins with our name is a command line that is accepted."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|console|)\n(.*?)```", text, re.DOTALL)
    for line in (line for block in blocks for line in PROMPT.findall(block)):
        own = re.split(r" [|>&;] ?", line, maxsplit=1)[0]
        if "…" not in own and not own.startswith("unhang:"):
            words = shlex.split(own)[1:]
            build_parser(only=words[0]).parse_args(words)


def test_batch_scripts_and_manifests_of_the_recipes_are_whole() -> None:
    """The shell takes each script, and our own part of a manifest is a command that is accepted."""
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        done = subprocess.run(
            ["bash", "-n"], input=block, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(block, "recipes.md", "exec")
    (told,) = re.findall(r"command: (\[.*\])", text)
    words = json.loads(told)
    assert words[0] == "unhang"
    build_parser(only=words[1]).parse_args(words[1:])
