"""unhang: why a distributed PyTorch job is stuck, and what to do next.

    >>> import unhang
    >>> report = unhang.diagnose(unhang.load("dumps/"))    # doctest: +SKIP
    >>> report.summary, report.culprits                    # doctest: +SKIP

Names are imported when first used, so that `import unhang` stays light inside a user's job.
Nothing but ours is imported here, not even of the standard library: `python -m unhang` comes this
way before it can leave the working directory out (`unhang.isolated`).
"""

from unhang._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from unhang.analysis import diagnose
    from unhang.case import Case
    from unhang.errors import UnhangError
    from unhang.ingest import load
    from unhang.pausing import breakpoint_on_rank as breakpoint  # noqa: A004, F401 - unhang.breakpoint
    from unhang.printing import print_atomic as print  # noqa: A004, F401 - unhang.print
    from unhang.record.arm import arm, dump, dump_bytes, idle, phase, step
    from unhang.report import Report

# `breakpoint` and `print` are public too, but a star import must not hide the built-in ones.
__all__ = [
    "Case",
    "Report",
    "UnhangError",
    "__version__",
    "arm",
    "diagnose",
    "dump",
    "dump_bytes",
    "idle",
    "load",
    "phase",
    "step",
]

_HOME = {
    "Case": "unhang.case",
    "Report": "unhang.report",
    "UnhangError": "unhang.errors",
    "arm": "unhang.record.arm",
    "breakpoint": "unhang.pausing",
    "diagnose": "unhang.analysis",
    "dump": "unhang.record.arm",
    "dump_bytes": "unhang.record.arm",
    "idle": "unhang.record.arm",
    "load": "unhang.ingest",
    "phase": "unhang.record.arm",
    "print": "unhang.printing",
    "step": "unhang.record.arm",
}

# Names that would hide a built-in where they are made.
_OTHER_NAMES = {"breakpoint": "breakpoint_on_rank", "print": "print_atomic"}


def __getattr__(name: str) -> "Any":  # noqa: ANN401 - whatever the attribute is
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'unhang' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), _OTHER_NAMES.get(name, name))
    if name == "diagnose":
        import_module("unhang.reports")  # so that a report knows how to show itself
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
