"""The commands that help next: made from the facts of a report and from where its evidence lies.

Each runs as it stands: rank, case, process and group are filled in and quoted. What is advice and
no command stays in a finding's `actions`. Nothing is run or looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from unhang.case import Case
from unhang.casedir.place import Place
from unhang.catalogue import kind_of
from unhang.kinds import Trait
from unhang.report import Finding, RankStatus, Report, Step
from unhang.reports.content.paste_next import job_ended
from unhang.wording import count_of, fold_ranks, printable, rank_phrase, shell_word

_MOST_CULPRITS, _MOST_VICTIMS = 4, 2
_ALIGNED = frozenset({"absent", "disagreement", "deadlock", "transport", "slow"})
"""Families for which the calls of both sides, side by side, show something."""
_SHOW = ("--no-verdict",)
_PLAIN = re.compile(r"\w[\w.:@/-]{0,99}", re.ASCII)
_BELOW = frozenset({"transport", "device"})
"""Families whose reason lies below the program: nodes, links, GPUs."""


def with_steps(report: Report, case: Case | None, place: Place) -> Report:
    """A report with the commands that help next."""
    return replace(report, next=next_steps(report, case, place))


def main_finding(report: Report) -> Finding | None:
    """The finding that comes first: the first cause, else the first of all."""
    return next(iter(report.causes or report.findings), None)


def next_steps(report: Report, case: Case | None, place: Place) -> tuple[Step, ...]:
    """Commands for the first finding, the most telling first; none for a healthy job."""
    finding = main_finding(report)
    if report.status == "healthy":
        return ()
    if finding is None:  # logs in which nothing shows that the job stands, or that it moves
        return tuple(_stacks_of_all(report, case)) if case and case.logs_recognised else ()
    again = tuple(_asked_again(report, place))
    needed = finding.family == "evidence"  # else what did answer shows more
    steps = [
        *(again if needed else ()),
        *_asked_outside(report),
        *_calls(finding, case, place),
        *_stacks(finding, report, case, place),
        *_log_of(finding, case, place),
        *_checks(finding, report),
        *(() if needed else again),
        *_taken_out(report, case),
        *_again(report, place),
    ]
    if kind_of(finding.code) is not None:
        words = ["unhang", "explain", finding.code]
        steps.append(Step(_line(words), "what that means, and what else it could be"))
    return tuple(steps)


def _asked_again(report: Report, place: Place) -> Iterator[Step]:
    """The nodes again that did not answer, where a collection asked them."""
    missed = [node for node in report.nodes if node.state == "not-reached"]
    if missed and place.folder and place.folder.isprintable():
        who = printable(missed[0].node, 60)
        more = f" and {count_of(len(missed) - 1, 'other node')}" if len(missed) > 1 else ""
        words = ["unhang", "collect", "--resume", place.folder]
        yield Step(_line(words), f"asks {who}{more} again; then judge it again")


def _asked_outside(report: Report) -> Iterator[Step]:
    """The process outside the job for whose answer a rank waits: it is what to look at first."""
    for each in report.decision.subjects if report.decision is not None else ():
        if each.kind == "process" and each.pid:
            where = f"on {printable(each.host, 60)}" if each.host else "on its node"
            words = ["unhang", "stacks", "--pid", str(each.pid)]
            yield Step(_line(words), f"{where}, while it lives: the process that is asked")


_TAKES_OUT: Final[dict[str, tuple[str, ...]]] = {
    "slurm": ("scontrol", "update", "NodeName={node}", "State=DRAIN", "Reason=unhang"),
    "pbs": ("pbsnodes", "-o", "{node}"),
    "flux": ("flux", "resource", "drain", "{node}", "unhang"),
}
"""What makes a cluster start nothing more on a node."""


def _taken_out(report: Report, case: Case | None) -> Iterator[Step]:
    """What keeps the next start off the nodes that the decision is about."""
    decision = report.decision
    if decision is None or case is None or not case.cluster:
        return
    why = {"bad-node": "the next start leaves it out", "not-reached": "only if it is dead"}
    if decision.reason not in why:
        return
    hosts = [each.id for each in decision.subjects if each.kind == "host" and _is_plain(each.id)]
    for host in hosts[:_MOST_CULPRITS]:
        if command := _takes_out(_known_as(host, case), case):
            yield Step(command, why[decision.reason])


def _takes_out(node: str, case: Case) -> str:
    """The command; of Kubernetes' pods the node is asked for first."""
    if case.cluster == "kubernetes":
        where = ["-n", case.namespace] if _is_plain(case.namespace) else []
        asked = _line(["kubectl", "get", "pod", node, *where, "-o", "jsonpath={.spec.nodeName}"])
        return f'kubectl cordon "$({asked})"'
    words = _TAKES_OUT.get(case.cluster, ())
    return _line([word.format(node=node) for word in words])


