"""Text that people paste: taken apart into logs, stacks and RAS, each read by its own reader."""

from unhang.pasted.folders import MOST_BYTES, texts_of_archive, texts_of_folder
from unhang.pasted.texts import Paste, paste_of, read_pasted

__all__ = ["MOST_BYTES", "Paste", "paste_of", "read_pasted", "texts_of_archive", "texts_of_folder"]
