"""The table of what frames mean. To teach unhang a library, add a `FrameRule` to `RULES`.

A rule names where a frame must lie and how its function is called; the innermost frame of a stack
that a rule of `RULES` knows gives the meaning. `FALLBACKS` are bare ways to wait (a lock, a socket,
a sleep): they count only where no frame of the stack says more. `CHANNELS` reads the kernel's wait
channel for what Python's frames cannot show, such as `time.sleep`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CHANNELS", "EVALUATIONS", "FALLBACKS", "KINDS", "RULES", "FrameRule"]

KINDS: Final[dict[str, str]] = {
    "collective": "waits in a collective or a send or receive for its peers",
    "init": "sets up a process group, or waits at the rendezvous or the store",
    "teardown": "is shutting down",
    "device-sync": "waits for its device to finish what was launched",
    "backward": "is in the backward pass: device work, or a collective that the hooks issued",
    "data-loader": "loads or waits for data",
    "checkpoint": "saves or loads a checkpoint",
    "file-system": "reads or writes files or remote storage",
    "compilation": "compiles code, or waits for another process that does",
    "network": "talks to a service or waits on a socket",
    "logging": "waits for a logger or an experiment tracker",
    "process": "waits for another process",
    "prompt": "waits for a person at a debugger or a prompt",
    "import": "imports modules",
    "lock": "waits for a lock, an event, a queue or a thread",
    "gil": "waits for the interpreter's lock (GIL), or holds it in native code",
    "sleep": "sleeps",
    "abort": "ends itself: an error that nobody caught, or a failed check of a library",
    "stopped": "is stopped by a signal or a debugger",
    "dead": "has ended and nobody has collected it (zombie)",
    "uninterruptible": "is in an uninterruptible system call: storage, network mount or driver",
    "user-code": "runs, or waits in, the user's own code",
    "idle": "waits for work: a helper thread, or a worker of an engine",
    "native": "is in native code that nothing here knows",
    "unknown": "nothing tells",
}


class FrameRule(NamedTuple):
    """What frames of one kind mean.

    Attributes:
        kind: Key of `KINDS`.
        says: What the process is doing, after "is" or "rank 3 is"; {function} is filled in.
        paths: Files ("threading.py") or folders ("torch/utils/data/"), from the package on.
        functions: Bare names; empty for all of them.
        native: Beginnings of native function names, instead of paths.
        names: Ends of qualified names anywhere ("Loader.__next__"), instead of paths.
        op: What people know the collective as, if not as the function.
    """

    kind: str
    says: str
    paths: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    op: str = ""


_C10D: Final = "torch/distributed/distributed_c10d.py"

RULES: Final[tuple[FrameRule, ...]] = (
    # the end
    FrameRule("abort", "aborting",
        native=("abort", "__GI_abort", "std::terminate", "fatal_error", "__cxxabiv1::__terminate",
                "__gnu_cxx::__verbose_terminate_handler")),
    # process groups
    FrameRule("teardown", "destroying its process group", (_C10D,), ("destroy_process_group",)),
    FrameRule(
        "init",
        "setting up process groups ({function})",
        (_C10D,),
        ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
         "split_group", "_new_process_group_helper", "_store_based_barrier"),
    ),
    FrameRule(
        "collective",
        "waiting in {function}",
        (_C10D,),
        ("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list",
         "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced",
         "_all_gather_base", "gather", "gather_object", "scatter", "scatter_object_list",
         "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all",
         "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend", "irecv",
         "send_object_list", "recv_object_list", "batch_isend_irecv", "_coalescing_manager"),
    ),
    FrameRule("collective", "waiting in {function}",
        ("torch/distributed/_functional_collectives.py", "torch/distributed/nn/functional.py")),
    FrameRule("collective", "waiting in {function} of FSDP",
        ("torch/distributed/fsdp/", "torch/distributed/_composable/fsdp/"),
        ("unshard", "wait_for_unshard", "_wait_unshard", "foreach_all_gather",
         "foreach_reduce", "_unshard", "_reduce_grad", "post_backward")),
    FrameRule("collective", "waiting in {function}", ("deepspeed/comm/", "mpi4py/")),
    FrameRule("collective", "waiting for all ranks in ray.train.report",
        ("ray/train/",), ("_sync_checkpoint_dir_name_across_ranks",),
        op="ray.train.report"),
    FrameRule("collective", "waiting for all ranks in Ray Train's {function}",
        ("ray/train/",), ("barrier", "broadcast_from_rank_zero")),
    FrameRule("collective", "waiting in the pipeline's {function}",
        ("torch/distributed/pipelining/schedules.py",)),
    FrameRule("collective", "waiting in {function} of DDP",
        ("torch/nn/parallel/distributed.py", "torch/distributed/utils.py"),
        ("_verify_param_shape_across_processes", "_sync_module_states", "_sync_buffers",
         "_sync_params_and_buffers", "_distributed_broadcast_coalesced")),
    FrameRule("collective", "waiting in {function}",
        ("vllm/distributed/device_communicators/pynccl_wrapper.py",
         "sglang/srt/distributed/device_communicators/pynccl_wrapper.py", "pynccl_wrapper.py")),
    FrameRule("idle", "waiting for the engine's next message ({function})",
        ("vllm/distributed/device_communicators/shm_broadcast.py",),
        ("dequeue", "acquire_read", "recv", "wait")),
    FrameRule("init", "waiting at the rendezvous ({function})",
        ("torch/distributed/rendezvous.py", "torch/distributed/elastic/rendezvous/",
         "torch/distributed/elastic/utils/store.py")),
    FrameRule("teardown", "aborting its communicators ({function})",
        native=("c10d::ProcessGroupNCCL::abort", "c10d::ProcessGroupNCCL::shutdown",
                "c10d::ProcessGroupNCCL::waitForFutureOrTimeout")),
    FrameRule("collective", "waiting in {function}",
        native=("c10d::ProcessGroup", "c10d::Work", "c10d::ops::", "gloo::", "ncclAllReduce",
                "ncclAllGather", "ncclReduce", "ncclBroadcast", "ncclSend", "ncclRecv",
                "ncclGroupEnd", "ncclEnqueueCheck", "MPI_", "PMPI_", "ucc_", "mscclpp::",
                "ccl_allgather", "ccl_allreduce", "ccl_alltoall", "ccl_barrier", "ccl_broadcast",
                "ccl_reduce", "ccl_coll_create",
                "ncclCommWindowRegister", "tensorrt_llm::plugins::Allgather",
                "tensorrt_llm::plugins::Allreduce", "tensorrt_llm::plugins::ReduceScatter")),
    FrameRule("init", "setting up a communicator ({function})",
        native=("ncclCommInit", "ncclCommSplit", "ncclGetUniqueId", "c10d::TCPStore",
                "c10d::detail::TCPClient", "c10d::PrefixStore")),
    FrameRule("teardown", "destroying a communicator ({function})",
        native=("ncclCommDestroy", "ncclCommAbort", "ncclCommFinalize", "Py_FinalizeEx")),
    # device
    FrameRule("device-sync", "waiting for its device ({function})",
        ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/xpu/__init__.py",
         "torch/accelerator/__init__.py"), ("synchronize",)),
    FrameRule("device-sync", "waiting for its device ({function})",
        native=("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
                "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cudaMemcpy",
                "cuMemcpy", "hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize",
                "hipMemcpy", "at::native::_local_scalar_dense_cuda",
                "c10::cuda::device_synchronize", "c10::cuda::stream_synchronize")),
    FrameRule("backward", "in the backward pass",
        ("torch/autograd/graph.py",), ("_engine_run_backward",)),
    # compiling
    FrameRule("compilation",
        "waiting for another process's build of an extension (a stale lock file?)",
        ("torch/utils/file_baton.py",)),
    FrameRule("compilation", "compiling ({function})",
        ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/aot_autograd.py",
         "torch/utils/cpp_extension.py", "triton/compiler/", "triton/runtime/build.py",
         "triton/runtime/autotuner.py", "numba/core/"),
        ("_compile", "compile", "compile_fx", "compile_inner", "_compile_inner",
         "call_user_compiler",
         "compile_to_fn", "codegen", "load", "_jit_compile", "build", "_build", "run_autotune",
         "_bench", "make_autotune", "wait", "_wait_futures", "result", "autotune_to_one_config",
         "benchmark_all_configs", "_ninja", "_write_ninja_file_and_build_library")),
    # checkpoints and files
    FrameRule("checkpoint", "saving or loading a checkpoint ({function})",
        ("torch/distributed/checkpoint/", "torch/serialization.py", "safetensors/",
         "deepspeed/runtime/checkpoint_engine/", "lightning_fabric/plugins/io/",
         "lightning/fabric/plugins/io/", "megatron/core/dist_checkpointing/",
         "megatron/training/checkpointing.py", "orbax/checkpoint/")),
    FrameRule("checkpoint", "saving or loading a checkpoint ({function})",
        ("transformers/", "accelerate/", "deepspeed/", "lightning/", "pytorch_lightning/",
         "composer/", "diffusers/"),
        ("save_checkpoint", "_save_checkpoint", "load_checkpoint", "_load_checkpoint",
         "save_pretrained", "save_state", "load_state", "save_model", "_save")),
    FrameRule("checkpoint", "saving or loading a checkpoint ({function})",
        names=("save_checkpoint", "load_checkpoint")),
    # data
    FrameRule("data-loader", "starting the data loader's workers ({function})",
        ("torch/utils/data/dataloader.py",), ("__iter__", "_get_iterator")),
    FrameRule("data-loader", "stopping the data loader's workers",
        ("torch/utils/data/dataloader.py",), ("_shutdown_workers", "_clean_up_worker", "__del__")),
    FrameRule("data-loader", "waiting for data ({function})",
        ("torch/utils/data/", "torchdata/", "webdataset/", "streaming/base/", "datasets/",
         "nvidia/dali/", "ffcv/", "tensorflow/python/data/", "mosaicml_streaming/")),
    FrameRule("data-loader", "waiting for data ({function})", ("fairseq/data/",),
        ("__next__", "__iter__", "_chunk_iterator")),
    FrameRule("data-loader", "waiting for data ({function})",
        names=("Loader.__next__", "Loader.__iter__", "Dataset.__getitem__", "Dataset.__iter__",
         "Dataset.__next__", "Sampler.__iter__")),
    FrameRule("file-system", "reading or writing remote storage ({function})",
        ("fsspec/", "s3fs/", "gcsfs/", "adlfs/", "boto3/", "botocore/", "s3torchconnector/",
         "google/cloud/storage/", "huggingface_hub/", "pyarrow/fs.py")),
    FrameRule("file-system", "reading or writing files ({function})",
        ("shutil.py", "pathlib.py", "tempfile.py", "glob.py", "zipfile.py", "tarfile.py",
         "numpy/lib/", "h5py/", "pandas/io/", "pyarrow/", "PIL/Image.py"),
        ("copyfile", "copyfileobj", "copy", "copy2", "copytree", "move", "rmtree", "read_bytes",
         "read_text", "write_bytes", "write_text", "open", "load", "save", "savez", "memmap",
         "__getitem__", "read_table", "read_parquet", "read_csv", "extractall", "read", "glob",
         "stat", "exists", "iterdir", "mkdir")),
    FrameRule("file-system", "waiting for a file lock ({function})", ("filelock/", "portalocker/"),
        ("acquire", "lock", "_acquire", "__enter__")),
    # people and services
    FrameRule("prompt", "waiting at a debugger's prompt",
        ("pdb.py", "bdb.py", "code.py", "IPython/", "ipdb/", "torch/distributed/_pdb.py",
         "debugpy/"), ("interaction", "_cmdloop", "cmdloop", "interact", "wait_for_client",
         "raw_input", "mainloop")),
    FrameRule("logging", "waiting for an experiment tracker ({function})",
        ("wandb/", "mlflow/", "comet_ml/", "neptune/", "clearml/", "aim/sdk/")),
    FrameRule("logging", "writing logs ({function})",
        ("logging/__init__.py", "logging/handlers.py"), ("emit", "acquire", "flush", "handle",
         "send")),
    # ending and beginning
    FrameRule("teardown", "leaving the interpreter ({function})",
        ("threading.py", "multiprocessing/util.py", "concurrent/futures/thread.py",
         "weakref.py"), ("_shutdown", "_exit_function", "_python_exit", "_exitfunc")),
    FrameRule("import", "importing modules",
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")),
)  # fmt: skip

EVALUATIONS: Final = frozenset({
    "do_eval", "eval_epoch", "eval_model", "eval_step", "evaluate", "evaluate_model",
    "evaluation_loop", "evaluation_step", "run_eval", "run_evaluation", "run_validation",
    "test_epoch", "validate", "validate_epoch", "validation", "validation_epoch",
    "validation_loop", "validation_step",
})  # fmt: skip
"""What people call functions that evaluate, in programs and in frameworks."""

FALLBACKS: Final[tuple[FrameRule, ...]] = (
    FrameRule("gil", "waiting for the GIL",
        native=("take_gil", "PyGILState_Ensure", "PyEval_RestoreThread", "_PyEval_TakeGIL")),
    FrameRule("process", "waiting for a child process ({function})", ("subprocess.py",),
        ("wait", "_wait", "communicate", "_communicate", "_try_wait", "check_output", "run",
         "call")),
    FrameRule("process", "waiting for another process ({function})",
        ("multiprocessing/", "torch/multiprocessing/"),
        ("join", "wait", "poll", "get", "recv", "recv_bytes", "_recv", "put", "acquire")),
    FrameRule("process", "waiting for tasks or actors of Ray ({function})",
        ("ray/_private/worker.py",), ("get_objects", "get", "wait")),
    FrameRule("network", "waiting on a socket ({function})",
        ("socket.py", "ssl.py", "http/client.py", "urllib3/", "requests/", "grpc/", "zmq/",
         "httpx/", "httpcore/", "aiohttp/")),
    FrameRule("network", "waiting in an event loop", ("selectors.py", "asyncio/"),
        ("select", "_run_once", "run_forever", "run_until_complete")),
    FrameRule("lock", "waiting in {function} of a queue", ("queue.py",), ("get", "put", "join")),
    FrameRule("lock", "waiting for a thread to end", ("threading.py",),
        ("join", "_wait_for_tstate_lock")),
    FrameRule("lock", "waiting for a future ({function})", ("concurrent/futures/",),
        ("result", "wait", "as_completed", "shutdown")),
    FrameRule("lock", "waiting for a lock or an event", ("threading.py",),
        ("wait", "acquire", "wait_for", "__enter__")),
    FrameRule("sleep", "sleeping",
        native=("clock_nanosleep", "__GI___clock_nanosleep", "nanosleep", "__nanosleep", "pysleep",
                "time_sleep", "usleep", "sleep")),
    FrameRule("process", "waiting for a child process",
        native=("wait4", "__GI___wait4", "waitpid", "waitid", "__waitid")),
    FrameRule("network", "waiting on a socket",
        native=("epoll_wait", "poll", "__GI___poll", "ppoll", "select", "recv", "__libc_recv",
                "accept", "connect", "__libc_connect")),
    FrameRule("file-system", "reading or writing a file or a pipe",
        native=("__GI___libc_read", "__libc_read", "read", "pread", "__libc_pread", "write",
                "__GI___libc_write", "fsync", "openat", "__libc_open", "flock", "fcntl")),
    FrameRule("lock", "waiting for a lock",
        native=("PyThread_acquire_lock", "lock_PyThread", "pthread_cond", "___pthread_cond",
                "pthread_mutex_lock", "___pthread_mutex_lock", "__lll_lock_wait", "futex_",
                "__futex", "sem_wait", "do_futex_wait")),
)  # fmt: skip

IDLE: Final[tuple[FrameRule, ...]] = (
    FrameRule("idle", "a helper thread that waits for work",
        ("torch/utils/data/_utils/pin_memory.py", "tqdm/_monitor.py", "unhang/record/",
         "torch/_inductor/compile_worker/", "tensorboard/summary/writer/",
         "multiprocessing/resource_sharer.py", "torch/distributed/elastic/timer/",
         "prometheus_client/", "ipykernel/", "concurrent/futures/process.py")),
    FrameRule("idle", "a helper thread of NCCL or of torch",
        native=("ncclProxy", "ncclIbAsyncThread", "persistentThread", "persistentSocketThread",
                "ncclRasThread", "c10d::ProcessGroupNCCL::Watchdog",
                "c10d::ProcessGroupNCCL::watchdogHandler",
                "c10d::ProcessGroupNCCL::ncclCommWatchdog",
                "c10d::ProcessGroupNCCL::heartbeatMonitor",
                "c10d::ProcessGroupNCCL::HeartbeatMonitor")),
    FrameRule("idle", "a helper thread that waits for work",
        ("concurrent/futures/thread.py", "multiprocessing/queues.py", "multiprocessing/pool.py"),
        ("_worker", "_feed", "worker", "_handle_tasks", "_handle_workers", "_handle_results")),
)  # fmt: skip
"""Threads that say nothing of the job as long as they wait; looked for from the outermost frame."""

CHANNELS: Final[tuple[tuple[str, str, str], ...]] = (
    # beginning of the kernel's wait channel, kind, what it says
    ("hrtimer_nanosleep", "sleep", "sleeping"),
    ("do_nanosleep", "sleep", "sleeping"),
    ("nfs", "file-system", "waiting for NFS"),
    ("rpc_wait_bit", "file-system", "waiting for NFS"),
    ("ll_", "file-system", "waiting for Lustre"),
    ("ldlm_", "file-system", "waiting for Lustre"),
    ("ptlrpc", "file-system", "waiting for Lustre"),
    ("fuse_", "file-system", "waiting for a FUSE mount"),
    ("request_wait_answer", "file-system", "waiting for a FUSE mount"),
    ("folio_wait", "file-system", "waiting for storage"),
    ("wait_on_page", "file-system", "waiting for storage"),
    ("io_schedule", "file-system", "waiting for storage"),
    ("jbd2_", "file-system", "waiting for the journal of a file system"),
    ("flock_lock", "file-system", "waiting for a file lock"),
    ("fcntl_setlk", "file-system", "waiting for a file lock"),
    ("locks_lock", "file-system", "waiting for a file lock"),
    ("do_wait", "process", "waiting for a child process"),
    ("kernel_waitid", "process", "waiting for a child process"),
    ("pipe_read", "process", "reading from a pipe"),
    ("anon_pipe_read", "process", "reading from a pipe"),
    ("pipe_write", "process", "writing to a pipe that nobody empties"),
    ("anon_pipe_write", "process", "writing to a pipe that nobody empties"),
    ("wait_woken", "network", "waiting on a socket, or for a terminal"),
    ("n_tty_read", "prompt", "reading from a terminal"),
    ("sk_wait", "network", "waiting on a socket"),
    ("inet_", "network", "waiting on a socket"),
    ("tcp_", "network", "waiting on a socket"),
    ("unix_stream", "network", "waiting on a socket"),
    ("__skb_wait", "network", "waiting on a socket"),
    ("ep_poll", "network", "waiting for events"),
    ("do_poll", "network", "waiting for events"),
    ("poll_schedule", "network", "waiting for events"),
    ("do_select", "network", "waiting for events"),
    ("os_acquire", "device-sync", "inside the GPU driver"),
    ("nv_", "device-sync", "inside the GPU driver"),
    ("nvidia", "device-sync", "inside the GPU driver"),
    ("uvm_", "device-sync", "inside the GPU driver"),
    ("rm_", "device-sync", "inside the GPU driver"),
    ("amdgpu", "device-sync", "inside the GPU driver"),
    ("futex", "lock", "waiting for a lock or for other threads of native code"),
)
