"""Tell apart the incidents whose dumps lie in one folder, and take one of them.

A folder that was not cleared holds the dumps of two attempts, or of a job that shrank; reasoning
over a mixture accuses the innocent. What our own recorder wrote decides; else the clock: within one
incident every rank has called something not longer ago than its peers' time-outs, so a dump whose
last call is older than twice the longest time-out belongs to an earlier one. Unless its calls are
those of the others, as far apart: then it is its host's clock that is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from unhang.errors import UsageError
from unhang.ingest.columns.decoded import ROW_DTYPES, Decoded, highest
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.continuing import continue_each_other
from unhang.ingest.groups.ranks import possible_ranks
from unhang.model import DumpStatus, Note
from unhang.wording import count_of, rank_phrase

_NS = 1_000_000_000
_DEFAULT_TIMEOUT_S = 1800
_LONGEST_TIMEOUT_S = 24 * 3600
_TIMEOUTS_APART = 2
_CALLS_ALIKE = 16
"""Of fewer, two ranks may share every moment: by slow clocks, or where one call lets both go."""
_COMPLETE_SHARE = 0.5
"""A set with at least this share of the largest set's ranks is no leftover."""


@dataclass(slots=True)
class DumpSet:
    """The files of one incident.

    Attributes:
        label: What our recorder called it, or the time of its newest evidence.
        newest_ns: Wall clock of the newest evidence; 0 where no file has any.
    """

    label: str
    newest_ns: int
    files: list[DumpFile] = field(default_factory=list)

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a file."""
        return frozenset(item.rank for item in self.files if item.rank >= 0)


def choose(
    loaded: Sequence[DumpFile], wanted: str | None, shared: Dictionaries
) -> tuple[DumpSet, list[Note]]:
    """Take one incident: the one asked for, or the newest that is no leftover.

    Args:
        loaded: All files, with ranks.
        shared: Names of groups, and their members.
        wanted: A label or its beginning, or "1" for the newest, "2" for the one before.

    Raises:
        UsageError: There is no such incident.
    """
    notes: list[Note] = []
    found = _incidents(loaded, shared, notes)
    chosen = _newest_complete(found) if wanted is None else _wanted(found, wanted)
    if len(found) == 1:
        return chosen, notes
    others = ", ".join(
        f"{incident.label} ({count_of(len(incident.ranks), 'rank')})"
        for incident in found if incident is not chosen
    )  # fmt: skip
    text = (
        f"{len(found)} incidents found; this is {chosen.label} "
        f"({count_of(len(chosen.ranks), 'rank')}), skipped: {others}; choose with --incident"
    )
    return chosen, [*notes, Note("warning", "incidents", text)]


def one_incident(loaded: Sequence[DumpFile]) -> DumpSet:
    """Take all files for one incident: a case directory holds nothing else.

    Ranks that died left dumps that they named themselves, next to those that were asked for.
    """
    newest = max(loaded, key=lambda item: item.newest_ns)
    words = Counter(word for item in loaded if (word := _word_of(item)))
    label = words.most_common(1)[0][0] if words else _clock(newest.newest_ns)
    return DumpSet(label, newest.newest_ns, list(loaded))


def _incidents(
    loaded: Sequence[DumpFile], shared: Dictionaries, notes: list[Note]
) -> list[DumpSet]:
    """All incidents, newest first; files without any time go with their series."""
    incidents = []
    for label, files in _of_one_moment(_by_own_word(loaded), shared, notes):
        for by_time in _joined(_by_time(files), shared, notes):
            for by_series in _by_series(by_time):
                newest = max((item.newest_ns for item in by_series), default=0)
                incidents.append(DumpSet(label or _clock(newest), newest, by_series))
    incidents.sort(key=lambda incident: incident.newest_ns, reverse=True)
    _make_unique(incidents)
    return incidents


def _by_own_word(loaded: Sequence[DumpFile]) -> dict[str, list[DumpFile]]:
    """Files by what our recorder calls their incident; torch's own files join the nearest."""
    words: dict[str, list[DumpFile]] = {}
    silent = []
    for item in loaded:
        word = _word_of(item)
        if word:
            words.setdefault(word, []).append(item)
        else:
            silent.append(item)
    if not words:
        return {"": silent}
    times = {word: max(item.newest_ns for item in files) for word, files in words.items()}
    latest = max(times, key=times.__getitem__)
    for item in silent:
        moment = item.newest_ns
        nearest = min(times, key=lambda word: abs(times[word] - moment)) if moment else latest
        words[nearest].append(item)
    return words


