"""What `unhang run` runs before any other `sitecustomize`: arms a process that imports torch.

It must be harmless and cheap in every Python program: it looks at the names of modules as they are
imported and does nothing else until torch.distributed comes. Then it loads `unhang.record` from
where this file lies, because the job's environment may have no unhang. The `sitecustomize` that it
hides is run as if it were not there.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import module_from_spec
from _frozen_importlib_external import PathFinder, spec_from_file_location

TYPE_CHECKING = False  # typing costs milliseconds in every Python process
if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TARGET = "torch.distributed.distributed_c10d"
HERE = os.path.dirname(os.path.abspath(__file__))
RAY_START = "/ray/_private/workers/setup_worker.py"
"""It takes the environment of a `runtime_env`, and is replaced by the worker."""


class Finder:
    """Waits for one module, lets the others find it, and acts when it has been run."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing; at the target's name, step aside and ask the others."""
        del path, target
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            act_after(spec.loader)
        return spec


def act_after(loader: Loader) -> None:
    """Arm when the loader has run its module; a failure of ours is said and goes no further."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            arm(module)
        except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
            print(f"unhang: not armed: {error!r}", file=sys.stderr)  # noqa: T201 - who else would

    loader.exec_module = exec_module  # type: ignore[method-assign]


def arm(module: ModuleType) -> None:
    """Load our own `unhang`, unless there is one already, and hand the module over."""
    if "unhang" not in sys.modules:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        load(
            spec_from_file_location(
                "unhang", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
            )
        )
    from unhang.record.arm import on_import

    on_import(module, by="hook")


def load(spec: ModuleSpec | None) -> None:
    """Import what a spec describes."""
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def keep_path(event: str, args: object) -> None:
    """Before Ray's starter becomes the worker: a PYTHONPATH of the job's own would hide us."""
    del args
    if event == "os.exec":
        path = os.environ.get("PYTHONPATH", "")
        if HERE not in path.split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [path])])


def run_hidden() -> None:
    """Run the next `sitecustomize` on the path, if there is one."""
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    load(PathFinder.find_spec("sitecustomize", rest))


if os.environ.get("UNHANG_ARM", "1") != "0":
    sys.meta_path.insert(0, Finder())
    if any(word.endswith(RAY_START) for word in getattr(sys, "orig_argv", ())[:4]):
        sys.addaudithook(keep_path)
run_hidden()
