"""Where the library lies, and what it has to be built from to fit the Python around it.

The build runs this file as well, by its path: nothing but the standard library is imported.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

__all__ = ["LIBRARY", "fingerprint"]

_HERE = Path(__file__).parent
LIBRARY: Final = _HERE / "decoder.so"
"""Where the build leaves the library, by this name on every system."""


def fingerprint() -> str:
    """Of the Python that calls the library and, where they are at hand, of the Rust sources."""
    calls = hashlib.sha256((_HERE / "library.py").read_bytes()).hexdigest()[:16]
    sources = _HERE.parents[3] / "native"
    if not (sources / "Cargo.toml").is_file():
        return calls
    rust = hashlib.sha256((sources / "Cargo.toml").read_bytes())
    for path in sorted((sources / "src").glob("*.rs")):
        rust.update(path.read_bytes())
    return f"{calls}-{rust.hexdigest()[:16]}"
