"""What a stack means: applies the table of `unhang.stacks.rules` to one stack or process.

A meaning is what the frames show, nothing more: it says that a rank waits in all_reduce, not whose
fault that is. Judging is the analysis's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.stacks.once import each_once
from unhang.stacks.ownership import (
    bare_name,
    is_library,
    is_native,
    same_file,
    shown_frame,
    under,
    user_frame,
)
from unhang.stacks.rules import CHANNELS, EVALUATIONS, FALLBACKS, IDLE, RULES, FrameRule
from unhang.wording import printable

_OUTER = ("checkpoint", "data-loader")  # user code below these is still theirs
_LEAVES = {"_shutdown": "threading.py"}
_JOINS = {"join": "threading.py", **_LEAVES}
_RESULT = {"result": "concurrent/futures/_base.py"}
_SERVED = "_run_function", "torch/distributed/rpc/internal.py"
"""Where a thread of RPC runs what another worker asked for."""
_TABLES = {"rules": RULES, "fallbacks": FALLBACKS, "idle": IDLE}
_THROWN = (
    ("std::rethrow_exception", "rethrown (std::rethrow_exception)"),
    ("__cxa_rethrow", "rethrown"),
    ("__cxa_throw", "thrown"),
)
_SIGNALLING = (
    "abort",
    "__GI_",
    "gsignal",
    "raise",
    "pthread_kill",
    "__pthread_kill",
    "fatal_error",
)
_STATES = {
    "T": ("stopped", "stopped by a signal (SIGSTOP, SIGTSTP)"),
    "t": ("stopped", "stopped by a debugger"),
    "Z": ("dead", "dead and not yet collected by its parent (zombie)"),
    "X": ("dead", "dead"),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one thread is doing.

    Attributes:
        kind: Key of `unhang.stacks.rules.KINDS`.
        says: Phrase after "rank 3 is": "waiting in all_reduce".
        op: The collective, where the kind is "collective"; else "".
        frame: The frame that told; None where the state or the kernel did.
        site: The innermost frame of the user's own code.
        within: An outer activity that holds it ("saving or loading a checkpoint (save)"), or "".
    """

    kind: str
    says: str
    op: str = ""
    frame: Frame | None = None
    site: Frame | None = None
    within: str = ""


def main_thread(sample: ProcessSample) -> ThreadStack | None:
    """The thread that runs the program: the main one, unless that only waits for another.

    Where a framework runs the program's loop in a thread of its own, the main one shows no line of
    the program; at its end an interpreter waits for threads that were left behind. In the
    backward pass the program goes on in a thread of torch's: its frames stand above the main one's.
    """
    main = next((thread for thread in sample.threads if thread.is_main), None)
    if main is None:
        return _that_says_most(sample)
    kind = meaning_of_frames(main.frames).kind
    if kind == "rpc":
        return _serving_thread(sample, main)
    if kind == "backward" and (hook := _thread_of_backward(sample)):
        return replace(main, frames=hook.frames + main.frames)
    return (_other_thread(sample) or main) if _hands_over(main.frames) else main


def _thread_of_backward(sample: ProcessSample) -> ThreadStack | None:
    """The thread in which torch's engine runs the hooks of the backward pass, if one does.

    No thread of Python's: it runs Python that a library or the program has registered, and nothing
    of Python started it. Its work is on the device, so the main thread only waits for it.
    """
    others = (t for t in sample.threads if not t.is_main and not _is_helper(t))
    running = [t for t in others if any(not is_native(f) for f in t.frames)]
    engines = [t for t in running if not any(map(_is_of_pythons_thread, t.frames))]
    return engines[0] if len(engines) == 1 else None


def _is_of_pythons_thread(frame: Frame) -> bool:
    """Whether a frame is the beginning of a thread of Python's, which a paste may have cut."""
    return bare_name(frame.function).startswith("_bootstrap") and same_file(
        frame.file, "threading.py"
    )


