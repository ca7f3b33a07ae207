"""Takes the evidence of this node's ranks into a case, in the order that loses least.

Counters and dumps without stacks first: they cost milliseconds and are gone with the process
(how a rank is asked is `collect.asking`'s business).
Then the stacks of all ranks from outside, twice; nothing is signalled or stopped for it. Dumps
with stacks are asked for last and never waited for. What does not come is said per rank.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unhang.activity.looks import ProcessLook
from unhang.activity.series import Series
from unhang.activity.thresholds import APART_S
from unhang.casedir.manifest import RankPart, not_found, save_file
from unhang.collect.asking import DumpRequest, RankDumps, ask_recorder, ask_torch
from unhang.collect.processes import ProcessTable, read_process, read_processes
from unhang.collect.ranks import Target
from unhang.collect.sampling import sample_processes
from unhang.model import ProcessSample
from unhang.rankenv import neighbours_of
from unhang.rasclient import ask_about
from unhang.record.contact.client import AskError, ask
from unhang.record.contact.latest import read_page
from unhang.record.contact.marks import alive
from unhang.record.contact.runtime_dir import private_dir
from unhang.run.incident.collected import (
    Collected,
    fatal_text,
    last_words,
    part_of,
    told_by,
)
from unhang.run.watching.procs import ray_tasks_s, work_of
from unhang.run.watching.roster import Roster
from unhang.run.watching.traffic import tcp_bytes
from unhang.stacks.excerpts import excerpts_of
from unhang.stacks.formats.saved import dump_samples
from unhang.telltale import harmless_log

STATUS_S = 1.0
ENTRIES_S = 3.0
WORKER_S = 2.0
LOOK_S = 4.0
RAS_APART_S = 3.0
"""Between two answers of RAS; it keeps what it has heard from peers for a moment."""
STACKS_S = 60.0
_AT_ONCE = 16
_STOPPED = ("T", "t")
_MOST_HELPERS = 64


@dataclass(slots=True)
class Collector:
    """Collects one incident of one node.

    Attributes:
        case: The case directory.
        run: Names this node's files in it.
        incident: Name that all dumps of the incident carry.
        reason: As the recorder documents them ("hang", "peer-failed").
        in_time: False once the user is impatient: what is left is skipped.
        stacks: Look at the ranks from outside too.
        refused: Of whom there are no stacks, why, and what would help.
        paused_s, grace_s: As in `unhang.model.ProcessSample`.
        timings_s: Seconds from the beginning to the end of each step.
    """

    case: Path
    run: str
    incident: str
    reason: str
    in_time: Callable[[], bool]
    stacks: bool = True
    paused_s: float = -1.0
    grace_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    timings_s: dict[str, float] = field(default_factory=dict)
    ranks: list[Collected] = field(default_factory=list)
    world: dict[str, Any] = field(default_factory=dict)
    _roster: Roster | None = None
    _samples: list[ProcessSample] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)
    _asked_ras_s: list[float] = field(default_factory=list)

    def collect(self, roster: Roster, attempt: int) -> None:
        """Take everything but dumps with stacks; never raises for what ranks or disks do."""
        self._roster = roster
        present, ended = roster.of_attempt(attempt)
        self.ranks = [Collected(member) for member in present]
        self.ranks += [Collected(gone.member, gone) for gone in ended]
        self.ranks.sort(key=lambda rank: rank.member.rank)
        for rank in self.ranks:
            rank.beat = roster.heartbeat(rank.member)
            if rank.gone is not None:
                rank.missing["stacks"] = "the process has ended"
        for name, step in (
            ("status", self._take_status),
            ("dumps", self._take_dumps),
            ("ras", self._take_ras),
            *([("stacks", self._take_stacks)] if self.stacks else []),
            ("ras again", self._take_ras_again),
            ("last calls", self._take_pages),
            ("fatal signals", self._take_faults),
        ):
            if self.in_time():
                self._guarded(name, step)
                self.timings_s[name] = round(time.monotonic() - self._began_s, 3)
            else:
                self.notes.append(f"{name}: skipped, because a user interrupted")

    def parts(self) -> list[RankPart]:
        """Every rank as the manifest has it."""
        return [part_of(rank) for rank in self.ranks]

    def not_found(self) -> list[RankPart]:
        """The same of ranks that the launcher has started here, and of whom nothing is seen."""
        here = {rank.member.rank for rank in self.ranks}
        found = (read_process(rank.member.pid) for rank in self._alive())
        told = (process.environ for process in found if process and process.environ)
        started = {rank for environ in told for rank in neighbours_of(environ)}
        return not_found(sorted(started - here), socket.gethostname())

    # -------------------------------------------------------------- steps

    def _take_status(self) -> None:
        present = self._alive()
        answers = _at_once(_status, present)
        found = {}
        for rank, answer in zip(present, answers, strict=True):
            if isinstance(answer, str):
                rank.missing["status"] = answer
                continue
            rank.came["status"] = "env/" + self._name("status")
            found[str(rank.member.rank)] = answer
        if found:
            self._save(f"env/{self._name('status')}", json.dumps(found, indent=1).encode())

    def _take_dumps(self) -> None:
        present = self._alive()
        for rank, said in zip(present, _at_once(self._ask_dumps, present), strict=True):
            answer = RankDumps(why=said) if isinstance(said, str) else said
            kept = [self._kept(rank, *found) for found in answer.found]
            names = [name for name in kept if name]
            if names:
                rank.came["dump"] = ", ".join(names)
            else:
                rank.missing["dump"] = answer.why or "it could not be kept"

    def _ask_dumps(self, rank: Collected) -> RankDumps:
        if rank.member.unarmed:
            process = read_process(rank.member.pid)
            environ = (process and process.environ) or {}
            answer = ask_torch(rank.member.pid, rank.member.rank, environ, WORKER_S)
            return answer if answer.found else RankDumps(why=rank.member.unarmed)
        request = DumpRequest(
            self.reason,
            self.incident,
            self.case,
            stacks=False,
            recorder_s=ENTRIES_S,
            worker_s=WORKER_S,
        )
        return ask_recorder(rank.member.mark, request)

    def _kept(self, rank: Collected, backend: str, source: Path | bytes) -> str:
        """A dump's name in the manifest: in the case, or where our recorder had to write it."""
        name = f"dumps/{backend}/rank_{rank.member.rank}"
        try:
            if isinstance(source, bytes):
                private_dir((self.case / name).parent)
                save_file(self.case / f"{name}.json", source)
                return f"{name}.json"
            if rank.member.unarmed:  # torch's own file, which the next dump would replace
                private_dir((self.case / name).parent)
                save_file(self.case / name, source.read_bytes())
                return name
        except OSError as error:
            self.notes.append(f"{name} was not written: {error.strerror}")
            return ""
        return self._inside(source)

    def _take_stacks(self) -> None:
        table, began_s = read_processes(), time.monotonic()
        before = self._work(table, began_s)
        targets = [*self._targets(table)]
        looks = sample_processes(targets, looks=2, interval_s=APART_S, timeout_s=LOOK_S)
        after = self._work(read_processes(), time.monotonic())
        seen = {
            pid: self._series(pid, look, after[pid]) for pid, look in before.items() if pid in after
        }
        if self._roster is not None:
            self._roster.disturbed(seen)
        name = f"stacks/{self.run}.json"
        self.refused = [f"no stacks of {note.source}: {note.text}" for note in looks.notes]
        self.notes += self.refused
        if source := excerpts_of(looks.samples):
            self._save(f"env/{self._name('source')}", source)
        self._note_progress()
        self._note_ended(looks.samples)
        ended = {rank.member.pid for rank in self.ranks if rank.gone is not None}
        told = {rank.member.pid: told_by(rank) for rank in self.ranks}
        self._samples = [
            replace(sample, **seen.get(sample.pid, {}), **told.get(sample.pid, {}))
            for sample in looks.samples
            if sample.pid not in ended
        ]
        for rank in self._alive():
            looked = [each for each in self._samples if each.rank == rank.member.rank]
            if not looked:
                rank.missing["stacks"] = "the process was not found"
                continue
            rank.state = looked[-1].state
            if any(thread.frames for look in looked for thread in look.threads):
                rank.came["stacks"] = name
            else:
                rank.missing["stacks"] = looked[-1].error or "none of its threads runs any code"
        for rank in self.ranks:
            self._samples += [] if "stacks" in rank.came else last_words(rank)
        self._samples = [
            replace(sample, paused_s=self.paused_s, grace_s=self.grace_s)
            for sample in self._samples
        ]
        self._save_samples()

    def _save_samples(self) -> None:
        try:
            save_file(
                self.case / "stacks" / f"{self.run}.json", dump_samples(self._samples).encode()
            )
        except OSError as error:
            self.notes.append(f"stacks were not written: {error.strerror}")

    def tell_of_progress(self, *, ended_well: bool) -> bool:
        """Add to what was seen of ranks that they have gone on since; False where none has."""
        if not ended_well:
            self._note_progress()
        on = {rank.member.pid for rank in self.ranks if rank.went_on or ended_well}
        self._samples = [
            replace(sample, went_on=sample.went_on or sample.pid in on) for sample in self._samples
        ]
        if on:
            self._save_samples()
        return bool(on)

    def _series(self, pid: int, before: ProcessLook, after: ProcessLook) -> dict[str, Any]:
        """The fields of a sample that tell what its process has done until now."""
        roster = self._roster
        if roster is None:
            return {"looks": Series.of((before, after._replace(disturbed=True))).relative()}
        earlier = roster.looks(pid)
        started = earlier[-1].started if earlier else 0
        newest = (before._replace(started=started), after._replace(started=started, disturbed=True))
        line_looks, lines = roster.lines(pid)
        looks = Series.of((*earlier, *newest)).relative()
        return {"looks": looks, "line_looks": line_looks, "lines": lines}

    def _work(self, table: ProcessTable, now_s: float) -> dict[int, ProcessLook]:
        """What each rank that lives has done so far, without what our recorder in it did."""
        sockets = tcp_bytes()
        ranks = {rank.member.pid: rank for rank in self._alive()}
        beats = {pid: rank.beat for pid, rank in ranks.items()}
        return {
            pid: work_of(
                pid,
                table,
                now_s,
                beat.thread if beat else 0,
                sockets,
                rpc=beat is not None and bool(beat.worker),
            )._replace(tasks_s=ray_tasks_s(pid, table, ranks))
            for pid, beat in beats.items()
        }

    def _take_ras(self) -> None:
        """Ask RAS, whose answer is of one moment."""
        answer = ask_about({rank.member.pid for rank in self.ranks})
        if answer:
            self._asked_ras_s.append(time.monotonic())
            number = len(self._asked_ras_s)
            private_dir(self.case / "ras")
            self._save(f"ras/answer-{self.run}-{number}.txt", answer.encode())

    def _take_ras_again(self) -> None:
        """A second answer, some time after the first: it tells who stands from who moves."""
        if self._asked_ras_s:
            time.sleep(max(self._asked_ras_s[0] + RAS_APART_S - time.monotonic(), 0.0))
            self._take_ras()

    def _take_pages(self) -> None:
        """The heartbeats of ranks that left no dump: their last calls are in there.

        Of one that is stopped its state says more: why it calls nothing, and what continues it.
        """
        for rank in (rank for rank in self.ranks if rank.state not in _STOPPED):
            path = rank.member.mark.heartbeat
            page = read_page(path) if path and "dump" not in rank.came else b""
            if page:
                name = f"dumps/calls/rank_{rank.member.rank}"
                private_dir((self.case / name).parent)
                self._save(name, page)
                rank.came["calls"] = name

    def _take_faults(self) -> None:
        """What faulthandler wrote as fatal signals came."""
        for rank in self.ranks:
            if text := fatal_text(rank):
                name = f"env/{self._name(f'fatal-{rank.member.rank}')}".replace(".json", ".txt")
                self._save(name, harmless_log(text))
                rank.came["fatal signal"] = name

    def _note_progress(self) -> None:
        """Ranks that have gone on since: then the job was late, and what was seen is over."""
        if self._roster is not None and self.reason == "hang":
            for rank in self._alive():
                rank.compare(self._roster.heartbeat(rank.member))

    def _note_ended(self, samples: Iterable[ProcessSample]) -> None:
        """Ranks that ended in the meantime: a launcher that is held leaves them as zombies."""
        last = {sample.pid: sample for sample in samples}
        for rank in self._alive():
            sample, member = last.get(rank.member.pid), rank.member
            if self._roster is None or (sample and sample.threads) or alive(member.mark):
                continue
            rank.gone = self._roster.gone_now(member)
            rank.beat = self._roster.heartbeat(member)
            rank.missing["stacks"] = "the process has ended"

    def _targets(self, table: ProcessTable) -> Iterable[Target]:
        """The ranks, and the Python helpers of those that do not just wait for others."""
        helpers: list[Target] = []
        for rank in self._alive():
            process = table.by_pid.get(rank.member.pid)
            if process is None or process.start_ticks != rank.member.mark.start_ticks:
                continue
            yield Target(process, rank=rank.member.rank, role="rank", how="mark")
            helpers += [
                Target(child, role="helper", parent_rank=rank.member.rank)
                for child in table.below(process.pid)
                if child.python and child.pid != process.pid
            ]
        if not self.ranks and self._roster is not None:
            yield from (Target(p, role="launcher") for p in self._roster.launchers(table))
        yield from helpers[:_MOST_HELPERS]
        if len(helpers) > _MOST_HELPERS:
            self.notes.append(f"{len(helpers) - _MOST_HELPERS} helper processes were not sampled")

    def take_frames(self) -> int:
        """Ask for the stacks of the dumps that are there; returns how many ranks answered."""
        ready = [rank for rank in self._alive() if "dump" in rank.came and rank.member.mark.socket]
        done = _at_once(self._ask_frames, ready)
        self.timings_s["frames"] = round(time.monotonic() - self._began_s, 3)
        return sum(answer is True for answer in done)

    def _ask_frames(self, rank: Collected) -> bool:
        try:
            replies = ask(rank.member.mark.socket, {"do": "stacks"}, STACKS_S)
            return any(reply.get("ok") for reply in replies)
        except AskError as error:
            rank.missing["frames"] = _words(error)
            return False

    # -------------------------------------------------------------- helpers

    def _alive(self) -> list[Collected]:
        return [rank for rank in self.ranks if rank.gone is None]

    def _name(self, kind: str) -> str:
        return f"{kind}-{self.run}.json"

    def _inside(self, path: Path) -> str:
        """A path as the manifest has it: relative where it is in the case."""
        try:
            return str(path.relative_to(self.case.absolute()))
        except ValueError:
            return str(path)

    def _save(self, name: str, data: bytes) -> None:
        try:
            save_file(self.case / name, data)
        except OSError as error:
            self.notes.append(f"{name} was not written: {error.strerror}")

    def _guarded(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the rest of the evidence matters more
            self.notes.append(f"{name}: {type(error).__name__}: {error}")


def _at_once(work: Callable[[Collected], Any], ranks: Sequence[Collected]) -> list[Any]:
    """The results of `work` for all ranks, a few of them at a time.

    The threads are daemons, unlike those of a pool: the end of `unhang run` must not wait for a
    rank that does not answer.
    """
    answers: dict[int, Any] = {}
    todo = iter(enumerate(ranks))
    lock = threading.Lock()

    def take() -> None:
        while True:
            with lock:
                number, rank = next(todo, (-1, None))
            if rank is None:
                return
            answers[number] = work(rank)

    threads = [
        threading.Thread(target=take, name="unhang-ask", daemon=True)
        for _ in range(min(_AT_ONCE, len(ranks)))
    ]
    started = [thread for thread in threads if _has_room(thread)]
    if not started:
        take()
    for thread in started:
        thread.join()
    return [answers.get(number, "asking it failed") for number in range(len(ranks))]


def _has_room(thread: threading.Thread) -> bool:
    """Whether a thread could be started: a limit of processes may leave no room for one."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _status(rank: Collected) -> dict[str, Any] | str:
    if not rank.member.mark.socket:
        return rank.member.unarmed or "it has no trigger socket"
    try:
        return next(iter(ask(rank.member.mark.socket, {"do": "status"}, STATUS_S)), {})
    except AskError as error:
        return _words(error)


def _words(error: OSError) -> str:
    """An error without the path of a socket, which means nothing to a reader."""
    return str(error).rpartition(": ")[2] or type(error).__name__
