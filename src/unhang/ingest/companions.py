"""The evidence beside the dumps of a case directory: saved stacks, logs and the manifest.

Stacks and logs have readers of their own; this only hands them their folders, and reads of the
manifest what the dumps cannot say: how many ranks were expected.
"""

from __future__ import annotations

import json
from pathlib import Path

from unhang.ingest.assemble import Extras
from unhang.ingest.sources import Inputs, show_path
from unhang.ingest.values import as_int
from unhang.model import Note

__all__ = ["expected_ranks", "read_companions"]

_MAX_MANIFEST_BYTES = 256 << 20


def read_companions(inputs: Inputs) -> Extras:
    """Read the stacks and logs of case directories."""
    extras = Extras()
    for folder in inputs.stacks:
        from unhang.stacks import read_stacks

        reading = read_stacks(folder)
        extras.samples += reading.samples
        extras.notes += reading.notes
    for folder in inputs.logs:
        from unhang.logs.scan import scan_logs
        from unhang.logs.sources import find_logs

        scan = scan_logs(find_logs(folder))
        extras.log_events += tuple(scan.events)
        extras.notes += scan.notes
    extras.samples = tuple(sorted(extras.samples, key=lambda sample: sample.time_ns))
    return extras


def expected_ranks(manifests: list[Path], notes: list[Note]) -> int:
    """World size as the manifest of a case directory has it; 0 where none says."""
    for path in manifests:
        try:
            with path.open("rb") as file:
                manifest = json.loads(file.read(_MAX_MANIFEST_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            reason = f"the manifest cannot be read ({type(error).__name__})"
            notes.append(Note("warning", show_path(str(path)), reason))
            continue
        if isinstance(manifest, dict) and (size := as_int(manifest.get("world_size"), 0)) > 0:
            return size
    return 0