def _of_one_moment(
    words: dict[str, list[DumpFile]], shared: Dictionaries, notes: list[Note]
) -> Iterator[tuple[str, list[DumpFile]]]:
    """Put together what supervisors that did not know of each other gave names of their own.

    One node's ranks are of the incident of another's if they belong to the same attempt of a job,
    none of either has made a call since the other was dumped, and the numbers of their calls fit.
    """
    left = sorted(words.items(), key=lambda each: max(item.newest_ns for item in each[1]))
    while left:
        label, files = left.pop()
        for other in reversed(list(left)):
            if _have_one_moment(other[1], files) and continue_each_other(other[1], files, shared):
                left.remove(other)
                files = [*other[1], *files]
                text = f"{other[0]} and {label} are one incident: the numbers of their calls fit"
                notes.append(Note("info", "incidents", text))
        yield label, files


def _have_one_moment(some: Sequence[DumpFile], others: Sequence[DumpFile]) -> bool:
    """Whether dumps of one attempt were made with no call between them."""
    origins = [[item.decoded.origin for item in files if item.decoded] for files in (some, others)]
    told = [[origin for origin in each if origin is not None] for each in origins]
    jobs = {(origin.job_id, origin.attempt) for each in told for origin in each}
    if len(jobs) != 1 or not all(told) or not all(jobs.pop()[:1]):
        return False
    made = [min(origin.time_ns for origin in each) for each in told]
    called = [
        max(highest([item.decoded for item in files], "created_ns"), default=0)
        for files in (some, others)
    ]
    return called[0] <= made[1] and called[1] <= made[0]


def _word_of(item: DumpFile) -> str:
    origin = item.decoded.origin if item.decoded else None
    if origin is None:
        return ""
    if origin.incident:
        return origin.incident
    return f"{origin.job_id}#{origin.attempt}" if origin.attempt else origin.job_id


def _by_time(files: list[DumpFile]) -> list[list[DumpFile]]:
    """Split where the newest calls of two files are further apart than time-outs allow."""
    timed = sorted((item for item in files if item.newest_ns), key=lambda i: i.newest_ns)
    if not timed:
        return [files]
    gap = _TIMEOUTS_APART * _longest_timeout_ns(timed)
    sets, before = [[timed[0]]], timed[0].newest_ns
    for item in timed[1:]:
        moment = item.newest_ns
        if moment - before > gap:
            sets.append([])
        sets[-1].append(item)
        before = moment
    for item in files:
        if not item.newest_ns:
            _home_of(item, sets).append(item)
    return sets


def _joined(
    sets: list[list[DumpFile]], shared: Dictionaries, notes: list[Note]
) -> Iterator[list[DumpFile]]:
    """Put together again what was split where only clocks differ."""
    while sets:
        files = sets.pop()
        for other in [each for each in sets if continue_each_other(each, files, shared)]:
            sets.remove(other)
            hours = (files[-1].newest_ns - other[-1].newest_ns) / 3600 / _NS
            who = rank_phrase(sorted(item.rank for item in other))
            text = f"the clock of {who} is {hours:.1f} h behind: the numbers of its calls fit"
            notes.append(Note("warning", "clocks", text))
            files = [*other, *files]
        yield files


def _home_of(item: DumpFile, sets: list[list[DumpFile]]) -> list[DumpFile]:
    """The newest set in which the file's series appears and its rank does not; else the newest."""
    for files in reversed(sets):
        series = {other.claim.series for other in files}
        if item.claim.series in series and all(item.rank != other.rank for other in files):
            return files
    return sets[-1]


def _longest_timeout_ns(files: Sequence[DumpFile]) -> int:
    longest = max(0, *highest([item.decoded for item in files], "timeout_ms")) // 1000
    return min(longest or _DEFAULT_TIMEOUT_S, _LONGEST_TIMEOUT_S) * _NS


def _by_series(files: list[DumpFile]) -> list[list[DumpFile]]:
    """Split where whole series of files claim the same ranks of the same recorder."""
    series: dict[str, list[DumpFile]] = {}
    for item in files:
        series.setdefault(item.claim.series, []).append(item)
    newest_first = sorted(series.values(), key=lambda items: -max(i.newest_ns for i in items))
    sets: list[list[DumpFile]] = []
    seen: list[set[tuple[int, str, str]]] = []
    for items in newest_first:
        keys = {item.recorder for item in items}
        place = next((i for i, taken in enumerate(seen) if not _same_again(keys, taken)), None)
        if place is None:
            sets.append(list(items))
            seen.append(keys)
        else:
            sets[place] += items
            seen[place] |= keys
    return sets


