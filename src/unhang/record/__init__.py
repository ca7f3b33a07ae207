"""The recorder inside the job: standard library, and torch only once the job itself imports it.

`HOOK_DIR` is what `unhang run` puts on PYTHONPATH. Nothing is armed by importing this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["HOOK_DIR"]

HOOK_DIR: Final = Path(__file__).parent / "hook"
"""Directory whose `sitecustomize.py` arms every process that imports torch.distributed."""
