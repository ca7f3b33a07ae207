"""What our compiled libraries have to be built from to fit the Python that calls them.

The build runs this file as well, by its path: nothing but the standard library is imported. A
library that was built from other sources could be handed other structures than it reads.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parent

LIBRARIES: Final = {
    "ingest/native/decoder.so": ("ingest/native/library.py", "native"),
    "record/calls/compiled.so": ("record/calls/quick.py", "native/recorder"),
}
"""By where the build leaves a library in the package, by this name on every system: the Python
that calls it, and the folder of its Rust sources in the repository."""


def fingerprint(library: str) -> str:
    """Of the Python that calls a library and, where they are at hand, of its Rust sources."""
    caller, crate = LIBRARIES[library]
    calls = hashlib.sha256((_PACKAGE / caller).read_bytes()).hexdigest()[:16]
    sources = _PACKAGE.parents[1] / crate
    if not (sources / "Cargo.toml").is_file():
        return calls
    rust = hashlib.sha256((sources / "Cargo.toml").read_bytes())
    for path in sorted((sources / "src").glob("*.rs")):
        rust.update(path.read_bytes())
    return f"{calls}-{rust.hexdigest()[:16]}"


def fits(built_from: str, own: str) -> bool:
    """Whether a library was built from the sources next to it, as far as these are at hand."""
    return built_from == own if "-" in own else built_from.partition("-")[0] == own
