"""Python processes of ours, isolated from the working directory: one way to start them all.

Python puts the working directory (`-m`, `-c`), the script's (a file) or PYTHONPATH before its own
library, so that an `argparse.py` which lies in a stranger's case would run with our rights, and the
user's own `html.py` would stand in for Python's. So what we start runs as

    python -I …/unhang/isolated.py FOLDERS MODULE WORDS…

which is this file: nothing is imported before the paths are safe, then the module runs as by `-m`.
FOLDERS is where the parent finds packages beyond the interpreter's own (an editable checkout, the
folders of PYTHONPATH, the user's site); they come last and hide nothing.
"""

# ruff: noqa: PTH100, PTH109, PTH118, PTH120 - pathlib is slow to import

import os
import sys

_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

STANDARD_FIRST = (
    "import os, sys; own = os.path.dirname(os.__file__); "
    "sys.path = sorted(filter(None, sys.path), "
    "key=lambda path: path not in (own, os.path.join(own, 'lib-dynload')))\n"
)
"""How a program for `python -c` begins that runs on a node, where unhang may not be installed.

The working directory is no place of modules, and nothing hides the standard library; other folders
keep their order, for torch may be found through them.
"""


def python_command(module: str, *words: str) -> list[str]:
    """The command line that runs a module of ours, as `python -m` would but isolated."""
    folders = os.pathsep.join(path for path in own_paths() if path not in _installed())
    how = ["-I", "-X", f"utf8={sys.flags.utf8_mode}", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *how, os.path.abspath(__file__), folders, module, *words]


def isolate() -> None:
    """Let this process, which is ours, import from nowhere that a stranger may have written to."""
    sys.path[:] = own_paths()


def own_paths() -> list[str]:
    """`sys.path` without the working directory and the script's; what PYTHONPATH names comes last.

    The folder that this package itself came from stays: its modules run anyway.
    """
    here = _working_directory()
    named = [os.path.abspath(path) for path in _python_path()]
    before = sys.path[1:] if _begins_with_script(here) else sys.path
    first = [path for path in before if path and path not in named]
    last = [path for path in before if path in named and path != here]
    return list(dict.fromkeys([*first, *last, _PACKAGES]))


def _python_path() -> list[str]:
    if sys.flags.ignore_environment:
        return []
    named = os.environ.get("PYTHONPATH")
    return named.split(os.pathsep) if named else []


def _begins_with_script(here: str) -> bool:
    """Whether Python put the folder of the script, or the working directory, before its own."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False) or not sys.path:
        return False
    script = os.path.dirname(os.path.realpath(sys.argv[0])) if sys.argv and sys.argv[0] else here
    return sys.path[0] in ("", here, script)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # It was removed.
        return ""


def _installed() -> set[str]:
    """Where an isolated interpreter looks by itself."""
    site = sys.modules.get("site")
    library = os.path.dirname(os.__file__)
    return {
        library,
        os.path.join(library, "lib-dynload"),
        *(site.getsitepackages() if site else ()),
    }


def _run(folders: str, module: str, words: list[str]) -> None:
    """Run a module of the package in which this file lies, whichever else is installed."""
    sys.path.insert(0, _PACKAGES)
    import unhang  # noqa: F401 - it imports nothing of others, and brings its own modules

    sys.path.pop(0)
    known = set(sys.path)
    sys.path += [path for path in folders.split(os.pathsep) if path and path not in known]
    sys.argv[:] = [module, *words]
    from runpy import run_module

    run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], sys.argv[3:])
