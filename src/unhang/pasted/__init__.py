"""Text that people paste: taken apart into logs, stacks and RAS, each read by its own reader."""

from unhang.pasted.texts import MOST_BYTES, Paste, paste_of, read_pasted

__all__ = ["MOST_BYTES", "Paste", "paste_of", "read_pasted"]