def _same_again(keys: set[tuple[int, str, str]], taken: set[tuple[int, str, str]]) -> bool:
    """Whether a series repeats a set: most of its ranks are there, and they are several."""
    return len(keys & taken) > 1 and len(keys & taken) > len(keys) // 2


def _wanted(incidents: list[DumpSet], wanted: str) -> DumpSet:
    if wanted.isdecimal() and 0 < int(wanted) <= len(incidents):
        return incidents[int(wanted) - 1]
    exact = [incident for incident in incidents if incident.label == wanted]
    found = exact or [incident for incident in incidents if incident.label.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    labels = ", ".join(incident.label for incident in incidents)
    raise UsageError(
        f"{len(found) or 'no'} incident{'s' * (len(found) != 1)} here called {wanted!r}",
        f"Here, newest first: {labels}. Give a label, its beginning, or 1 for the newest.",
    )


def _newest_complete(incidents: list[DumpSet]) -> DumpSet:
    most = max(len(incident.ranks) for incident in incidents)
    return next(i for i in incidents if len(i.ranks) >= _COMPLETE_SHARE * most)


def _clock(time_ns: int) -> str:
    if not time_ns:
        return "undated"
    try:
        moment = datetime.fromtimestamp(time_ns // _NS, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return "undated"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _make_unique(incidents: list[DumpSet]) -> None:
    """Number labels that come again, so that each can be asked for."""
    times: Counter[str] = Counter()
    for incident in incidents:
        times[incident.label] += 1
        if times[incident.label] > 1:
            incident.label += f".{times[incident.label]}"


def empty_copies(files: Sequence[DumpFile], shared: Dictionaries) -> None:
    """Take from a file what another rank's file holds to the nanosecond: only one of them counts.

    No two ranks make many calls at the same moments: one dump was handed over twice. Of files that
    say whose they are there is none: clocks may be coarse.
    """
    first: dict[tuple[int, str, int], DumpFile] = {}
    for item in files:
        if item.decoded is None or not item.newest_ns:
            continue
        key = (item.newest_ns, item.backend, item.decoded.count)
        other = first.setdefault(key, item)
        if other.rank == item.rank or not _same_calls(other.decoded, item.decoded):
            continue
        if _says_its_rank(other) and _says_its_rank(item):
            continue
        fits, copy = _may_be_of_its_rank(item, shared), item
        if fits and not _may_be_of_its_rank(other, shared):
            first[key], copy = item, other
        copy.decoded, copy.status = None, DumpStatus.UNREADABLE
        copy.problem = f"it is a copy of {first[key].source}, to the nanosecond of each call"


def _says_its_rank(item: DumpFile) -> bool:
    origin = item.decoded.origin if item.decoded else None
    return origin is not None and origin.rank == item.rank


def _same_calls(one: Decoded | None, other: Decoded | None) -> bool:
    if one is None or other is None or one.count < _CALLS_ALIKE:
        return False
    if not (one.column("created_ns") > 0).all():
        return False
    bytes_of = ((one.column(key).tobytes(), other.column(key).tobytes()) for key in ROW_DTYPES)
    told = (one.declared, one.statuses) == (other.declared, other.statuses)
    return told and all(left == right for left, right in bytes_of)


def _may_be_of_its_rank(item: DumpFile, shared: Dictionaries) -> bool:
    allowed = possible_ranks(item.decoded, shared) if item.decoded else frozenset()
    return not allowed or item.rank in allowed


def drop_duplicates(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[Note]]:
    """Keep one file for each rank and recorder: whole, with stacks, newest; name the others."""
    best: dict[tuple[int, str, str], DumpFile] = {}
    rivals: dict[tuple[int, str, str], list[DumpFile]] = {}
    for item in files:
        key = item.recorder
        if key not in best:
            best[key] = item
            continue
        rivals.setdefault(key, [best[key]]).append(item)
        best[key] = max(best[key], item, key=_worth)
    notes = [
        Note(
            "warning",
            best[key].source,
            f"{count_of(len(items), 'file')} claim rank {key[0]}: read this one, "
            f"not {', '.join(i.source for i in items if i is not best[key])}",
        )
        for key, items in rivals.items()
    ]
    return [item for item in files if best[item.recorder] is item], notes


def _worth(item: DumpFile) -> tuple[bool, bool, bool, int]:
    whole = item.status is DumpStatus.OK
    return item.decoded is not None, whole, item.has_stacks, item.newest_ns or item.mtime_ns
