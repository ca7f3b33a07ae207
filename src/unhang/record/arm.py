"""Arming: the public functions, and the moments at which the recorder takes hold of a process.

It happens in three steps, so that processes which never communicate pay next to nothing: torch's
methods are wrapped and a mark is written when torch.distributed is imported. Socket, pipe and
heartbeat come when `init_process_group` is entered; the rank is known when it has returned.
Nothing here may raise into the job: what fails is noted and reported as `failures`.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record import process
from unhang.record.calls import full, groups, rpc, stores, wrap
from unhang.record.calls.making import Making
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Foreign
from unhang.record.contact import marks, opening
from unhang.record.contact.beatlayout import Phase
from unhang.record.contact.meeting import RpcWorker, told_by, told_rpc
from unhang.record.contact.triggers import TriggerThread
from unhang.record.crash import CrashWatch
from unhang.record.dumps import dumpfile
from unhang.record.dumps.staging import stage_torch_dumps
from unhang.record.dumps.taking import take
from unhang.record.headroom import few_descriptors, little_memory
from unhang.record.passing import pass_lines_on
from unhang.record.statement import Meeting
from unhang.torchenv import settle

C10D: Final = "torch.distributed.distributed_c10d"
RPC: Final = "torch.distributed.rpc"
EXIT_WAIT_S: Final = 5.0


class _Armed:
    """What this process has armed; emptied in a forked child."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.watcher: TriggerThread | None = None
        self.crash: CrashWatch | None = None
        self.by = ""


_armed = _Armed()
_lock = threading.RLock()


# ------------------------------------------------------------------ public


def arm() -> None:
    """Arm the recorder in this process; what `unhang run` does from outside.

    Call it before or after `init_process_group`, once or more often. It imports
    torch.distributed, and never raises for what goes wrong inside the recorder.
    """
    import torch.distributed as dist

    if os.environ.get("UNHANG_ARM") == "0":
        return
    on_import(sys.modules[C10D], by="code")
    if RPC in sys.modules:
        on_rpc(sys.modules[RPC])
    if dist.is_available() and dist.is_initialized():
        _guarded("arming a running job", _catch_up)


def armed() -> bool:
    """Whether this process is armed."""
    return _armed.recorder is not None


def step(number: int) -> None:
    """Say which training step the program is in: it goes into heartbeat and dumps.

    Without effect where nothing is armed.
    """
    recorder = _armed.recorder
    if recorder is not None:
        recorder.state.step = number
        recorder.beat.step(number)


def phase(name: str) -> None:
    """Say what the program does when that is no step: "evaluation", "checkpoint"; "" ends it.

    Verdicts tell it of a rank for which others wait. Without effect where nothing is armed.
    """
    recorder = _armed.recorder
    if recorder is not None:
        recorder.beat.tell(name)


@contextmanager
def idle() -> Iterator[None]:
    """Say that the program waits for work, for as long as the block lasts.

    For loops in which one rank waits for requests and the others for that rank: no verdict calls
    that stuck, and nothing is ended. Without effect where nothing is armed.

        >>> with unhang.idle():                    # doctest: +SKIP
        ...     request = requests.get()
    """
    phase("idle")
    try:
        yield
    finally:
        phase("")


def dump() -> list[Path]:
    """Write this process's dumps into a new incident directory, with stacks.

    Works in processes that are not armed too, with what torch has recorded.

    Returns:
        The files, one per recorder; empty where nothing could be written (the heartbeat's
        `failures`, or the next dump, say why).
    """
    recorder = _recorder()
    incident = take(recorder, "api")
    incident.add_stacks(recorder)
    return incident.files


def dump_bytes(
    backend: str = "",
    *,
    include_collectives: bool = True,
    include_stack_traces: bool = True,
    only_active: bool = False,
) -> bytes:
    """This process's dump as bytes: torch's layout, with the key `unhang`.

    Args:
        backend: Which recorder's dump; the first one's by default.
        include_collectives: With entries.
        include_stack_traces: With the stack of each entry.
        only_active: Only entries that have not ended.

    Returns:
        A pickle of protocol 2 without globals.

    Raises:
        LookupError: There is no such recorder here, or nothing was recorded.
    """
    found = dumpfile.collect(
        _recorder(),
        collectives=include_collectives,
        stacks=include_stack_traces,
        own_stacks=include_stack_traces,
        only_active=only_active,
    )
    for candidate in found:
        if backend in ("", candidate.backend):
            return dumpfile.encode(candidate.content)
    raise LookupError(f"no recorder of {backend or 'any backend'} holds any call in this process")


def _recorder() -> Recorder:
    """The recorder that is armed, or a fresh one that sees only what torch has."""
    return _armed.recorder or Recorder(process.process())


# ------------------------------------------------------------------ step 1: the import


def on_import(module: Foreign, by: str) -> None:
    """torch.distributed was imported: wrap its methods, write the mark.

    Args:
        module: torch.distributed.distributed_c10d.
        by: "hook" or "code".
    """
    if not hasattr(module, "_new_process_group_helper"):
        return  # a torch without distributed
    with _lock:
        _armed.by = _armed.by or by
        _guarded("arming", lambda: _wrap_torch(module))
        _guarded("arming", _begin)


