"""Decode and reduce where the files are, by tasks of a Ray cluster; what comes back are parts.

A PATH is looked for on every node. Files that several nodes see are read by any of them, others by
the node on which they lie; what is in a store is read by all. Which files make a part depends on
the files alone, so a verdict does not depend on the cluster, nor on a task that was done twice.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from typing import Any

from unhang.case import Case
from unhang.errors import InputError, MissingExtraError, ToolError
from unhang.ingest.discover.sources import Inputs, Source, find_inputs, show_path
from unhang.ingest.discover.storage import is_stored
from unhang.ingest.handed import NamedBytes
from unhang.ingest.loading import Elsewhere
from unhang.ingest.reading import Progress
from unhang.ingest.tasks import FILE, NodeListing, SeenFile, listing_of, look, reduced_share
from unhang.model import Note
from unhang.report import Report
from unhang.wording import count_of

SHARE_BYTES, SHARE_FILES = 128 << 20, 4096
"""What one task reads."""

_AT_ONCE = 8
"""Tasks at most on one node: each decodes with several threads."""

_RETRIES = 3
_NAMED = 3
_REACHED_S = 5.0
_HINT = (
    "Name the cluster: --engine ray:HOST:PORT, or --engine ray on one of its nodes. Or leave "
    "--engine out, which reads the files here."
)
_ON_NODES = (
    "Every node needs this version of unhang, and for PATHs like s3://… the extra unhang[remote]."
)


_Held = tuple[tuple[str, ...], NodeListing]
"""Nodes that see the same behind a PATH, and what that is."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A file of the case.

    Attributes:
        nodes: Where it can be read.
        source: With the name that the report shows as its path.
        path: Under which the nodes open it.
    """

    nodes: tuple[str, ...]
    source: Source
    path: str


@contextmanager
def ray_engine(
    address: str = "", *, rank_pattern: str | None = None, all_times: bool = False
) -> Iterator[RayEngine]:
    """Connect to a cluster for the time of a verdict.

    Args:
        address: As `ray.init` takes it; "" for what RAY_ADDRESS names, else the cluster of this
            machine, else one that is started here and stopped again.
        rank_pattern: As `load` takes it.
        all_times: Ask for all times at once.

    Raises:
        MissingExtraError: Ray is not installed.
        ToolError: There is no such cluster.
    """
    if find_spec("ray") is None:
        raise MissingExtraError("--engine ray", "ray")
    told = address or os.environ.get("RAY_ADDRESS", "")
    _reach(told)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        try:
            ray.init(address=told or "auto", **quiet)
        except ConnectionError:
            if told:
                raise
            ray.init(include_dashboard=False, **quiet)
    except Exception as error:  # whatever Ray raises, of many kinds
        raise ToolError(f"Ray cannot be used: {_reason(error)}", _HINT) from error
    try:
        with redirect_stdout(sys.stderr):  # a thread of Ray's prints what befalls its workers
            yield RayEngine(ray, rank_pattern, all_times)
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """See whether a server listens: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ToolError(f"no Ray cluster answers at {address}: {why}", _HINT) from error