def _known_as(host: str, case: Case) -> str:
    """What the cluster calls a host: nodes are asked by that name."""
    short = host.partition(".")[0]
    names = [node.node for node in case.nodes if node.node.partition(".")[0] == short]
    return names[0] if len(names) == 1 and _is_plain(names[0]) else host


_MOST_WORDS = 64
_REHEARSAL = "rehearsal"
"""Why the dumps of a rehearsal were made: its ranks live no more."""
_RANKS_HERE = re.compile(r"--nproc[-_]per[-_]node(=.*)?")


def _again(report: Report, place: Place) -> Iterator[Step]:
    """The job's own command, so that an error of a kernel shows where it happens."""
    kinds = (kind_of(finding.code) for finding in report.findings)
    late = any(kind is not None and kind.has(Trait.OF_A_KERNEL) for kind in kinds)
    sayable = all(word.isprintable() for word in place.command)
    if not (late and sayable and 0 < len(place.command) <= _MOST_WORDS):
        return
    for option, words, why in (
        ("--blocking", place.command, "the error shows at the call that causes it; slow"),
        ("--on-cpu", place.command, "without a GPU, the same mistake is usually a plain exception"),
        (
            "--one-gpu",
            _alone(place.command),
            "one rank: an error that remains does not come from other ranks",
        ),
    ):
        yield Step(_line(["unhang", "run", option, "--", *words]), why)


def _alone(command: Sequence[str]) -> tuple[str, ...]:
    """A launcher's command with one rank on this node."""
    words = list(command)
    for place, word in enumerate(words):
        match = _RANKS_HERE.fullmatch(word)
        if match and match.group(1):
            words[place] = f"{word.partition('=')[0]}=1"
        elif match and place + 1 < len(words):
            words[place + 1] = "1"
    return tuple(words)


def _line(words: Sequence[str]) -> str:
    return " ".join(map(shell_word, words))


def _is_plain(word: str) -> bool:
    """Whether a name from outside may stand in a command: no option, nothing for a terminal."""
    return _PLAIN.fullmatch(word) is not None


def _calls(finding: Finding, case: Case | None, place: Place) -> Iterator[Step]:
    """The calls of culprits and of some who wait for them, side by side."""
    sayable = bool(place.case) and all(word.isprintable() for word in place.case)
    if case is None or not sayable or finding.family not in _ALIGNED:
        return
    shown = _of_both_sides(finding, case.ranks_with_dump)
    if not shown:
        return
    words = ["unhang", "entries", *place.case, "--ranks", fold_ranks(shown), "--last", "5"]
    one = finding.family != "deadlock"  # a circle goes through several groups
    group = finding.group.name if finding.group and one else ""
    if _is_plain(group) and any(each.name == group for each in case.groups):
        words += ["--group", group]
    yield Step(_line(words), "their last calls, side by side")