def on_rpc(module: Foreign) -> None:
    """torch.distributed.rpc was imported: wrap what waits in it, and its beginning and end."""
    with _lock:
        if _armed.recorder is None or not hasattr(module, "init_rpc"):
            return
        _guarded("RPC", lambda: rpc.install(module))
        if not hasattr(module.init_rpc, "__unhang__"):
            module.init_rpc = _around_init_rpc(module.init_rpc)
            for owner in (module, module.api):
                owner.shutdown = _around_shutdown(owner.shutdown)


def _wrap_torch(module: Foreign) -> None:
    """Wrap torch's methods and the three functions that tell of groups; once a process."""
    if wrap.installed():
        return
    os.register_at_fork(after_in_child=_after_fork)
    settings = process.process().settings
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    wrap.install(module.ProcessGroup, module.Work, tensor, compiled=settings.compiled)
    if (store := getattr(module, "Store", None)) is not None:
        stores.install(store)
    for name, wrapper in (
        ("init_process_group", _around_init),
        ("destroy_process_group", _around_destroy),
        ("_new_process_group_helper", _around_new_group),
        ("batch_isend_irecv", _around_batch),
    ):
        original = getattr(module, name, None)
        if original is None:
            process.process().failures.add(f"this torch has no {name}")
            continue
        replacement = wrap.not_compiled(wrapper(original))
        for owner in (module, sys.modules.get("torch.distributed")):
            if owner is not None and getattr(owner, name, None) is original:
                setattr(owner, name, replacement)


def _begin() -> None:
    """The state of this process, its recorder and its mark."""
    if _armed.recorder is not None:
        return
    state = process.process()
    state.armed_by, state.armed_ns = _armed.by, time_ns()
    recorder = Recorder(state, on_timeout=_on_timeout)
    _armed.recorder = recorder
    wrap.attach(recorder)
    _guarded("output", lambda: pass_lines_on(state.role))
    _guarded("torch's dumps", stage_torch_dumps)
    _guarded("torch's settings", _tidy_settings)
    try:
        state.directory = marks.job_dir(state.job_id)
    except OSError as error:
        state.failures.add("no runtime directory", error)
    state.write_mark()


def _tidy_settings() -> None:
    """Take back the names that this torch would call deprecated, before it reads them."""
    settle(os.environ, str(getattr(sys.modules.get("torch"), "__version__", "")))


# ------------------------------------------------------------------ step 2: init is entered


def _initialising(told: Meeting | None = None) -> None:
    """Open what others may ask us through: a rank can hang in the rendezvous too."""
    _begin()
    recorder = _armed.recorder
    if recorder is None:
        return
    recorder.state.told = told or recorder.state.told
    if _armed.crash is not None:
        recorder.state.enter(Phase.INITIALISING)
        return
    _armed.crash = crash = CrashWatch(recorder, _at_exit)
    _guarded("heartbeat", lambda: opening.open_heartbeat(recorder))
    _guarded("heartbeat", lambda: wrap.attach(recorder))
    state = recorder.state
    memory = little_memory()
    state.limited = few_descriptors() or memory
    if state.limited:
        state.failures.add(f"the recorder makes do with its heartbeat: {state.limited}")
    if not memory:
        _guarded("socket", lambda: _start_watcher(recorder))
    if not state.limited:
        _guarded("faulthandler", lambda: opening.open_faults(recorder, crash))
    _guarded("exits", crash.note_exits)
    recorder.state.enter(Phase.INITIALISING)


def _start_watcher(recorder: Recorder) -> None:
    _armed.watcher = opening.open_socket(recorder)


# ------------------------------------------------------------------ step 3: init has returned


def _ready() -> None:
    """This process is a rank."""
    recorder = _armed.recorder
    if recorder is None:
        return
    dist: Foreign = sys.modules["torch.distributed"]
    state = recorder.state
    groups.note_groups(state)
    if not state.limited:
        _guarded("worker server", lambda: opening.open_worker(recorder))
    crash, watcher = _armed.crash, _armed.watcher
    if crash is not None:
        crash.chain_excepthook()
        if watcher is not None:
            _guarded("signal", lambda: opening.take_signal(recorder, crash, watcher))
    state.becomes(dist.get_rank(), dist.get_world_size())


def _worker_ready(worker: RpcWorker) -> None:
    """This process is a worker of RPC, and so a rank, unless a process group has made it one."""
    recorder = _armed.recorder
    if recorder is None:
        return
    rpc.named(worker.name, worker.threads)
    if recorder.state.role == "rank" or worker.rank < 0:
        return
    if _armed.crash is not None:
        _armed.crash.chain_excepthook()
    recorder.state.becomes(worker.rank, worker.size)


def _catch_up() -> None:
    """Armed by code after `init_process_group`: the groups that exist are adopted as they are."""
    recorder = _armed.recorder
    if recorder is not None and recorder.state.phase in (Phase.IMPORTED, Phase.DESTROYED):
        _initialising()
        _ready()