def _serving_thread(sample: ProcessSample, main: ThreadStack) -> ThreadStack:
    """Of a worker of RPC whose main thread waits, the one that runs what another asked for.

    One that does something of its own tells most; one that waits in turn more than a main thread
    that has come to its end, and waits for the others there.
    """
    serves = [t for t in sample.threads if not t.is_main and is_served(t)]
    own = (t for t in serves if meaning_of_frames(t.frames).kind != "rpc")
    ends = any(bare_name(f.function) == "shutdown" for f in main.frames)
    return next(own, next(iter(serves), main) if ends else main)


def is_served(thread: ThreadStack) -> bool:
    """Whether it runs what another worker of RPC has asked for."""
    return any(
        bare_name(f.function) == _SERVED[0] and under(f.file, _SERVED[1]) for f in thread.frames
    )


_SAYS_MOST = ("abort", "collective", "init", "teardown", "checkpoint", "data-loader")


def _that_says_most(sample: ProcessSample) -> ThreadStack | None:
    """Of a paste without the main thread, the one that tells what the process does; no helper.

    Where all of them are helpers, the first: `meaning_of` says that these are all that is there.
    """
    if len(sample.threads) == 1:
        return sample.threads[0]
    threads = [thread for thread in sample.threads if thread.frames]
    working = [thread for thread in threads if not _is_helper(thread)]
    kinds = [(meaning_of_frames(thread.frames).kind, thread) for thread in working]
    for wanted in _SAYS_MOST:
        if found := next((thread for kind, thread in kinds if kind == wanted), None):
            return found
    programs = (thread for thread in working if user_frame(thread.frames) is not None)
    return next(programs, None) or next(iter((*working, *threads)), None)


def _is_helper(thread: ThreadStack) -> bool:
    return _waits_for_work(thread.frames)


@each_once
def _waits_for_work(frames: tuple[Frame, ...]) -> bool:
    return _innermost(frames[::-1], "idle") is not None


def awaited_thread(sample: ProcessSample) -> ThreadStack | None:
    """The thread whose result the main one waits for, where only one stands in the program."""
    main = next((thread for thread in sample.threads if thread.is_main), None)
    awaits = main is not None and _awaits_result(main.frames)
    return _other_thread(sample) if awaits else None


def _other_thread(sample: ProcessSample) -> ThreadStack | None:
    others = [thread for thread in sample.threads if not thread.is_main]
    programs = [thread for thread in others if user_frame(thread.frames) is not None]
    working = [thread for thread in programs if thread_matters(thread)] or programs
    return working[0] if len(working) == 1 else None


@each_once
def _hands_over(frames: tuple[Frame, ...]) -> bool:
    """Whether the main thread waits for another one to end, or shows no line of the program."""
    if not frames:
        return False
    return user_frame(frames) is None or _is_inside(frames, _JOINS)


@each_once
def _awaits_result(frames: tuple[Frame, ...]) -> bool:
    return _is_inside(frames, _RESULT)


@each_once
def _leaves(frames: tuple[Frame, ...]) -> bool:
    return _is_inside(frames, _LEAVES)


def _is_inside(frames: Sequence[Frame], functions: Mapping[str, str]) -> bool:
    """Whether it stands in one of these functions, given with their files, or just below."""
    inner = frames[:4]
    return any(same_file(f.file, functions.get(bare_name(f.function), "/")) for f in inner)


def meaning_of(sample: ProcessSample) -> Meaning:
    """What a process is doing, from its state, its main thread and the GIL.

    A process that is stopped, dead, aborting in one of its threads, or held up by a GIL that one of
    them keeps in native code, means that before anything that its frames say.
    """
    chosen = main_thread(sample)
    frames = chosen.frames if chosen else ()
    site = user_frame(frames)
    if sample.state in _STATES:
        kind, says = _STATES[sample.state]
        if sample.frozen:
            says = f"frozen with its cgroup {printable(sample.frozen, 120)}"
        return Meaning(kind, says + _tracer(sample), site=site)
    if sample.state == "D":
        return Meaning("uninterruptible", _uninterruptible(sample.wait_channel), site=site)
    if chosen is None:
        return Meaning("unknown", sample.error or "without a stack")
    if _says_nothing(sample, chosen):
        return Meaning("unknown", f"seen in helper threads only ({_name(frames, 0)})")
    meaning = _ending(sample) or meaning_of_frames(chosen.frames)
    if not chosen.is_main and any(t.is_main and _leaves(t.frames) for t in sample.threads):
        meaning = replace(meaning, says=f"{meaning.says} in a thread that outlives its program")
    if meaning.kind not in ("collective", "init", "abort") and (held := _gil(sample, chosen)):
        return Meaning("gil", held, site=site, within=meaning.within)
    channel = sample.wait_channel if chosen.is_main else ""
    return _refined(meaning, channel, running=sample.state == "R")


