"""The tables of a case: every column with its type and its meaning, in one place.

The DDL, the columns that are filled, docs/tables.md and the tests all come from here. Units stand
in the names (`_ns`, `_ms`, `_s`); NULL always means "not known". It refuses to hold data.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BY_NAME", "SCHEMA", "TABLES", "VIEWS", "Column", "Table"]

SCHEMA = "unhang.tables/1"


class Column(NamedTuple):
    """One column.

    Attributes:
        absent: The number that stands for "not known" in the case's numpy column, or None.
    """

    name: str
    type: str
    meaning: str
    absent: int | None = None


class Table(NamedTuple):
    """One table or view."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


_CALL = Column("call_id", "BIGINT", "Row of the call, from 0, dump by dump in program order.")
_RANK = Column("rank", "INTEGER", "Global rank.")
_GROUP = Column("group_id", "INTEGER", "The process group, see `groups`.", -1)
_COLLECTIVE = Column(
    "collective_id",
    "BIGINT",
    "The collective to which the call belongs, see `collectives`; NULL for sends and receives.",
    -1,
)
_SEQ = Column("seq", "BIGINT", "Collective sequence number in its group, as recorded.", -1)
_P2P_SEQ = Column("p2p_seq", "BIGINT", "P2P sequence number in its group, as recorded.", -1)
_OP = Column("op", "VARCHAR", 'The operation: "all_reduce", "send"...')
_STATE = Column("state", "VARCHAR", '"scheduled", "started", "completed" or "failed", as recorded.')
_CREATED = Column("created_ns", "BIGINT", "When it was enqueued: host's wall clock, ns.", 0)
_STACK = Column("stack_id", "INTEGER", "Its stack, see `stacks`.", -1)
_SIZE = Column("size", "INTEGER", "Number of members.")