# ------------------------------------------------------------------ torch's functions


def _around_init(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*args: Foreign, **kwargs: Foreign) -> Foreign:
        _guarded("init_process_group", lambda: _initialising(told_by(args, kwargs)))
        with _failing():
            result = original(*args, **kwargs)
        _guarded("init_process_group", _ready)
        return result

    return init_process_group


@contextmanager
def _failing() -> Iterator[None]:
    """What sets up a process and fails may end it: its error is ours to see, as of a rank's."""
    try:
        yield
    except BaseException:
        if _armed.crash is not None:
            _guarded("excepthook", _armed.crash.chain_excepthook)
        raise


def _around_destroy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def destroy_process_group(*args: Foreign, **kwargs: Foreign) -> Foreign:
        recorder = _armed.recorder
        if recorder is not None:
            _guarded("groups", lambda: groups.note_groups(recorder.state))
        result = original(*args, **kwargs)
        dist: Foreign = sys.modules["torch.distributed"]
        if recorder is not None and not dist.is_initialized():
            _guarded("destroy_process_group", lambda: recorder.state.enter(Phase.DESTROYED))
        return result

    return destroy_process_group


def _around_init_rpc(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_rpc(*args: Foreign, **kwargs: Foreign) -> Foreign:
        worker = told_rpc(args, kwargs)
        _guarded("init_rpc", lambda: _initialising(worker.meeting))
        with _failing():
            result = original(*args, **kwargs)
        _guarded("init_rpc", lambda: _worker_ready(worker))
        return result

    init_rpc.__unhang__ = True  # type: ignore[attr-defined]
    return init_rpc


def _around_shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def shutdown(*args: Foreign, **kwargs: Foreign) -> Foreign:
        result = original(*args, **kwargs)
        dist: Foreign = sys.modules["torch.distributed"]
        if _armed.recorder is not None and not dist.is_initialized():
            _guarded("shutdown", lambda: process.process().enter(Phase.DESTROYED))
        return result

    return shutdown


def _around_new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    making = Making()

    @functools.wraps(original)
    def _new_process_group_helper(*args: Foreign, **kwargs: Foreign) -> Foreign:
        recorder = _armed.recorder
        if recorder is None:
            return original(*args, **kwargs)
        with _noted(recorder, making, sys._getframe(1), args, kwargs):
            made, store = original(*args, **kwargs)
        return _adopted(recorder, made), store

    return _new_process_group_helper


@contextmanager
def _noted(
    recorder: Recorder,
    making: Making,
    frame: FrameType,
    args: tuple[Foreign, ...],
    kwargs: dict[str, Foreign],
) -> Iterator[None]:
    """Have a group in the heartbeat while it is made."""
    beat, noted = recorder.beat, False
    try:
        noted = making.begins(beat, frame, args, kwargs)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("new groups", error)
    try:
        yield
    except BaseException:
        if noted:
            beat.failed()
        raise
    finally:
        if noted:
            beat.enqueued()


def _adopted(recorder: Recorder, made: Foreign) -> Foreign:
    """The group to use: a recording one where torch does not record this backend."""
    try:
        c10d: Foreign = sys.modules[C10D]
        if isinstance(made, c10d.ProcessGroup) and full.wanted(made, recorder.state.settings.full):
            return full.adopt(made)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("full recorder", error)
    return made


def _around_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """batch_isend_irecv coalesces only for the exact type ProcessGroup: ours must not lose that."""

    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: Foreign) -> Foreign:
        return full.batch(original, p2p_op_list)

    return batch_isend_irecv


# ------------------------------------------------------------------ ends


def _on_timeout() -> None:
    """A call ran into its time-out: dump at once, resolve the stacks in the thread."""
    recorder = _armed.recorder
    if recorder is None:
        return
    try:
        incident = take(recorder, "timeout")
        if incident.files and _armed.watcher is not None:
            _armed.watcher.later(lambda: incident.add_stacks(recorder))
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("dump after a time-out", error)


def _at_exit() -> None:
    """The thread finishes what it has begun; then the mark says that we are gone."""
    if _armed.watcher is not None:
        _armed.watcher.stop(EXIT_WAIT_S)
    recorder = _armed.recorder
    if recorder is not None:
        for path in (recorder.state.socket, recorder.state.fifo, recorder.state.worker_socket):
            if path:
                Path(path).unlink(missing_ok=True)
        _guarded("exit", lambda: recorder.state.enter(Phase.EXITED))


def _after_fork() -> None:
    """A forked child has none of the parent's threads, files and identity: it starts afresh.

    It is armed again when it makes a process group itself.
    """
    global _armed, _lock
    before, _armed, _lock = _armed, _Armed(), threading.RLock()
    _armed.by = before.by
    wrap.detach()
    groups.forget_channels()
    rpc.forget()
    process.reset()
    if before.watcher is not None:
        before.watcher.close()
    if before.crash is not None:
        before.crash.release()


def _guarded(what: str, work: Callable[[], None]) -> None:
    """Do a part of arming; its failure is noted, and the job goes on."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        process.process().failures.add(what, error)
