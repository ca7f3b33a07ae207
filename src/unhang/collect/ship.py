"""The collector that travels: this package's own modules as one zip file, and how it is started.

Nodes need nothing but a shell and Python 3.10. The zip goes in through standard input (or, for
launchers that have none, as an argument), is unpacked nowhere, and is gone when the collector ends.
py-spy, which is a program of its own, travels in it where it is found here; the node unpacks that.
"""

from __future__ import annotations

import ast
import base64
import gzip
import io
import json
import platform
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import unhang
from unhang.collect.launchers import Program
from unhang.collect.samplers import find_program
from unhang.isolated import STANDARD_FIRST

MODULES = (
    "__init__.py", "_version.py", "activity/__init__.py", "activity/looks.py", "activity/peers.py",
    "bounds.py",
    "isolated.py", "model.py", "errors.py", "wording.py", "room.py", "surroundings.py",
    "collect/__init__.py", "collect/asking.py", "collect/node", "collect/parcel.py",
    "collect/permission.py", "collect/processes.py", "collect/ranks.py", "collect/samplers.py",
    "collect/recorders.py", "collect/sampling.py", "rankenv.py", "rasclient.py",
    "record/__init__.py", "record/contact/__init__.py", "record/contact/beatlayout.py",
    "record/contact/client.py", "record/contact/heartbeat.py", "record/contact/latest.py",
    "record/contact/marks.py", "record/contact/runtime_dir.py", "record/contact/sockets.py",
    "record/namespaces.py", "record/statement.py", "regular.py", "stacks", "telltale",
)  # fmt: skip
"""Everything that the node's side imports: the standard library does the rest (a test checks)."""

_NOT_THERE = ("stacks/tree",)
"""It needs numpy."""
_PY_SPY = "bin/py-spy-{machine}"
_LARGEST_PROGRAM = 16 << 20

_START = """\
import gzip, shutil, tempfile
folder = tempfile.mkdtemp(prefix="unhang-")
try:
    path = os.path.join(folder, "collector.zip")
    given = sys.stdin.buffer
    given = gzip.open(given) if given.peek(2)[:2] == bytes((31, 139)) else given
    with open(path, "wb") as file:
        shutil.copyfileobj(given, file)
    sys.path.insert(0, path)
    sys.dont_write_bytecode = True
    from {main} import main
    code = main(sys.argv[1], folder)
finally:
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(code)
"""
_INSTALLED = "from {main} import main; sys.exit(main(sys.argv[1]))"
_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 10))"
_NONE_FOUND = "no Python 3.10 or newer was found on this node; name one with --python"


@dataclass(frozen=True, slots=True)
class Shipment:
    """What travels.

    Attributes:
        main: Module whose `main(orders, folder)` runs on the node.
        modules: What it imports, as paths in this package.
        py_spy: Whether py-spy goes along where the launcher passes input on.
    """

    main: str
    modules: tuple[str, ...]
    py_spy: bool = False


COLLECTOR = Shipment("unhang.collect.node.main", MODULES, py_spy=True)


def make_program(
    orders: Mapping[str, object], python: str, *, ship: bool, shipment: Shipment = COLLECTOR
) -> Program:
    """Put together what runs on the nodes.

    Args:
        orders: What to do; see `unhang.collect.node.main` for the collector's.
        python: Interpreter to try first; "" for those that are usual.
        ship: Send the modules along; else unhang must be installed on the nodes.
        shipment: Which modules, and where they begin.
    """
    start = STANDARD_FIRST + (_START if ship else _INSTALLED).replace("{main}", shipment.main)
    words = [start, json.dumps(orders, separators=(",", ":"))]
    usual = ["python3", *(f"python3.{minor}" for minor in range(14, 9, -1)), "python"]
    tries = " ".join(shlex.quote(name) for name in ([python] if python else usual))
    run = " ".join(shlex.quote(word) for word in words)
    script = (
        f"for p in {tries}; do "
        f'if "$p" -c {shlex.quote(_NEW_ENOUGH)} </dev/null 2>/dev/null; '
        f'then {{here}}"$p" -c {run}; exit $?; fi; done; '
        f"echo {shlex.quote(_NONE_FOUND)} >&2; exit 127"
    )
    plain = script.replace("{here}", "")
    if not ship:
        return Program(plain, b"", plain)
    modules = shipment.modules
    stored = collector_zip(modules, with_py_spy=False, method=zipfile.ZIP_STORED)
    small = base64.b64encode(gzip.compress(stored, mtime=0)).decode()  # as one: half as long
    inline = script.replace("{here}", f"printf %s {small} | base64 -d | ")
    return Program(plain, collector_zip(modules, with_py_spy=shipment.py_spy), inline)


@cache
def collector_zip(
    modules: tuple[str, ...] = MODULES, *, with_py_spy: bool, method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """Modules of this package, by default the collector's, as a zip file."""
    root = Path(unhang.__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=9) as archive:
        for module in modules:
            path = root / module
            files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
            for file in files:
                if not any((root / name) in (file, *file.parents) for name in _NOT_THERE):
                    bare = _bare(file.read_text(encoding="utf-8"))
                    archive.writestr(f"unhang/{file.relative_to(root)}", bare, compresslevel=9)
        program = find_program("py-spy") if with_py_spy else ""
        if program and Path(program).stat().st_size <= _LARGEST_PROGRAM:
            archive.write(program, _PY_SPY.format(machine=platform.machine()), compresslevel=1)
    return buffer.getvalue()


def _bare(source: str) -> str:
    """A module without what is for readers, every line where it was."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", ())
        texts = [each for each in body if _is_text(each)] if isinstance(body, list) else []
        for text in texts if texts and len(texts) < len(body) else ():
            last = text.end_lineno or text.lineno
            lines[text.lineno - 1 : last] = [""] * (last - text.lineno + 1)
    return "\n".join("" if line.lstrip().startswith("#") else line for line in lines)


def _is_text(node: ast.stmt) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)
