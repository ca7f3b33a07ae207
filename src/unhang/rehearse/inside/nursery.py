"""Start the ranks of a rehearsal: torch is imported once, and every rank is a fork of that.

Run as a program by the user's Python: nursery.py PLAN, where PLAN is a JSON file. It says on stdout
how each rank ended. nursery.py PLAN again WORD… is one rank alone: what a script gets that
starts itself again. It refuses to know what ranks do.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from typing import Any


def _find_package() -> None:
    """Let `unhang` be imported from where this file lies, and nothing else from there."""
    from importlib.util import module_from_spec, spec_from_file_location

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    spec = spec_from_file_location(
        "unhang",
        os.path.join(root, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[root],
    )
    assert spec is not None  # noqa: S101 - a file that is there
    assert spec.loader is not None  # noqa: S101
    module = module_from_spec(spec)
    sys.modules["unhang"] = module
    spec.loader.exec_module(module)


def main(path: str) -> None:
    """Import torch, fork the ranks, and wait for all of them."""
    plan = _planned(path)
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        print(json.dumps({"failed": f"torch cannot be imported: {error}"}), flush=True)
        return
    if not torch.distributed.is_available():
        print(json.dumps({"failed": "this torch is built without torch.distributed"}), flush=True)
        return
    torch.set_num_threads(1)
    import torch._dynamo  # every optimizer and DDP imports it: 5 s and 90 MB a rank, if not here
    import torch.distributed.device_mesh
    import torch.distributed.fsdp
    import torch.nn.parallel

    print(json.dumps({"torch": torch.__version__}), flush=True)
    gc.freeze()  # what is imported stays shared: no rank's collector writes to it
    ranks = {_fork(plan, rank): rank for rank in plan["run"]}
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            code = os.waitstatus_to_exitcode(status)
            told = {"rank": ranks.pop(pid), "pid": pid, "code": code if code >= 0 else 128 - code}
            print(json.dumps(told), flush=True)


def again(path: str, words: list[str]) -> int:
    """Be a rank whose script another rank has started; its variables say which it is."""
    plan = _planned(path) | {"words": words}
    import torch

    torch.set_num_threads(1)
    return _be_rank(plan, int(os.environ.get("LOCAL_RANK", "0")))


def _planned(path: str) -> dict[str, Any]:
    """The plan, once our package and the user's other texts can be imported."""
    with open(path) as stream:  # noqa: PTH123 - pathlib is not needed for anything else
        plan: dict[str, Any] = json.load(stream)
    _find_package()
    _lay_over(plan["instead"])
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    return plan | {"path": path}


def _lay_over(instead: dict[str, str]) -> None:
    """Let Python read other text in the place of some files of the user's."""
    if not instead:
        return
    import io
    from importlib.machinery import SourceFileLoader

    real, stats = io.open_code, SourceFileLoader.path_stats

    def open_code(path: str) -> Any:  # noqa: ANN401 - a stream of bytes, as from io.open_code
        other = instead.get(os.path.abspath(path))  # noqa: PTH100 - as text
        return real(path) if other is None else io.BytesIO(other.encode())

    def path_stats(self: SourceFileLoader, path: str) -> Any:  # noqa: ANN401
        if os.path.abspath(path) in instead:  # noqa: PTH100
            raise OSError("another text stands for it: what is cached of the file is not of that")
        return stats(self, path)

    for module in (io, sys.modules["_io"]):  # `runpy` reads by one, imports by the other
        setattr(module, "open_code", open_code)  # noqa: B010 - typed as a function
    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def _fork(plan: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _be_rank(plan, rank)
    except BaseException:  # noqa: BLE001 - this process is the rank: no caller stands above
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _be_rank(plan: dict[str, Any], rank: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = os.open(f"{plan['logs']}/rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    stacks = open(f"{plan['stacks']}/rank_{rank}.txt", "w")  # noqa: PTH123, SIM115 - open to the end
    faulthandler.register(signal.SIGUSR2, file=stacks)
    if not plan["alone"]:
        os.environ.update(_environ(plan, rank))
    from unhang.rehearse.inside.rank import run

    return run(plan)


def _environ(plan: dict[str, Any], rank: int) -> dict[str, str]:
    """What torchrun tells a rank."""
    ranks, nodes = plan["ranks"], plan["nodes"]
    per_node = ranks // nodes
    told = {
        "RANK": rank, "LOCAL_RANK": rank % per_node, "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": per_node, "GROUP_RANK": rank // per_node, "GROUP_WORLD_SIZE": nodes,
        "NODE_RANK": rank // per_node, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": ranks,
        "ROLE_NAME": "default", "MASTER_ADDR": "localhost", "MASTER_PORT": 29500,
        "TORCHELASTIC_RUN_ID": "rehearsal", "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0, "OMP_NUM_THREADS": 1,
    }  # fmt: skip
    return {name: str(value) for name, value in told.items()}


if __name__ == "__main__":
    if len(sys.argv) > 2:  # noqa: PLR2004 - the plan is the only word otherwise
        sys.exit(again(sys.argv[1], sys.argv[3:]))
    main(sys.argv[1])
