"""Judges a case in a process of its own, isolated from the working directory (`unhang.isolated`).

Reading dumps and reasoning need numpy and memory, neither of which the supervisor of somebody's
job should hold; and if judging fails, the job must not notice. It writes report.json, report.txt
and report.html into the case and prints the text.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang._version import __version__
from unhang.casedir.manifest import save_file
from unhang.casedir.place import place_in
from unhang.errors import UnhangError
from unhang.isolated import python_command
from unhang.telltale import REMOVED
from unhang.wording import rank_phrase

if TYPE_CHECKING:
    from unhang.case import Case
    from unhang.report import Report

__all__ = ["Verdict", "judge"]

PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What judging came to.

    Attributes:
        text: The report for people, or why there is none.
        status: As in the report; "" where there is none.
        summary: The verdict's sentence.
        moving: Ranks outside of any call that were seen to move, and culprits that were: busy or
            slow rather than stuck.
        pausing: Those that stand still for no longer than a pause may take.
        action: What the report's decision says, unless that is of low confidence; "" for none.
        guessed: Its causes name nobody, and all with low confidence.
        reason: Why the decision is as it is, in the report's word.
        decision: All of that in one sentence.
        place: Where the culprits of the first cause are in their code, or "".
        case: The directory that was judged; None where there is none.
        unseen: All ranks that its causes name are ranks that no node has reported; or they name no
            rank, and none was reported.
    """

    text: str
    status: str = ""
    summary: str = ""
    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()
    action: str = ""
    guessed: bool = False
    reason: str = ""
    decision: str = ""
    place: str = ""
    case: Path | None = None
    unseen: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of commands that judge: 0 healthy, 1 a problem, 3 not enough evidence."""
        return {"healthy": 0, "problem": 1, "slow": 1}.get(self.status, 3)


def judge(case: Path, look: Sequence[str], in_time: Callable[[], bool]) -> Verdict:
    """Have a case judged.

    Args:
        case: The case directory.
        look: Options for the text: `--width N`, `--color`, `--ascii`.
        in_time: False once somebody is impatient: then it is given up.
    """
    command = python_command("unhang.run.incident.judging", str(case), *look)
    with subprocess.Popen(  # noqa: S603 - our own module
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        for _ in range(int(PATIENCE_S / 0.25)):
            try:
                out, err = process.communicate(timeout=0.25)
            except subprocess.TimeoutExpired:
                if not in_time():
                    break
                continue
            return _verdict(case, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        process.kill()
    return Verdict(f"the verdict was not waited for: unhang diagnose {case}", case=case)


def _verdict(case: Path, out: str, err: str) -> Verdict:
    try:
        report = json.loads((case / "report.json").read_text(encoding="utf-8"))
        causes = [found for found in report["findings"] if found["role"] == "cause"]
        decision = report["decision"] or {"action": "", "confidence": "low"}
        moving, pausing = (
            tuple(sorted({int(rank) for told in (*causes, decision) for rank in told.get(how, ())}))
            for how in ("moving", "pausing")
        )
        named = any(found["culprits"] or found["confidence"] != "low" for found in causes)
        return Verdict(
            text=out,
            status=str(report["status"]),
            summary=str(report["summary"]),
            moving=moving,
            pausing=pausing,
            action="" if decision["confidence"] == "low" else str(decision["action"]),
            guessed=not named,
            reason=str(decision.get("reason", "")),
            decision=str(decision.get("text", "")),
            place=_place(causes[0]) if causes else "",
            case=case,
            unseen=_is_unseen([found["culprits"] for found in causes], _looked_at(case)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        last = err.strip().splitlines()[-1:] or ["no reason given"]
        return Verdict(out or f"no verdict: {last[0]}\n", case=case)


def _place(cause: dict[str, Any]) -> str:
    """Where culprits stand, or were last seen: "rank 2 at src/data.py:31"."""
    sites = (site for site in cause.get("sites", ()) if site["role"] == "culprit" and site["ranks"])
    site = next(sites, None)
    if site is None:
        return ""
    file, seen = "/".join(site["file"].split("/")[-2:]), "last seen " if site["after"] else ""
    return f"{rank_phrase(site['ranks'])} {seen}at {file}:{site['line']}"


def _looked_at(case: Path) -> list[tuple[int, int]] | None:
    """First and last of the ranks that nodes have reported; None where nothing tells."""
    try:
        manifest = json.loads((case / "manifest.json").read_text(encoding="utf-8"))
        return [(int(first), int(last)) for first, last in manifest["looked_at"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_unseen(
    culprits: Sequence[Sequence[int]], looked_at: Sequence[tuple[int, int]] | None
) -> bool:
    """Whether nobody has looked at those whom the causes name, nor at anybody if they name nobody.

    One cause is enough that rests on what was seen.
    """
    if looked_at is None or not culprits:
        return False

    def is_seen(rank: int) -> bool:
        return any(first <= rank <= last for first, last in looked_at)

    return not any(any(map(is_seen, named)) if named else looked_at for named in culprits)


# ------------------------------------------------------------------ the process


def main(words: Sequence[str] | None = None) -> int:
    """Judge the case that the command line names."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    parser = argparse.ArgumentParser(prog="unhang.run.incident.judging", description=__doc__)
    parser.add_argument("case", type=Path)
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--color", action="store_true")
    parser.add_argument("--ascii", action="store_true")
    args = parser.parse_args(words)
    from unhang import reports
    from unhang.analysis import diagnose
    from unhang.ingest import load

    try:
        case = load([args.case])
        report = replace(diagnose(case), tool_version=__version__)
        place = replace(place_in(args.case), command=_command_of(args.case))
        report = reports.with_steps(report, case, place)
    except UnhangError as error:
        print(f"no verdict: {error.message}")  # noqa: T201 - read by the supervisor
        return error.exit_code
    shown = reports.Look(args.width, args.color, not args.ascii, full=False)
    _save(args.case, report, case)
    sys.stdout.write(reports.render("text", report, case, shown))
    return 0


def _command_of(folder: Path) -> tuple[str, ...]:
    """The job's command as our own manifest has it; none where a secret was taken out of it."""
    try:
        words = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["job"]["command"]
        told = tuple(str(word) for word in words)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return () if any(REMOVED in word for word in told) else told


def _save(folder: Path, report: Report, case: Case) -> None:
    """Write the report in every format; a full disk costs the files, not the verdict."""
    from unhang import reports
    from unhang.analysis.picture import picture_of

    for name, form in (("report.json", "json"), ("report.txt", "text"), ("report.html", "html")):
        picture = picture_of(case, report) if form in reports.PICTURED else None
        try:
            page = reports.render(form, report, case, picture=picture)
            save_file(folder / name, page.encode())
        except OSError as error:
            print(f"{name} was not written: {error.strerror}", file=sys.stderr)  # noqa: T201 - same


if __name__ == "__main__":
    sys.exit(main())
