"""What tests need and may lack: said without an import of it, which every worker would pay for."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
