"""Reading: the only code that meets untrusted bytes. One bad file is a note, never an exception."""

from __future__ import annotations

from unhang.ingest.beside import Beside
from unhang.ingest.loading import load

__all__ = ["Beside", "load"]
