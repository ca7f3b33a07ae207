"""What nodes send is from outside: only what has the shape that the checks expect is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unhang.redact import is_address

__all__ = ["gpus_misfit", "misfit", "rows_of"]

_INTERFACE = {"name": str, "address": str, "up": bool, "mtu": int, "speed": int, "kind": str}
_RESOLVED = {"addresses": [str], "error": str}
_FACTS = {
    "settings": {str: str},
    "limits": {str: int},
    "versions": {str: str},
    "interfaces": [_INTERFACE],
    "own_name": _RESOLVED,
    "master": _RESOLVED,
    "time_ns": int,
    "dmesg": [str],
    "ptrace_scope": str,
    "core_pattern": str,
    "machine": str,
    "gpus": int,
}
_GPU = {"index": int, "memory_used": int, "pids": [int], "nvlinks": [bool], "mig": bool,
        "slowed": [str]}  # fmt: skip
_GPU_NUMBERS = ("ecc", "throttle", "temperature", "fabric", "pcie_width", "pcie_width_max",
                "persistence")  # fmt: skip
_GPUS = {"gpus": [_GPU], "without_p2p": [[int]], "acs": [str], "error": str, "vendor": str,
         "all_pids": bool, "notes": [str], "looked": bool,
         "lost": [{"index": int, "error": str}]}  # fmt: skip
_ROW = {"peer": str, "address": str, "port": int, "state": str, "says": str, "sent": int,
        "resent": int, "early": int}  # fmt: skip
_NUMBERS = ("latency_ms", "mb_per_s", "rtt_ms")


def misfit(facts: Mapping[str, Any]) -> str:
    """Where facts of a node are not as agents/facts.py gives them; "" if they are."""
    wrong = _wrong(facts, _FACTS, "facts")
    if wrong:
        return wrong
    addresses = [interface["address"] for interface in facts["interfaces"]]
    every = [a for a in addresses if a]
    every += facts["own_name"]["addresses"] + facts["master"]["addresses"]
    bad = next((text for text in every if not is_address(text)), None)
    return "" if bad is None else f"{bad[:60]!r} is no address"


def gpus_misfit(facts: Mapping[str, Any]) -> str:
    """Where answers about GPUs are not as agents/gpu.py gives them; "" if they are."""
    wrong = _wrong(facts, _GPUS, "gpus")
    if wrong:
        return wrong
    for gpu in facts["gpus"]:
        odd = [name for name in _GPU_NUMBERS if not isinstance(gpu.get(name), int | None)]
        odd += [] if isinstance(gpu.get("remapped"), list | None) else ["remapped"]
        if odd:
            return f"{odd[0]} of a GPU is no number"
    pairs = all(len(pair) == 2 for pair in facts["without_p2p"])  # noqa: PLR2004 - a pair
    return "" if pairs else "without_p2p holds no pairs"


def rows_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The connections that a node tried; rows that are none are left out."""
    rows = data.get("rows")
    return [row for row in (rows if isinstance(rows, list) else []) if _is_row(row)]


def _is_row(row: object) -> bool:
    if _wrong(row, _ROW, "row") or not isinstance(row, dict):
        return False
    return all(isinstance(row.get(name), float | int | None) for name in _NUMBERS)


def _wrong(value: object, shape: Any, where: str) -> str:  # noqa: ANN401 - a type, or types in a dict or list
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is no list"
        return next((said for item in value if (said := _wrong(item, shape[0], where))), "")
    if not isinstance(shape, dict):
        return "" if isinstance(value, shape) else f"{where} is no {shape.__name__}"
    if not isinstance(value, dict):
        return f"{where} is no object"
    if str in shape:
        pairs = [(value[key], shape[str], f"{where}.{key}") for key in value]
    else:
        pairs = [(value.get(key), shape[key], f"{where}.{key}") for key in shape]
    return next((said for item in pairs if (said := _wrong(*item))), "")