def _reason(error: BaseException) -> str:
    """Why Ray says that something failed, in one line."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [""]
    return f"{type(cause).__name__}: {lines[0]}"


@dataclass(slots=True)
class RayEngine:
    """Finds and reduces files through a cluster.

    Attributes:
        ray: The module, connected.
        all_times: Whether parts are to keep all times; see `unhang reduce --times`.
    """

    ray: Any
    rank_pattern: str | None = None
    all_times: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _dead: int = 0
    _inputs: Inputs | None = None
    _files: list[_Found] = field(default_factory=list)

    def behind(self, paths: Iterable[str | os.PathLike[str]]) -> Elsewhere:
        """What `load` takes in place of paths; their files are looked for once."""
        return partial(self._read, [os.fspath(path) for path in paths])

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the nodes, as notes give them."""
        return tuple(self._names.values())

    def left_out_times(self, case: Case, report: Report) -> bool:
        """Whether the parts of this case lack times that the verdict would have read."""
        dumps = case.dumps
        if self.all_times or any(dump.window.left_out for dump in dumps):
            return False  # of so many calls they would not be read either
        asked = report.status != "problem" or all(dump.reason == "slow" for dump in dumps)
        return asked and any(dump.few_times for dump in dumps)

    def _read(self, paths: list[str], progress: Progress | None) -> tuple[Inputs, list[NamedBytes]]:
        if self._inputs is None:
            self._know_nodes()
            self._inputs = self._find(paths)
        parts = [NamedBytes("part", data) for data in self._reduced(progress)]
        return self._inputs, parts

    def _know_nodes(self) -> None:
        """Names of the nodes that are alive, and how many tasks each is given at once."""
        known = self.ray.nodes()
        nodes = [node for node in known if node["Alive"]]
        self._dead = len(known) - len(nodes)
        hosts = Counter(node["NodeManagerHostname"] for node in nodes)
        named = {}
        for node in nodes:
            host, ident = node["NodeManagerHostname"], node["NodeID"]
            named[ident] = host if hosts[host] == 1 else f"{host}-{ident[:8]}"
            cores = int(node["Resources"].get("CPU", 1))
            self._slots[ident] = min(max(cores, 1), _AT_ONCE)
        if not named:
            raise ToolError("the Ray cluster has no node that is alive", _HINT)
        self._names = dict(sorted(named.items(), key=lambda item: (item[1], item[0])))

    def _find(self, paths: Sequence[str]) -> Inputs:
        """List the files behind the paths: of folders on all nodes, of what all share on one."""
        base, every = os.getcwd(), tuple(self._names)  # noqa: PTH109 - as a text
        held: dict[str, list[_Held]] = defaultdict(list)
        for shared in (False, True):
            own = [path for path in paths if ("://" in path) == shared]
            for nodes, found in self._looks(own, base, every[:1] if shared else every):
                for path, listing in zip(own, found, strict=True):
                    if listing.there:
                        held[path].append((every if shared else nodes, listing))
        inputs = Inputs()
        for path in paths:
            if not held[path]:
                raise _nowhere(path, len(every))
            those = [each for each in held[path] if each[1].files] or held[path][:1]
            files = list(self._behind(path, those, base))
            self._files += files
            _add(_inputs_of(path, those, files, base), inputs)
        inputs.notes += self._notes_of_nodes([*held.values()])
        return inputs

    def _looks(
        self, paths: Sequence[str], base: str, nodes: Sequence[str]
    ) -> Iterator[tuple[tuple[str, ...], list[NodeListing]]]:
        """What nodes see behind paths; nodes that see the same are asked for it once."""
        if not paths:
            return
        task = self.ray.remote(num_cpus=0, num_returns=2, max_retries=_RETRIES)(look)
        asked = {node: task.options(**self._on(node)).remote(paths, base) for node in nodes}
        alike: dict[str, list[str]] = defaultdict(list)
        for node, (digest, _) in asked.items():
            alike[self._got(digest, node)].append(node)
        for same in alike.values():
            yield tuple(same), self._got(asked[same[0]][1], same[0])

    def _behind(self, path: str, held: Sequence[_Held], base: str) -> Iterator[_Found]:
        """The files of one PATH; those that lie on one of several nodes go by its name."""
        sees: dict[SeenFile, list[tuple[str, ...]]] = defaultdict(list)
        for nodes, listing in held:
            for seen in listing.files:
                sees[seen].append(nodes)
        for seen, groups in sees.items():
            shown, relative = _as_given(path, seen.path, base), seen.relative
            if len(held) > 1 and len(groups) == 1:
                host = self._names[groups[0][0]]
                shown = f"{host}:{shown}"
                relative = relative if self.rank_pattern else f"{host}/{relative}"
            nodes = tuple(node for group in groups for node in group)
            yield _Found(nodes, Source(shown, relative, seen.size, seen.mtime_ns), seen.path)

    def _notes_of_nodes(self, listings: Sequence[Sequence[_Held]]) -> list[Note]:
        """Say which nodes had nothing, and that others could not be asked for what is theirs."""
        had = {node for held in listings for nodes, seen in held if seen.files for node in nodes}
        none = [name for node, name in self._names.items() if node not in had]
        notes = []
        if none and had:
            some = ", ".join(none[:_NAMED]) + (", …" if len(none) > _NAMED else "")
            text = f"{count_of(len(none), 'node')} of the cluster had no files there: {some}"
            notes.append(Note("info", "nodes", text))
        if self._dead and any(len(held) > 1 for held in listings):
            text = f"{count_of(self._dead, 'node')} of the cluster no longer answers: not read"
            notes.append(Note("warning", "nodes", text))
        return notes

    def _reduced(self, progress: Progress | None) -> list[bytes]:
        """The parts of all shares, in their order; each node is given so many tasks at once."""
        shares = _shares(self._files)
        parts = [b""] * len(shares)
        queues: dict[tuple[str, ...], deque[int]] = defaultdict(deque)
        for number, share in enumerate(shares):
            queues[share[0].nodes].append(number)
        of_node = {
            node: [q for nodes, q in queues.items() if node in nodes] for node in self._names
        }
        free = [node for node in self._names for _ in range(self._slots[node])]
        total, done = sum(found.source.size for found in self._files), 0
        task = self.ray.remote(num_cpus=0, max_retries=_RETRIES)(reduced_share)
        running: dict[Any, tuple[int, str]] = {}
        while True:
            for node in free:
                following = next((queue.popleft() for queue in of_node[node] if queue), None)
                if following is not None:
                    running[self._start(task, shares[following], node)] = following, node
            if not running:
                return parts
            (ended,), _ = self.ray.wait([*running], num_returns=1)
            number, node = running.pop(ended)
            parts[number] = self._got(ended, node)
            free = [node]
            done += sum(found.source.size for found in shares[number])
            if progress is not None:
                progress(done, total)

    def _start(self, task: Any, share: Sequence[_Found], node: str) -> Any:  # noqa: ANN401 - Ray's
        """Have a node reduce some files; another one may take over what it is not alone to see."""
        files = [(found.source, found.path) for found in share]
        options = self._on(node, soft=len(share[0].nodes) > 1)
        return task.options(**options).remote(files, self.rank_pattern, all_times=self.all_times)

    def _on(self, node: str, *, soft: bool = False) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=soft)}

    def _got(self, result: Any, node: str) -> Any:  # noqa: ANN401 - the same
        try:
            return self.ray.get(result)
        except self.ray.exceptions.RayError as error:
            raise ToolError(
                f"the task on {self._names[node]} failed: {_reason(error)}", _ON_NODES
            ) from error


