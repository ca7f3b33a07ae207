"""What `unhang trace` puts before any other `sitecustomize`: starts the call trace.

It loads the agent from where this file lies, because the traced program's environment may have no
unhang, and runs the `sitecustomize` that it hides. A failure of ours is said and goes no further.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location


def run(name: str, spec: object) -> None:
    """Import a module from its spec under a name."""
    if spec is None or spec.loader is None:  # type: ignore[attr-defined]  # a ModuleSpec; typing costs time here
        return
    module = module_from_spec(spec)  # type: ignore[arg-type]  # see above
    sys.modules[name] = module
    spec.loader.exec_module(module)  # type: ignore[attr-defined]  # see above


HERE = os.path.dirname(os.path.abspath(__file__))
rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
run("sitecustomize", PathFinder.find_spec("sitecustomize", rest))
if os.environ.get("UNHANG_TRACE_DIR"):
    try:
        agent = os.path.join(os.path.dirname(HERE), "agent.py")
        run("_unhang_trace", spec_from_file_location("_unhang_trace", agent))
        sys.modules["_unhang_trace"].start()
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the program
        print(f"unhang: not traced: {error!r}", file=sys.stderr)  # noqa: T201 - who else would
