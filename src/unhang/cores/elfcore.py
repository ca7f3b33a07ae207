"""What a core file says of itself: signal, process, program, environment.

Read with pyelftools from the notes that Linux writes (NT_PRSTATUS, NT_PRPSINFO, NT_FILE, NT_AUXV;
see core(5) and linux/elfcore.h). Only sizes and offsets inside the file are followed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.errors import InputError, MissingExtraError
from unhang.rankenv import VARIABLES, rank_env
from unhang.regular import open_regular
from unhang.telltale import without_secrets

_AT_EXECFN = 31  # include/uapi/linux/auxvec.h: address of the program's file name
_ENVIRONMENT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class CoreFacts:
    """Facts of one core.

    Attributes:
        signal: Number of the signal that ended the process; 0 where it was alive (gcore).
        faulting_tid: Thread that the kernel wrote first: the one that got the signal.
        program, arguments: As ps would show them (cut by the kernel to 16 and 80 bytes).
        executable: Path of the first mapped file, or "".
        environment: The rank variables found in its memory; empty where they could not be read.
    """

    signal: int = 0
    pid: int = -1
    faulting_tid: int = -1
    program: str = ""
    arguments: str = ""
    executable: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Global rank by its environment; -1 where nothing tells."""
        told = rank_env(self.environment)
        return told.rank if told else -1

    @property
    def world_size(self) -> int:
        """Ranks of the job by its environment; 0 where nothing tells."""
        told = rank_env(self.environment)
        return told.world_size if told else 0


def is_core(path: Path) -> bool:
    """Whether a file is an ELF core, by its first bytes."""
    try:
        with open_regular(path) as file:
            head = file.read(18)
    except OSError:
        return False
    # e_type, 2 bytes at 16: 4 is ET_CORE.
    return len(head) == 18 and head[:4] == b"\x7fELF" and 4 in (head[16], head[17])  # noqa: PLR2004 - ELF header


def read_facts(path: Path) -> CoreFacts:
    """Read the notes of a core.

    Raises:
        InputError: If it is no core or its headers are broken.
        MissingExtraError: Without pyelftools.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.construct import ConstructError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise MissingExtraError("Reading core files", "stacks") from error
    try:
        with open_regular(path) as file:
            elf = ELFFile(file)
            if elf.header.e_type != "ET_CORE":
                raise InputError(f"{path} is not a core file", "Give the core, not the program.")
            return _facts(elf, file)
    except (ELFError, ConstructError, OSError, struct.error, ValueError, KeyError) as error:
        raise InputError(
            f"{path} cannot be read as a core file: {error or 'broken headers'}",
            "Was it cut short (ulimit -c, full disk)?",
        ) from error


def _facts(elf: Any, file: Any) -> CoreFacts:  # noqa: ANN401 - pyelftools has no types
    notes: dict[str, Any] = {}
    for segment in elf.iter_segments():
        if segment.header.p_type == "PT_NOTE":
            for note in segment.iter_notes():
                notes.setdefault(str(note.n_type), note.n_desc)
    status = _bytes(notes.get("NT_PRSTATUS"))
    info = notes.get("NT_PRPSINFO") or {}
    order = "<" if elf.little_endian else ">"
    # struct elf_prstatus: siginfo (3 ints), cursig at 12, on 64 bit the thread id at 32.
    signal = struct.unpack_from(order + "h", status, 12)[0] if len(status) > 36 else 0  # noqa: PLR2004 - see above
    tid = struct.unpack_from(order + "i", status, 32)[0] if len(status) > 36 else -1  # noqa: PLR2004 - see above
    names = getattr(notes.get("NT_FILE"), "filename", None) or []
    return CoreFacts(
        signal=int(signal),
        pid=int(info.get("pr_pid", -1)),
        faulting_tid=int(tid),
        program=_text(info.get("pr_fname", b"")),
        arguments=without_secrets(_text(info.get("pr_psargs", b""))),
        executable=_text(names[0]) if names else "",
        environment=_environment(elf, file, _bytes(notes.get("NT_AUXV")), order),
    )


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("latin-1")
    return value if isinstance(value, bytes) else b""


def _text(value: object) -> str:
    raw = value.encode("latin-1") if isinstance(value, str) else _bytes(value)
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace").strip()


def _environment(elf: Any, file: Any, auxv: bytes, order: str) -> dict[str, str]:  # noqa: ANN401 - pyelftools has no types
    """Rank variables: Linux puts the environment's strings right below the program's name."""
    address = next((v for k, v in struct.iter_unpack(order + "QQ", auxv[: len(auxv) // 16 * 16])
                    if k == _AT_EXECFN), 0)  # fmt: skip
    for segment in elf.iter_segments():
        header = segment.header
        inside = header.p_vaddr <= address < header.p_vaddr + header.p_filesz
        if header.p_type == "PT_LOAD" and inside:
            end = header.p_offset + address - header.p_vaddr
            start = max(header.p_offset, end - _ENVIRONMENT_BYTES)
            file.seek(start, os.SEEK_SET)
            return _variables(file.read(end - start))
    return {}


def _variables(memory: bytes) -> dict[str, str]:
    found = {}
    for item in memory.split(b"\0"):
        name, _, value = item.partition(b"=")
        text = name.decode("ascii", "replace")
        if text in VARIABLES:
            found[text] = value[:64].decode("ascii", "replace")
    return found
