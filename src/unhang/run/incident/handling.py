"""One incident on this node: a place for the case, the evidence, the verdict, and what comes after.

It is given what happened and who is there; it decides nothing about the job. Whatever fails here
is said in the manifest or on stderr and never raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from unhang.casedir.manifest import (
    CASES,
    Ending,
    LateRun,
    NodePart,
    create_case,
    merge_manifest,
    save_file,
    write_ending,
    write_late,
    write_part,
)
from unhang.casedir.sharing import Announcement
from unhang.errors import OutputError
from unhang.model import SlowRank
from unhang.rankenv import cluster_of, node_of
from unhang.record.contact.runtime_dir import create_private_dir, private_dir, safe_name
from unhang.run.child.ranklogs import rank_logs
from unhang.run.child.speak import without_own_words
from unhang.run.child.streams import Stream, end_of, tail_of
from unhang.run.incident.evidence import Collector
from unhang.run.incident.judging import judge
from unhang.run.incident.verdict import Verdict, heard, sent
from unhang.run.meeting.assembly import Absent
from unhang.run.meeting.company import Company
from unhang.run.watching.outputs import OwnFiles
from unhang.run.watching.roster import Roster
from unhang.surroundings import describe_node
from unhang.telltale import harmless_command, harmless_log
from unhang.wording import intervals

LOG_BYTES = 1 << 20
OTHERS_S = 15.0
"""For so long the parts of other nodes are waited for: they look every few seconds."""
LONGEST_S = 60.0
"""And for so long while more and more of them comes over the network."""

MOST_SENT = 1 << 14
"""So much of a verdict's text goes to other nodes: a report has some thousand characters."""
_PROBE_BYTES = 1 << 20

