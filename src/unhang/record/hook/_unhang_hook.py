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
    from collections.abc import Callable
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TARGET = "torch.distributed.distributed_c10d"
RPC = "torch.distributed.rpc"
HERE = os.path.dirname(os.path.abspath(__file__))
RAY_START = "/ray/_private/workers/setup_worker.py"
"""It takes the environment of a `runtime_env`, and is replaced by the worker."""


class Finder:
    """Waits for two modules, lets the others find them, and acts when each has been run."""

    def __init__(self) -> None:
        self.wanted = {TARGET: arm, RPC: arm_rpc}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing; at a target's name, step aside and ask the others."""
        del path, target
        act = self.wanted.pop(name, None)
        if act is None:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            act_after(spec.loader, act)
        if self.wanted:
            sys.meta_path.insert(0, self)
        return spec


def act_after(loader: Loader, act: Callable[[ModuleType], None]) -> None:
    """Arm when the loader has run its module; a failure of ours is said and goes no further."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            act(module)
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


def arm_rpc(module: ModuleType) -> None:
    """Hand over torch's RPC, which comes behind what has armed the process."""
    arming = sys.modules.get("unhang.record.arm")
    if arming is not None:
        arming.on_rpc(module)


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
