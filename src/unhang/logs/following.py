"""Which errors are what one gets when a peer has gone: they never are the beginning.

Known by the table of rules, by words of lost connections, or by an error of communication that was
raised inside torch.distributed itself. It refuses to guess about anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from unhang.logs.lines.anchors import wanted_by
from unhang.model import Frame
from unhang.stacks.ownership import is_recorders, under

_OF_COMMUNICATION = re.compile(
    r"^(RuntimeError|DistBackendError|DistNetworkError|DistStoreError|DistError"
    r"|ConnectionError|ConnectionResetError|BrokenPipeError|TimeoutError|SystemError)\b"
)
_REFUSED = "[enforce fail at"
"""Gloo itself found something wrong with the call."""
_OF_PYTHON = re.compile(r"^(BrokenPipeError|Connection\w*Error|OSError|TimeoutError|socket\.)\b")
_LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|Timed out waiting \d+ ?ms|Socket [Tt]imeout"
)


def follows(error: str, frames: Sequence[Frame]) -> bool:
    """Whether an exception is what one gets when a peer has gone, or was ordered to end.

    Args:
        error: "RuntimeError: what it says".
        frames: Where it was raised, innermost first; may be empty.
    """
    own = [frame.file for frame in frames if not is_recorders(frame)]
    if own and _OF_PYTHON.match(error) and not under(own[0], "torch/"):
        return False  # another connection, or a pipe, of the program
    rule = next((rule for rule in wanted_by(error) if rule.search(error)), None)
    if (rule is not None and rule.role == "consequence") or _LOST_PEER.search(error):
        return True
    inside = bool(own) and under(own[0], "torch/distributed/")
    return inside and _OF_COMMUNICATION.match(error) is not None and _REFUSED not in error