TABLES: tuple[Table, ...] = (
    Table(
        "meta",
        "Facts about this set of tables.",
        (
            Column(
                "key", "VARCHAR", '"schema", "tool_version", "status", "summary", "incident"...'
            ),
            Column("value", "VARCHAR", "Its value."),
        ),
    ),
    Table(
        "ranks",
        "One row for each expected rank, whether it left a dump or not.",
        (
            _RANK,
            Column("status", "VARCHAR", "As in the report: culprit, waiting, ok, silent..."),
            Column("detail", "VARCHAR", "One short phrase about it."),
            Column("head", "VARCHAR", "Its earliest unfinished call, in words."),
            Column("host", "VARCHAR", "Host name, or empty."),
            Column("pid", "BIGINT", "Process id.", -1),
            Column("replica", "VARCHAR", "Replica (torchft), or empty."),
            Column("dumps", "INTEGER", "Number of usable dumps that it left."),
        ),
    ),
    Table(
        "dumps",
        "One row for each file that claims a rank; a rank may have one per recorder.",
        (
            Column("dump_id", "INTEGER", "Number of the dump, from 0."),
            _RANK,
            Column("source", "VARCHAR", "Path as it was read; `archive!member` inside archives."),
            Column("status", "VARCHAR", '"ok", "truncated", "empty" or "unreadable".'),
            Column("backend", "VARCHAR", 'The recorder\'s backend ("nccl", "gloo"), or empty.'),
            Column("version", "VARCHAR", "Format version as written."),
            Column("comm_lib_version", "VARCHAR", "Version of the communication library."),
            Column("reported_by", "VARCHAR", "Whose recorder wrote it."),
            Column("active_only", "BOOLEAN", "It holds unfinished calls only."),
            Column("calls", "BIGINT", "Number of calls read from it."),
            Column("dropped", "BIGINT", "Calls that its ring buffer had lost, as it says itself."),
            Column("host", "VARCHAR", "Host name, or empty."),
            Column("pid", "BIGINT", "Process id.", -1),
            Column("job_id", "VARCHAR", "Job, or empty."),
            Column("attempt", "VARCHAR", "Attempt (restart count), or empty."),
            Column("reason", "VARCHAR", "Why it was written, or empty."),
            Column("time_ns", "BIGINT", "When it was written: host's wall clock, ns.", 0),
            Column("step", "BIGINT", "Training step, where the job told it.", -1),
            Column("main_stack_id", "INTEGER", "Main thread's stack when it was written.", -1),
        ),
    ),
    Table(
        "groups",
        "Process groups: one row for each name, description and set of members.",
        (
            Column("group_id", "INTEGER", "Number of the group, from 0."),
            Column("name", "VARCHAR", "torch's group name; not unique on its own."),
            Column("description", "VARCHAR", 'torch\'s group description ("default_pg", "tp").'),
            _SIZE,
            Column("backend", "VARCHAR", "Backend, or empty."),
            Column("inferred", "BOOLEAN", "Members were inferred from who called on it."),
        ),
    ),
    Table(
        "members",
        "Who is in which group.",
        (
            Column("group_id", "INTEGER", "The group."),
            Column("group_rank", "INTEGER", "Rank inside the group, from 0."),
            _RANK,
        ),
    ),
    Table(
        "calls",
        "Every recorded call of every rank.",
        (
            _CALL,
            Column("dump_id", "INTEGER", "The dump that holds it."),
            _RANK,
            _GROUP,
            _COLLECTIVE,
            Column("name", "VARCHAR", 'The name as recorded: "nccl:all_reduce", "nccl:send 0->1".'),
            _OP,
            Column("backend", "VARCHAR", "Backend in the name, or empty."),
            Column("src_group_rank", "INTEGER", "Sender of a send or receive: *group* rank.", -1),
            Column("dst_group_rank", "INTEGER", "Receiver of a send or receive: *group* rank.", -1),
            _SEQ,
            _P2P_SEQ,
            Column("op_id", "BIGINT", "Logical op counter in its group, as recorded.", -1),
            Column("record_id", "BIGINT", "The recorder's own counter.", -1),
            Column("is_p2p", "BOOLEAN", "It is a send, a receive, or closes a batch of them."),
            _STATE,
            Column("retired", "BOOLEAN", "As recorded; on Gloo also true after a failure."),
            Column("origin", "VARCHAR", '"torch" or "unhang": whose recorder has it.'),
            Column("signature_id", "INTEGER", "Shapes and dtypes, see `signatures`."),
            _STACK,
            Column("thread", "VARCHAR", "Name of the thread that enqueued it, or empty."),
            _CREATED,
            Column("started_ns", "BIGINT", "When it was seen to have started, ns.", 0),
            Column("completed_ns", "BIGINT", "When it was seen to have completed, ns.", 0),
            Column("duration_ms", "DOUBLE", "Device time, ms."),
            Column("timeout_ms", "BIGINT", "Its time-out, ms.", -1),
        ),
    ),
    Table(
        "signatures",
        "Shapes and dtypes, each combination once.",
        (
            Column("signature_id", "INTEGER", "Number, from 0."),
            Column("input_sizes", "BIGINT[][]", "A list of shapes."),
            Column("output_sizes", "BIGINT[][]", "A list of shapes."),
            Column("input_dtypes", "VARCHAR[]", "torch's names: Float, BFloat16..."),
            Column("output_dtypes", "VARCHAR[]", "torch's names."),
            Column("input_numel", "BIGINT", "Number of elements of all inputs."),
            Column("output_numel", "BIGINT", "Number of elements of all outputs."),
        ),
    ),
    Table(
        "collectives",
        "Calls of all members under one sequence number of one group. An absent member is not "
        "always a missing one: its window may not cover the call.",
        (
            Column("collective_id", "BIGINT", "Number, ascending by group and sequence number."),
            Column("group_id", "INTEGER", "The group."),
            Column("seq", "BIGINT", "Sequence number in the group."),
            Column("op", "VARCHAR", "The operation; the most frequent where ranks disagree."),
            Column("ops", "INTEGER", "Number of different operations under it; 1 when all agree."),
            Column("signatures", "INTEGER", "Number of different shapes and dtypes under it."),
            _SIZE,
            Column("joined", "INTEGER", "Members that recorded it."),
            Column("absent", "INTEGER", "Members that did not, for whatever reason."),
            Column("finished", "INTEGER", "Members that recorded it as completed or retired."),
            Column("first_created_ns", "BIGINT", "Earliest arrival, ns, clocks uncorrected.", 0),
            Column("last_created_ns", "BIGINT", "Latest arrival, ns, clocks uncorrected.", 0),
            Column("last_rank", "INTEGER", "The rank that arrived last.", -1),
        ),
    ),
    Table(
        "stacks",
        "Call stacks, each once.",
        (
            Column("stack_id", "INTEGER", "Number, from 0."),
            Column("depth", "INTEGER", "Number of frames."),
            Column("site_frame_id", "INTEGER", "Innermost frame of the user, else of all.", -1),
        ),
    ),
    Table(
        "stack_frames",
        "Which frames a stack is made of.",
        (
            Column("stack_id", "INTEGER", "The stack."),
            Column("depth", "INTEGER", "0 is the innermost frame."),
            Column("frame_id", "INTEGER", "The frame."),
        ),
    ),
    Table(
        "frames",
        "Frames, each once.",
        (
            Column("frame_id", "INTEGER", "Number, from 0."),
            Column("function", "VARCHAR", "Function."),
            Column("file", "VARCHAR", "File."),
            Column("line", "BIGINT", "Line."),
        ),
    ),
    Table(
        "processes",
        "What looks at processes from outside showed (stack samples), one row a look.",
        (
            Column("process_id", "INTEGER", "Number of the look, from 0."),
            Column("rank", "INTEGER", "Global rank.", -1),
            Column("host", "VARCHAR", "Host name."),
            Column("pid", "BIGINT", "Process id.", -1),
            Column("role", "VARCHAR", "rank, launcher, data-loader, helper or unknown."),
            Column("state", "VARCHAR", "The kernel's letter: R, S, D, T, Z."),
            Column("wait_channel", "VARCHAR", "Kernel function in which it waits."),
            Column("command", "VARCHAR", "Command line."),
            Column("sample", "INTEGER", "0 for the first look, 1 for the second..."),
            Column("time_ns", "BIGINT", "When: host's wall clock, ns.", 0),
            Column("cpu_s", "DOUBLE", "CPU time used so far, s.", -1),
            Column("tool", "VARCHAR", "What made it: py-spy, gdb..."),
            Column("error", "VARCHAR", "Why there is no stack, or empty."),
            Column("exit_status", "INTEGER", "Exit code, 128 + n for signal n."),
        ),
    ),
    Table(
        "threads",
        "Threads of those processes, with their stacks.",
        (
            Column("process_id", "INTEGER", "The look, see `processes`."),
            Column("tid", "BIGINT", "Thread id.", -1),
            Column("name", "VARCHAR", "Thread name."),
            Column("is_main", "BOOLEAN", "The main thread."),
            Column("holds_gil", "BOOLEAN", "Whether it held the GIL."),
            Column("active", "BOOLEAN", "Whether it was running."),
            Column("native", "BOOLEAN", "Whether the stack may hold C or C++ frames."),
            _STACK,
        ),
    ),
    Table(
        "group_status",
        "Counters that each dump keeps of each group. On Gloo they count P2P calls as well.",
        (
            Column("dump_id", "INTEGER", "The dump."),
            _RANK,
            _GROUP,
            Column("pg_id", "INTEGER", "Local id in that process; it means nothing elsewhere.", -1),
            Column(
                "joined_by", "VARCHAR", 'How the group is known: "entries", "order" (inferred).'
            ),
            Column("last_enqueued", "BIGINT", "Last enqueued.", -1),
            Column("last_started", "BIGINT", "Last seen to start.", -1),
            Column("last_completed", "BIGINT", "Last seen to complete.", -1),
        ),
    ),
    Table(
        "log_events",
        "Lines of logs that a rule knows.",
        (
            Column("code", "VARCHAR", "The rule's finding code."),
            Column("role", "VARCHAR", "cause, consequence, observation, hint or noise."),
            Column("rank", "INTEGER", "Global rank.", -1),
            Column("host", "VARCHAR", "Host name, or empty."),
            Column("time_ns", "BIGINT", "When, ns.", 0),
            Column("position", "BIGINT", "Place in the whole input."),
            Column("text", "VARCHAR", "The line."),
            Column("source", "VARCHAR", "`file:line`."),
            Column("count", "BIGINT", "How often this rank said it."),
        ),
    ),
    Table(
        "findings",
        "The verdict; causes before consequences. See docs/library.md for the fields.",
        (
            Column("finding_id", "VARCHAR", '"f1".'),
            Column("code", "VARCHAR", "Finding code."),
            Column("slug", "VARCHAR", "Its short name."),
            Column("family", "VARCHAR", "absent, disagreement, deadlock…: its sort of trouble."),
            Column("role", "VARCHAR", "cause, consequence or observation."),
            Column("confidence", "VARCHAR", "high, medium or low."),
            Column("summary", "VARCHAR", "One sentence."),
            Column("culprits", "INTEGER[]", "Ranks at fault; may be empty."),
            Column("victims", "INTEGER[]", "Ranks that wait."),
            Column("group_name", "VARCHAR", "Group of the call, or empty."),
            _SEQ,
            Column("op", "VARCHAR", "Operation of the call, or empty."),
            Column("caused_by", "VARCHAR[]", "Findings of which it is a consequence."),
            Column("evidence", "VARCHAR[]", "Sentences."),
            Column("alternatives", "VARCHAR[]", "What else it could be."),
            Column("actions", "VARCHAR[]", "What to do next."),
        ),
    ),
    Table(
        "notes",
        "Everything that was skipped, cut, repaired or inferred.",
        (
            Column("level", "VARCHAR", "info, warning or error."),
            Column("source", "VARCHAR", "File, rank or step that it is about."),
            Column("text", "VARCHAR", "One sentence."),
        ),
    ),
)