def _shares(files: Iterable[_Found]) -> list[list[_Found]]:
    """Files that follow each other and can be read by the same nodes, so many to a task."""
    shares: list[list[_Found]] = []
    for _, own in groupby(files, key=lambda found: (found.nodes, is_stored(found.path))):
        size = SHARE_BYTES
        for found in own:
            if size >= SHARE_BYTES or len(shares[-1]) >= SHARE_FILES:
                shares.append([])
                size = 0
            shares[-1].append(found)
            size += found.source.size
    return shares


def _inputs_of(path: str, held: Sequence[_Held], files: Sequence[_Found], base: str) -> Inputs:
    """What one PATH led to; where this machine sees the same, with what lies next to the dumps."""
    seen = [listing for _, listing in held]
    if not is_stored(path) and [listing_of(path, base)] == seen:
        return find_inputs([path.removeprefix(FILE)])
    notes = dict.fromkeys(note for listing in seen for note in listing.notes)
    inputs = Inputs(files=[found.source for found in files])
    inputs.notes += [Note("warning", source, text) for source, text in notes]
    if any(listing.beside for listing in seen):
        text = (
            "logs, stacks and reports next to the dumps were not read: this machine cannot see them"
        )
        inputs.warn(show_path(path), text)
    return inputs


def _add(more: Inputs, inputs: Inputs) -> None:
    for each in fields(Inputs):
        mine, theirs = getattr(inputs, each.name), getattr(more, each.name)
        setattr(inputs, each.name, mine | theirs if isinstance(mine, set) else [*mine, *theirs])


def _as_given(path: str, found: str, base: str) -> str:
    """The path of a file as `find_inputs` would have it where the command runs."""
    relative = "://" not in path and not os.path.isabs(path)  # noqa: PTH117 - a text
    return found.removeprefix(f"{base}/") if relative else found


def _nowhere(path: str, nodes: int) -> InputError:
    where = f"on {'any of ' * (nodes > 1)}{count_of(nodes, 'node')} of the cluster"
    if "://" in path:
        where = f"as {count_of(nodes, 'node')} of the cluster should see it"
    return InputError(
        f"there is no file or directory {show_path(path)!r} {where}",
        "Name what the nodes see: a directory of dumps, or an address like s3://bucket/folder.",
    )