def _of_both_sides(finding: Finding, there: Iterable[int]) -> list[int]:
    """Some culprits, and some who wait for them in the call itself: others wait behind those.

    Where no rank is at fault, those of the loop that the report tells come first.
    """
    known = set(there)
    culprits = [rank for rank in finding.culprits if rank in known][:_MOST_CULPRITS]
    called = {rank for side in finding.calls if side.op and side.state for rank in side.ranks}
    others = sorted(
        known.intersection(finding.victims).difference(culprits),
        key=lambda rank: (rank not in finding.loop, rank not in called, rank),
    )
    return culprits + others[: _MOST_VICTIMS if culprits else _MOST_CULPRITS]


def _stacks(finding: Finding, report: Report, case: Case | None, place: Place) -> Iterator[Step]:
    """Stacks of the culprits: those that were saved, else those of the living process.

    They are shown and not judged: stacks alone could contradict the report, which knows more. Where
    it knows nothing, their verdict is the only one.
    """
    if case is not None and case.samples and place.stacks:
        shown = _of_both_sides(finding, (sample.rank for sample in case.samples))
        whose = ["--ranks", fold_ranks(shown)] if shown else []
        words = ["unhang", "stacks", place.stacks, *_SHOW, *whose]
        yield Step(_line(words), "where they stand" if shown else "the stacks of all ranks")
        return
    if report.incident.reason == _REHEARSAL:
        return
    if finding.family == "evidence" and case is not None and not case.samples:
        yield from _stacks_of_all(report, case)
        return
    placed = {rank for site in finding.sites if not site.after for rank in site.ranks}
    lost = [rank for rank in finding.culprits if rank not in placed]
    if not lost or _ended(finding):
        return
    status = next((each for each in report.ranks if each.rank == lost[0]), RankStatus(-1, "ok"))
    where = f"on {printable(status.host, 60)}" if status.host else "on its node"
    yield Step(
        _line(["unhang", "stacks", *_whose(status, report.incident.job_id), *_SHOW]),
        f"{where}, while it lives: the stack of {rank_phrase(lost[:1])}",
    )


def _stacks_of_all(report: Report, case: Case) -> Iterator[Step]:
    """The stacks of the job's ranks, unless it is known to have ended."""
    if not job_ended(case):
        words = ["unhang", "stacks", *_whose(None, report.incident.job_id)]
        yield Step(_line(words), "on a node of the job, while it lives: the stacks of its ranks")


def _whose(status: RankStatus | None, job: str) -> list[str]:
    """The options that find a living rank: several jobs may run on its node."""
    if status is not None and status.pid:
        return ["--pid", str(status.pid)]
    return ["--job", job] if _is_plain(job) else []


def _ended(finding: Finding) -> bool:
    kind = kind_of(finding.code)
    return finding.family == "failure" or (kind is not None and kind.has(Trait.ENDING))


def _log_of(finding: Finding, case: Case | None, place: Place) -> Iterator[Step]:
    """What the first culprit printed, where its log is known to have lines of it."""
    if case is None or not place.logs:
        return
    rank = next((rank for rank in finding.culprits if rank in set(case.log_ranks)), None)
    if rank is not None:
        words = ["unhang", "logs", *place.logs, "--rank", str(rank)]
        yield Step(_line(words), f"the output of rank {rank}")


def _checks(finding: Finding, report: Report) -> Iterator[Step]:
    """Checks of the culprits' nodes, where the reason may lie there."""
    if finding.family not in _BELOW:
        return
    hosts = {each.rank: each.host for each in report.ranks if _is_plain(each.host)}
    named = dict.fromkeys(hosts[rank] for rank in finding.culprits if rank in hosts)
    if named:
        words = ["unhang", "doctor", "--hosts", ",".join(list(named)[:_MOST_CULPRITS])]
        yield Step(_line(words), "checks their nodes, GPUs and links")
    else:
        yield Step("unhang doctor", "on each node: checks node, GPUs and links")