BY_NAME = {table.name: table for table in TABLES}

_GROUP_NAME = Column("group_name", "VARCHAR", "torch's group name.")
_GROUP_DESCRIPTION = Column("group_description", "VARCHAR", "torch's group description.")
_SITE = Column("site", "VARCHAR", "`file:line function` of the innermost frame outside torch.")

VIEWS: tuple[Table, ...] = (
    Table(
        "calls_flat",
        "Calls with group, shapes and call site in words: the view to start with.",
        (
            _CALL,
            _RANK,
            Column("host", "VARCHAR", "Host of the rank, or empty."),
            _GROUP_NAME,
            _GROUP_DESCRIPTION,
            Column("group_size", "INTEGER", "Number of members."),
            _SEQ,
            _P2P_SEQ,
            _OP,
            Column("peer", "INTEGER", "The other *global* rank of a send or receive."),
            Column("input_sizes", "BIGINT[][]", "A list of shapes."),
            Column("input_dtypes", "VARCHAR[]", "torch's names."),
            _STATE,
            Column("retired", "BOOLEAN", "As recorded."),
            Column("finished", "BOOLEAN", "Completed or retired, or its batch is."),
            _CREATED,
            Column("waited_ms", "DOUBLE", "From enqueueing to the dump's last sign of life, ms."),
            _SITE,
            _COLLECTIVE,
        ),
    ),
    Table(
        "stuck_calls",
        "Calls that have not finished, oldest first, with who is absent from each.",
        (
            _CALL,
            _RANK,
            _GROUP_NAME,
            _GROUP_DESCRIPTION,
            _SEQ,
            _P2P_SEQ,
            _OP,
            Column("peer", "INTEGER", "The other *global* rank of a send or receive."),
            _STATE,
            _CREATED,
            _SITE,
            Column("group_size", "INTEGER", "Number of members."),
            Column("joined", "INTEGER", "Members that recorded the collective."),
            Column("absent_ranks", "INTEGER[]", "Members that did not, for whatever reason."),
        ),
    ),
    Table(
        "arrivals",
        "Who came when to each collective; `late_ms` is not corrected for clocks that differ.",
        (
            _COLLECTIVE,
            _GROUP_NAME,
            _GROUP_DESCRIPTION,
            _SEQ,
            _OP,
            _RANK,
            _CREATED,
            Column("late_ms", "DOUBLE", "Behind the first to arrive, ms."),
            Column("place", "BIGINT", "1 for the first to arrive."),
            Column("is_last", "BOOLEAN", "Nobody arrived later."),
        ),
    ),
)
