"""`load`: from the paths that a user names to one Case.

The steps, and where each of them is: find the files (`discover/sources`), read them one by one
(`reading`: `discover/` says what a file is, `pickles/` and `jsonfile` decode it, `columns/` has
its calls), read what lies next to them (`beside`), give each its rank (`groups/ranks`), take one
incident (`incidents`), say who is in which group (`groups/building`), put the case together
(`assemble`). One bad file is a note; only where nothing at all can be read is it an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from unhang.bounds import MAX_RANKS
from unhang.case import Case
from unhang.casedir.contents import Contents
from unhang.errors import InputError, NoEvidenceError, UnhangError, UsageError
from unhang.ingest.assemble import assemble
from unhang.ingest.beside import (
    Beside,
    Extras,
    attempt_of,
    expected_ranks,
    of_attempt,
    ranks_looked_at,
    read_beside,
    read_manifests,
)
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile, characterise, notes_of_files, passed_over
from unhang.ingest.discover.naming import compile_rank_pattern
from unhang.ingest.discover.sources import Inputs, find_inputs
from unhang.ingest.groups.building import resolve_groups
from unhang.ingest.groups.ranks import assign_ranks, place_lone_dump, split_replicas, world_of
from unhang.ingest.groups.unnamed import split_unnamed
from unhang.ingest.handed import Evidence, NamedBytes, split_handed
from unhang.ingest.incidents import choose, drop_duplicates, empty_copies, one_incident
from unhang.ingest.pages.pagedump import where_needed
from unhang.ingest.reading import Progress, Reader
from unhang.model import Note
from unhang.wording import count_of

Elsewhere: TypeAlias = Callable[[Progress | None], tuple[Inputs, list[NamedBytes]]]
"""Says what was found in another place, and gives the parts that it came down to."""


def load(
    paths: Evidence | Sequence[Evidence | None] | Elsewhere,
    *,
    world_size: int | None = None,
    rank_pattern: str | None = None,
    incident: str | None = None,
    group_world_size: int | None = None,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> Case:
    """Read what a stuck job left behind.

    Args:
        paths: Case directory, directory of dumps, file, glob or archive, or several of these; or
            dumps in memory: the bytes of torch's `_dump_nccl_trace()` and `_dump_fr_trace()`,
            pickled or JSON, or what they decode to. A list of dumps is in the order of the ranks,
            a dictionary is {rank: dump}. Or what finds files and reduces them in another place.
        world_size: Number of ranks of the job, where files are missing and nothing else tells.
        rank_pattern: Regular expression that finds the rank in a file's path, in its group "rank"
            or its first group; for names of no usual form.
        incident: Which incident to take where several lie in one folder: its label or the
            beginning of it, or "1" for the newest, "2" for the one before.
        group_world_size: Ranks of one replica of a torchft job.
        beside: Logs, traces, cores and reports to read as well; those of a case directory are
            read anyway.
        progress: Called with the bytes read so far and the bytes in all.

    Returns:
        The case; everything skipped, repaired or inferred is in its notes.

    Raises:
        UsageError: An option makes no sense, or there is no such incident.
        InputError: A path does not exist.
        NoEvidenceError: Nothing that could be read holds any evidence.
    """
    _check_ranks("--world-size", world_size)
    _check_ranks("--group-world-size", group_world_size)
    beside = beside or Beside()
    pattern = compile_rank_pattern(rank_pattern)
    shared = Dictionaries()
    reader = Reader(shared, pattern, progress)
    if callable(paths):
        inputs, handed = paths(progress)
        found = list(reader.read_handed(handed))
        if reader.lost_parts:  # without them innocent ranks would be called silent
            raise InputError(f"what came back cannot be used: {reader.notes[-1].text}")
    else:
        named, handed = split_handed(paths)
        inputs = find_inputs(named)
        found = [*reader.read_all(inputs.files), *reader.read_handed(handed)]
    reader.take_parts(found)
    extras = read_beside(inputs, beside)
    extras.notes += [*inputs.notes, *reader.notes, *passed_over(reader.passed_over)]
    characterise(found, shared)
    extras.notes += assign_ranks(found, shared, told=pattern is not None)
    extras.notes += place_lone_dump(found, shared)
    empty_copies(found, shared)
    files = where_needed(_without_nameless(found, extras.notes), extras.notes)
    replica_size, notes = split_replicas(files, shared.memberships, group_world_size)
    extras.notes += notes
    if files:
        files = _of_one_incident(files, incident, extras, shared, whole=inputs.is_one_case)
    manifests = read_manifests(inputs.manifests, extras.notes)
    extras.manifests = tuple(each for each in manifests.values() if each is not None)
    seen = next(iter(extras.manifests), Contents())
    extras.slow = seen.incident.slow
    extras.looked_at = ranks_looked_at(manifests)
    extras.log_events = of_attempt(extras, attempt_of(files) or seen.attempt)
    if not any(item.decoded for item in files) and not extras.tell_something:
        raise _no_evidence(inputs, files, reader, beside, 0 if callable(paths) else len(handed))
    world = world_of(
        files, shared.memberships, world_size, expected_ranks(manifests), replica_size, extras.notes
    )
    split_unnamed(files, shared)
    grouping = resolve_groups(files, shared, world.size, replica_size)
    extras.notes += grouping.notes
    case = assemble(files, grouping, shared, world, extras)
    if reader.parts is None or not reader.parts.filling.shortened:
        return case
    filling = reader.parts.filling

    def more(ranks: Collection[int]) -> Case | None:
        whole = {id(item.decoded) for item in files if item.rank in ranks}
        if not filling.fill(whole):
            return None
        return replace(assemble(files, grouping, shared, world, extras), more=more)

    return replace(case, more=more)


def _check_ranks(option: str, value: int | None) -> None:
    if value is not None and not 1 <= value <= MAX_RANKS:
        raise UsageError(
            f"{option} {value} is out of range", f"Give the number of ranks, 1 to {MAX_RANKS:,}."
        )


def _of_one_incident(
    files: list[DumpFile], wanted: str | None, extras: Extras, shared: Dictionaries, *, whole: bool
) -> list[DumpFile]:
    """The files of the incident that is judged, one for each rank and recorder, by rank."""
    only = one_incident(files) if whole and wanted is None else None
    chosen, notes = (only, []) if only else choose(files, wanted, shared)
    kept, duplicates = drop_duplicates(chosen.files)
    kept.sort(key=lambda item: (item.rank, item.backend))
    extras.incident = chosen.label
    extras.notes += [*notes, *duplicates, *notes_of_files(kept)]
    return kept


def _without_nameless(found: list[DumpFile], notes: list[Note]) -> list[DumpFile]:
    """Leave out files whose rank nothing shows: guessing would accuse an innocent rank."""
    files = [item for item in found if item.rank >= 0]
    for item in found:
        if item.rank < 0:
            text = "skipped: neither its name nor its content shows the rank (--rank-pattern can)"
            notes.append(Note("error", item.source, text))
    return files


def _no_evidence(
    inputs: Inputs, files: list[DumpFile], reader: Reader, beside: Beside, handed: int
) -> UnhangError:
    """Why there is nothing to judge, as one sentence."""
    if reader.missing is not None:
        return reader.missing
    hint = "Dumps have names like nccl_trace_rank_0; see docs/formats.md for all that is read."
    problems = [f"{i.source}: {i.problem}" for i in files if i.problem]
    problems += [f"{note.source}: {note.text}" for note in [*inputs.notes, *reader.notes]]
    if problems:
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        return NoEvidenceError(f"no dump is readable: {problems[0]}{more}", hint)
    if handed:
        hint = "Give what _dump_nccl_trace() or _dump_fr_trace() returned, as it is or decoded."
        return NoEvidenceError("none of the arguments is a dump", hint)
    if not inputs.files and beside.logs:
        return NoEvidenceError("no rule knows a message of the logs", "Add the dumps.")
    if not inputs.files:
        return NoEvidenceError("no files to read", hint)
    others = "Logs go to unhang logs, saved stacks to unhang stacks, any text to unhang paste."
    return NoEvidenceError(
        f"none of {count_of(len(inputs.files), 'file')} is a dump or an archive of dumps",
        f"{hint} {others}",
    )
