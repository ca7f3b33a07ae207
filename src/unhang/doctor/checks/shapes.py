"""What nodes send is from outside: only what has the shape that the checks expect is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from unhang.incoming import fit, fitting
from unhang.redact import is_address


class _Interface(TypedDict):
    name: str
    address: str
    up: bool
    mtu: int
    speed: int
    kind: str


class _Resolved(TypedDict):
    addresses: list[str]
    error: str


class _Route(TypedDict):
    to: str
    source: str


class _Facts(TypedDict):
    """What agents/facts.py gives."""

    settings: dict[str, str]
    limits: dict[str, int]
    versions: dict[str, str]
    interfaces: list[_Interface]
    own_name: _Resolved
    own_address: str
    master: _Resolved
    route: _Route
    time_ns: int
    dmesg: list[str]
    ptrace_scope: str
    core_pattern: str
    machine: str
    gpus: int


class _Gpu(TypedDict):
    index: int
    memory_used: int
    pids: list[int]
    nvlinks: list[bool]
    mig: bool
    slowed: list[str]
    ecc: int | None
    throttle: int | None
    temperature: int | None
    fabric: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    persistence: int | None
    remapped: list[Any] | None


class _Lost(TypedDict):
    index: int
    error: str


class _Gpus(TypedDict):
    """What agents/gpu.py gives."""

    gpus: list[_Gpu]
    without_p2p: list[tuple[int, int]]
    acs: list[str]
    error: str
    vendor: str
    all_pids: bool
    notes: list[str]
    looked: bool
    lost: list[_Lost]


class _Measured(TypedDict, total=False):
    latency_ms: float | None
    mb_per_s: float | None
    rtt_ms: float | None
    ahead_ms: float | None
    passes: int | None
    source: str


class _Row(_Measured):
    """A connection that agents/net.py tried."""

    peer: str
    address: str
    port: int
    state: str
    says: str
    sent: int
    resent: int
    early: int


def misfit(facts: Mapping[str, Any]) -> str:
    """Where facts of a node are not as agents/facts.py gives them; "" if they are."""
    wrong = _misfit(facts, _Facts)
    if wrong:
        return wrong
    addresses = [interface["address"] for interface in facts["interfaces"]]
    every = [a for a in addresses if a]
    every += facts["own_name"]["addresses"] + facts["master"]["addresses"]
    bad = next((text for text in every if not is_address(text)), None)
    return "" if bad is None else f"{bad[:60]!r} is no address"


def gpus_misfit(facts: Mapping[str, Any]) -> str:
    """Where answers about GPUs are not as agents/gpu.py gives them; "" if they are."""
    return _misfit(facts, _Gpus)


def _misfit(value: Mapping[str, Any], shape: type) -> str:
    try:
        fit(value, shape)
    except ValueError as why:
        return str(why)
    return ""


def rows_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The connections that a node tried; rows that are none are left out."""
    return [*fitting(data.get("rows"), _Row)]
