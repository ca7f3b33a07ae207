"""One node's part of `unhang doctor`: orders in as JSON, the answer out as a parcel of lines.

Orders: `run` and `node` name the run and this node; `agent` is the module whose `examine` is
called. It receives what stands in `common`, and in `per` under the name that the node gives itself
(every node of a batch gets the same orders).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from importlib import import_module
from typing import Any

from unhang.collect.parcel import safe_node, write_parcel

AGENTS = ("facts", "gpu", "net", "ranks")


def main(orders_text: str, folder: str = "") -> int:
    """Look at this node, as ordered; returns the exit code."""
    del folder
    orders = json.loads(orders_text)
    # The launcher's name for this node (several may be one machine), else the host's.
    told = os.environ.get("UNHANG_NODE") or os.environ.get("SLURMD_NODENAME")
    name = safe_node(str(orders.get("node") or told or socket.gethostname()))
    order = {**orders.get("common", {}), **orders.get("per", {}).get(name, {})}
    answer = examine(str(orders["agent"]), order)
    part = json.dumps(answer, default=str).encode()
    write_parcel({"part.json": part}, str(orders.get("run", "run")), name, sys.stdout)
    return 0


def examine(agent: str, order: dict[str, Any]) -> dict[str, Any]:
    """What an agent sees; {"failed": …} where it fails: the other nodes matter more."""
    if agent not in AGENTS:
        return {"failed": f"there is no agent {agent!r}"}
    try:
        found: dict[str, Any] = import_module(f"unhang.doctor.agents.{agent}").examine(order)
    except Exception as error:  # noqa: BLE001 - said at home, where a user reads it
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"  # noqa: PTH119 - may lie in a zip
        return {"failed": f"{type(error).__name__}: {error} ({where})"}
    return found