_REASONS = {"hang": "hang", "rank-ended": "peer-failed", "slow": "slow", "line": "hang"}
"""What dumps say of why they were made."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all incidents of one run share.

    Attributes:
        folder: Private directory of the run, with `staging` and `logs` in it.
        named: The directory that the user wants for the case, or None.
        say: How to tell people something.
        in_time: False once the user is impatient.
        grace_s: For so long a rank may pause in its own code.
        since_s: When the command was begun, on the monotonic clock.
        company: The other supervisors of the job, as of now.
        keep_up: Tells them what is seen here, while a verdict is awaited.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    torch: str
    streams: Sequence[Stream]
    folder: Path
    run: str
    job: str
    named: Path | None
    look: Sequence[str]
    say: Callable[[str], None]
    in_time: Callable[[], bool]
    grace_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)
    company: Callable[[], Company] = Company
    keep_up: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class What:
    """What happened.

    Attributes:
        kind: "hang", "rank-ended", "slow", or "line" for a line of the log that says so.
        detail: One sentence.
        quiet_s: How long no call had finished.
        still_s: For how long of that no rank had moved who may be waited for.
        slow: The rank that keeps the others waiting, of a job that moves.
    """

    kind: str
    detail: str
    quiet_s: float = 0.0
    still_s: float = 0.0
    slow: SlowRank | None = None

    @property
    def stands(self) -> bool:
        """Whether ranks are said to stand still."""
        return self.kind in ("hang", "line")

    @property
    def of_node(self) -> bool:
        """Whether it is a matter of this node alone."""
        return self.kind in ("slow", "line")


@dataclass(slots=True)
class NodeIncident:
    """Collects and judges; keep it for what comes later in the same incident.

    Attributes:
        follows: What is looked at again: the case before points to this one, and this to that.
    """

    context: Context
    what: What
    case: Path | None = None
    verdict: Verdict | None = None
    follows: NodeIncident | None = None
    _collector: Collector | None = None
    _part: NodePart | None = None
    _began_ns: int = field(default_factory=time.time_ns)
    _began_s: float = field(default_factory=time.monotonic)
    _strays: bool = False
    _outputs: OwnFiles = field(default_factory=OwnFiles)

    def collect(self, roster: Roster, attempt: int) -> bool:
        """Make the case and fill it; False where there is no place to write to."""
        self.case = self._make_case()
        if self.case is None:
            return False
        if not self.what.of_node:  # else no other need collect for it
            self._announce()
        context = self.context
        self._collector = collector = Collector(
            case=self.case,
            run=context.run,
            incident=self.case.name,
            reason=_REASONS[self.what.kind],
            in_time=context.in_time,
            paused_s=self._paused_s(),
            grace_s=context.grace_s,
        )
        collector.collect(roster, attempt)
        for text in collector.refused:
            context.say(text)
        collector.notes += self._adopt_staged(collector, attempt)
        self._outputs = roster.outputs
        streams = self._save_logs(collector.notes)
        self._save_surroundings(collector.notes)
        collector.notes += self._tie_to_first()
        collector.timings_s["collected"] = self._seconds()
        self._part = NodePart(
            run=context.run,
            host=os.uname().nodename,
            job=context.job,
            attempt=attempt,
            world_size=roster.world_size,
            command=harmless_command(context.command),
            incident={
                "id": self.case.name,
                "reason": self.what.kind,
                "detail": self.what.detail,
                "time_ns": self._began_ns,
                "quiet_s": round(self.what.quiet_s, 3),
                "ran_s": round(self._began_s - self.context.since_s, 3),
                **({"slow": asdict(self.what.slow)} if self.what.slow else {}),
            },
            ranks=[*collector.parts(), *collector.not_found()],
            node=node_of(context.env),
            cluster=cluster_of(context.env),
            timings_s=collector.timings_s,
            streams=streams,
            notes=collector.notes,
        )
        self._write_part()
        return True

    def _paused_s(self) -> float:
        """For how long a rank may have paused in its own code, while that may be all; else -1."""
        still = self.what.still_s
        return still if self.what.stands and still < self.context.grace_s else -1.0

    def judge(self) -> Verdict:
        """Have the case judged as it is now."""
        if self.case is None:
            return Verdict("")
        if self._is_shared and self.verdict is None:
            told = self._company.hand_over(self.case, self._in_time)
            if told is not None and (verdict := heard(told, self.case)) is not None:
                self.verdict = verdict
                return verdict
        self._wait_for_others()
        self.verdict = judge(self.case, self.context.look, self.context.in_time)
        if self._is_shared:
            self._company.tell(sent(self.verdict, MOST_SENT))
        if self._collector is not None and "verdict" not in self._collector.timings_s:
            self._collector.timings_s["verdict"] = self._seconds()
            self._write_part()
        return self.verdict

    def refine(self, done: Callable[[Verdict], None]) -> threading.Thread | None:
        """Ask for the dumps' stacks and judge again, in a thread that no caller waits for.

        Where there is no room for one, the stacks are left out: ranks may let us wait for them.
        """

        def work() -> None:
            if self._collector is None or not self._collector.take_frames():
                return
            if self._company.follows and self.case is not None:
                self._company.give_more(self.case)
            else:
                done(self.judge())

        thread = threading.Thread(target=work, name="unhang-refine", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._note(f"The stacks of the calls in the dumps were not asked for: {error}.")
            return None
        return thread

    def _note(self, text: str) -> None:
        """Add to what the manifest says of this node."""
        if self._part is not None:
            self._part = replace(self._part, notes=[*self._part.notes, text])
            self._write_part()

    def amend(self, *, ended_well: bool) -> bool:
        """The job goes on, or has ended well: add that to the evidence; False where it is none."""
        if self._collector is None or self.what.kind != "hang":
            return False
        return self._collector.tell_of_progress(ended_well=ended_well)

    def close(self, ending: Ending) -> None:
        """Add how it went on: the end of the command, and what it said until then."""
        if self.case is None:
            return
        try:
            streams = self._save_logs([])
            if self._part is not None:
                self._part = replace(self._part, streams=streams)
                self._write_part()
            self._keep_later_dumps()
            write_ending(self.case, self.context.run, ending)
        except OSError as error:
            self.context.say(f"the case {self.case} is incomplete: {error.strerror}")

    def _tie_to_first(self) -> list[str]:
        """Let the case of the first look name this one; what this one says of it."""
        first = self.follows.case if self.follows is not None else None
        if first is None or self.case is None:
            return []
        with contextlib.suppress(OSError):  # It stands by itself, too.
            ending = Ending(f"looked at again, in {self.case.name}: it stood still")
            write_ending(first, self.context.run, ending)
        return [f"This is a second look; the first one is in {first.name}."]

    # -------------------------------------------------------------- other nodes

    @property
    def _company(self) -> Company:
        return self.context.company()

    @property
    def _is_shared(self) -> bool:
        """Whether others take part; not in a case that lies elsewhere than theirs."""
        return self.case is not None and self._company.is_shared and not self._strays

    def _in_time(self) -> bool:
        self.context.keep_up()
        return self.context.in_time()

    @property
    def being_ended(self) -> bool:
        """Whether some node that shares the incident ends the job, or has ended it."""
        return self.case is not None and self._is_shared and self._company.is_being_ended(self.case)

    def tell_of_end(self, how: str) -> None:
        """Let the nodes that share the incident know that the job is ended by order."""
        if self.case is None or not self._is_shared:
            return
        try:
            self._company.tell_of_end(self.case, how)
        except OSError as error:
            self.context.say(f"the other nodes do not know of the end: {error.strerror}")

    def _announce(self) -> None:
        """Let the other nodes know, so that they collect as well."""
        context = self.context
        if self.case is None or not self._is_shared:
            return
        news = Announcement(context.run, self.what.kind, self.what.detail, self._began_ns / 1e9)
        try:
            self._company.announce(self.case, news)
        except OSError as error:
            context.say(f"the other nodes do not know: {error.strerror}")

    def _wait_for_others(self) -> None:
        """A verdict needs all nodes' parts; one that does not come is not waited for twice."""
        if self.case is None or not self._is_shared or self.verdict is not None:
            return
        first_s = began_s = time.monotonic()
        came = 0
        while missing := self._company.without_part(self.case):
            waited_s = time.monotonic() - began_s
            if waited_s > OTHERS_S or not self._in_time():
                runs = ", ".join(each.run for each in missing)
                self.context.say(f"no evidence yet from {runs}: judging without it")
                break
            if (now := self._company.received()) != came and began_s - first_s < LONGEST_S:
                began_s, came = time.monotonic(), now
            time.sleep(0.1)
        self._note_late(missing, time.monotonic() - first_s)

    def _note_late(self, missing: Sequence[Absent], waited_s: float) -> None:
        """Let the verdict name the nodes without which it is made."""
        if self.case is None:
            return
        try:
            for each in missing:
                ranks = [*intervals(each.ranks)]
                late = LateRun(each.host, round(waited_s, 3), each.why, ranks)
                write_late(self.case, each.run, late)
            if not missing and self._company.leads:
                merge_manifest(self.case)
        except OSError as error:
            self.context.say(f"the manifest of {self.case} was not written: {error.strerror}")

    # -------------------------------------------------------------- the place

    def _make_case(self) -> Path | None:
        named, root = self.context.named, Path(CASES).absolute()
        places: list[tuple[Path, Path | None]] = [(root, named)]
        places.append((Path(tempfile.gettempdir()) / f"{CASES}-{os.geteuid()}", None))
        for place, name in places:
            try:
                if place != root:  # in a directory that all users write to
                    create_private_dir(place)
                case = create_case(
                    place, self.context.job, self._began_ns / 1e9, named=name, run=self.context.run
                )
                _probe(case)
            except (OutputError, OSError) as error:  # noqa: PERF203 - two or three places
                text = error.message if isinstance(error, OutputError) else str(error)
                self.context.say(f"{text}; trying elsewhere")
            else:
                self._strays = name is None and named is not None
                return case
        self.context.say("no place to write a case: the evidence is lost")
        return None

    # -------------------------------------------------------------- pieces

    def _save_logs(self, notes: list[str]) -> list[dict[str, object]]:
        """The last of each stream; what was saved before is replaced by more of the same."""
        rows: list[dict[str, object]] = []
        for stream in self.context.streams:
            name = f"logs/{self.context.run}.{stream.name}.log"
            row: dict[str, object] = {"name": stream.name}
            try:
                whole = tail_of(stream, str(self.context.folder / "logs"), LOG_BYTES)
                data = without_own_words(whole)
                if data and self.case is not None:
                    save_file(self.case / name, harmless_log(data))
                    row["path"] = name
                else:
                    row["why_not"] = stream.why_not or "no process wrote to it"
            except OSError as error:
                row["why_not"] = f"it cannot be read or saved: {error.strerror}"
                notes.append(f"{stream.name}: {row['why_not']}")
            rows.append(row)
        return [*rows, *self._save_rank_logs(notes)]

    def _save_rank_logs(self, notes: list[str]) -> Iterator[dict[str, object]]:
        """The last of each rank's log: those of torchrun, and those that ranks print into."""
        logs = [(path, name, 0) for path, name in rank_logs(self.context.env)]
        known = {os.path.realpath(path) for path, _, _ in logs}
        for number, own in enumerate(self._outputs.own()):
            if own.path not in known:
                logs.append((own.path, f"own/{number}/rank_{own.rank}.log", own.start))
        for path, name, start in logs:
            kept = f"logs/{self.context.run}/{name}"
            try:
                data = end_of(path, LOG_BYTES, start)
                if data and self.case is not None:
                    private_dir((self.case / kept).parent)
                    save_file(self.case / kept, harmless_log(data))
                    yield {"name": name, "path": kept}
            except OSError as error:
                notes.append(f"{name} cannot be read or saved: {error.strerror}")

    def _save_surroundings(self, notes: list[str]) -> None:
        if self.case is None:
            return
        node = describe_node(self.context.env, self.context.torch, _folder())
        try:
            data = json.dumps(node, indent=1).encode()
            save_file(self.case / "env" / f"node-{self.context.run}.json", data)
        except OSError as error:
            notes.append(f"env was not written: {error.strerror}")

    def _adopt_staged(self, collector: Collector, attempt: int) -> list[str]:
        """Move in the dumps that processes wrote by themselves, where a rank has no better one."""
        notes = []
        for path in self._staged(attempt):
            backend, name = path.parent.name, path.name
            rank = next((r for r in collector.ranks if name == f"rank_{r.member.rank}"), None)
            if rank is None or "dump" in rank.came:
                continue
            try:
                _move(path, collector.case / "dumps" / backend / name)
            except OSError as error:
                notes.append(f"the dump of {name} was not moved: {error.strerror}")
                continue
            rank.came["dump"] = f"dumps/{backend}/{name}"
            rank.missing.pop("dump", None)
        return notes

    def _keep_later_dumps(self) -> None:
        """Dumps of after the verdict tell of the end, not of the hang: they are kept apart."""
        if self.case is None or self._part is None:
            return
        staging = self.context.folder / "staging"
        for path in self._staged(self._part.attempt):
            _move(path, self.case / "later" / path.relative_to(staging))

    def _staged(self, attempt: int) -> list[Path]:
        """Dumps that processes of an attempt left by themselves, newest first.

        A dump of the attempt before tells nothing of this one. Torch's dumps from processes without
        a recorder of ours do not say which attempt is theirs: the first is taken for it.
        """
        staging = self.context.folder / "staging"
        ours, theirs = f"{safe_name(self.context.job)}-a{attempt}-", {f"a{attempt}"}
        if not attempt:
            theirs.add("nccl")
        found = [
            path
            for path in staging.rglob("rank_*")
            if path.is_file()  # FIFOs are none
            and not path.is_symlink()
            and ((top := path.relative_to(staging).parts[0]).startswith(ours) or top in theirs)
        ]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)

    def _write_part(self) -> None:
        if self.case is None or self._part is None:
            return
        try:
            write_part(self.case, self._part)
        except OSError as error:
            self.context.say(f"the manifest of {self.case} was not written: {error.strerror}")

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began_s, 3)


def _folder() -> str:
    """Where the command was started; "" where that is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - as a text
    except OSError:
        return ""


def _probe(case: Path) -> None:
    """Find out now whether the disk takes anything: it may be full, or over quota."""
    save_file(case / ".probe", b"\0" * _PROBE_BYTES)
    (case / ".probe").unlink()


def _move(source: Path, target: Path) -> None:
    """Move a file that may lie on another file system; never over another one."""
    private_dir(target.parent)
    if target.exists():
        raise FileExistsError(17, "there is one already")
    shutil.move(source, target)
    target.chmod(0o600)