def _tracer(sample: ProcessSample) -> str:
    """By which debugger it is stopped: " (gdb, process 99)"."""
    if sample.state != "t" or not sample.tracer:
        return ""
    name = printable(sample.tracer_name, 20)
    return f" ({name}, process {sample.tracer})" if name else f" (process {sample.tracer})"


def _says_nothing(sample: ProcessSample, chosen: ThreadStack) -> bool:
    """Whether only helpers were pasted: no main thread, no user's, none that a rule knows."""
    if any(thread.is_main for thread in sample.threads) or not chosen.frames:
        return False
    known = user_frame(chosen.frames) or _innermost(chosen.frames, "rules")
    return _is_helper(chosen) or (chosen.native and len(sample.threads) > 1 and not known)


def _ending(sample: ProcessSample) -> Meaning | None:
    """That one of its threads aborts, which ends all of them."""
    native = (meaning_of_frames(t.frames) for t in sample.threads if t.native)
    return next((meaning for meaning in native if meaning.kind == "abort"), None)


def _aborting(frames: Sequence[Frame]) -> str:
    """Why a thread aborts, as far as its frames tell."""
    for how, does in _THROWN:
        at = next((i for i, frame in enumerate(frames) if frame.function.startswith(how)), -1)
        if at >= 0:
            by = next((f for f in frames[at + 1 :] if not f.function.startswith(how)), None)
            who = f" in {by.function.removesuffix('()')}" if by and by.function != "??" else ""
            return f"aborting: an error was {does}{who}, and not caught"
    if any(frame.function.startswith("std::terminate") for frame in frames):
        return "aborting: a C++ exception was not caught"
    by = next((f for f in frames if not f.function.startswith(_SIGNALLING)), None)
    return f"aborting in {by.function.removesuffix('()')}" if by else "aborting"


def _uninterruptible(channel: str) -> str:
    for start, _, says in CHANNELS:
        if channel.startswith(start):
            return f"{says}, uninterruptibly ({channel})"
    return f"in an uninterruptible system call ({channel or 'unknown wait channel'})"


def _gil(sample: ProcessSample, chosen: ThreadStack) -> str:
    """What the GIL explains: held by a thread that does not run Python while it holds it."""
    holder = next((t for t in sample.threads if t.holds_gil), None)
    if holder is None or not (holder.active is False or _ends_native(holder)):
        return ""
    place = shown_frame(holder.frames)
    at = f" in {bare_name(place.function)}" if place else ""
    if holder == chosen:
        return f"holding the GIL in native code{at}"
    return f"waiting for the GIL, which thread {holder.name or holder.tid} holds{at}"


def _ends_native(thread: ThreadStack) -> bool:
    return thread.native and bool(thread.frames) and is_native(thread.frames[0])


def _refined(meaning: Meaning, channel: str, *, running: bool) -> Meaning:
    """Let the kernel say how user code waits, where the frames do not."""
    if meaning.kind not in ("user-code", "native", "unknown"):
        return meaning
    if running:
        return Meaning(
            meaning.kind, "running", frame=meaning.frame, site=meaning.site, within=meaning.within
        )
    for start, kind, says in CHANNELS:
        if channel.startswith(start):
            return Meaning(
                kind, says, frame=meaning.frame, site=meaning.site, within=meaning.within
            )
    return meaning


@each_once
@lru_cache(maxsize=65_536)
def meaning_of_frames(frames: tuple[Frame, ...]) -> Meaning:
    """What a stack (innermost first) means by itself."""
    site = user_frame(frames)
    found = _innermost(frames, "rules")
    if found is None:
        found = _innermost(frames, "fallbacks")
        if found is None:
            return _unnamed(frames, site)
    index, rule = found
    function = _name(frames, index)
    says = rule.says.replace("{function}", function)
    if rule.kind == "abort":
        return Meaning("abort", _aborting(frames), frame=frames[index], site=site)
    inner_user = next((f for f in frames[:index] if not is_library(f)), None)
    if inner_user is not None and rule.kind not in _OUTER:
        return Meaning("user-code", "in user code", frame=inner_user, site=inner_user, within=says)
    return Meaning(
        rule.kind,
        says,
        op=rule.op or (function if rule.kind == "collective" else ""),
        frame=frames[index],
        site=site,
        within=_context(frames[index + 1 :], rule.kind),
    )


def _name(frames: Sequence[Frame], index: int) -> str:
    """The function's name; of a comprehension or a lambda that of the function around it."""
    names = (bare_name(frame.function) for frame in frames[index:])
    return next((name for name in names if not name.startswith("<")), frames[index].function)


def _unnamed(frames: Sequence[Frame], site: Frame | None) -> Meaning:
    if not frames:
        return Meaning("unknown", "without a Python frame")
    if site is not None:
        within = _evaluation(frames)
        return Meaning("user-code", "in user code", frame=site, site=site, within=within)
    known = next((frame for frame in frames if frame.function != "??"), frames[0])
    return Meaning("native", f"in {bare_name(known.function)}", frame=known)


def _context(outer: Sequence[Frame], kind: str) -> str:
    """The activity around a call: a collective within a checkpoint, a lock within a loader."""
    for frame in outer:
        rule = next((rule for rule in _rules_for(frame, "rules") if not rule.below), None)
        if rule and rule.kind in (*_OUTER, "compilation", "teardown") and rule.kind != kind:
            return rule.says.replace("{function}", bare_name(frame.function))
    return _evaluation(outer)


def _evaluation(frames: Sequence[Frame]) -> str:
    """That the program evaluates, by the names that such functions have."""
    for frame in frames:
        name = bare_name(frame.function)
        # Libraries validate arguments and schemas, too.
        if name in EVALUATIONS and not (name == "validate" and is_library(frame)):
            return f"evaluating ({name})"
    return ""


def _innermost(frames: Sequence[Frame], table: str) -> tuple[int, FrameRule] | None:
    for index, frame in enumerate(frames):
        for rule in _rules_for(frame, table):
            if not rule.below or _is_below(frames[index + 1 :], rule.below):
                return index, rule
    return None


def _is_below(outer: Sequence[Frame], functions: Sequence[str]) -> bool:
    return any(bare_name(frame.function) in functions for frame in outer)


@lru_cache(maxsize=65_536)
def _rules_for(frame: Frame, table: str) -> tuple[FrameRule, ...]:
    """The rules of a table that know a frame (a rule is hashed slowly: hence its name)."""
    return tuple(rule for rule in _TABLES[table] if _knows(rule, frame))


def _knows(rule: FrameRule, frame: Frame) -> bool:
    if rule.native:
        # NCCL's and MPI's profiling names have a letter more.
        names = frame.function, frame.function.removeprefix("p")
        return is_native(frame) and any(name.startswith(rule.native) for name in names)
    if rule.names:
        return not is_library(frame) and frame.function.endswith(rule.names)
    if rule.functions and bare_name(frame.function) not in rule.functions:
        return False
    return _lies_in(frame.file, rule.paths)


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(
        under(path, place) if place.endswith("/") else same_file(path, place) for place in places
    )


def thread_matters(thread: ThreadStack) -> bool:
    """Whether a thread other than the main one is worth showing.

    It is where it holds the GIL, runs, or does something that a job can hang in; a helper that
    waits for work is not.
    """
    if thread.is_main:
        return True
    if _is_helper(thread):
        return bool(thread.holds_gil)
    kind = meaning_of_frames(thread.frames).kind
    return bool(thread.holds_gil or thread.active) or kind not in (
        "lock",
        "native",
        "idle",
        "unknown",
    )
