"""The numbers that tell what moves: a process, a job, a rank among its peers; each with its reason.

"Recorded" are the series of tests/data/activity (`python -m lab activity record`): processes that
are known to get on, and processes that never will. `python -m lab activity score` shows how far
each number lies from the nearest series of either side.
"""

from __future__ import annotations

from typing import Final

APART_S: Final = 1.0
"""Looks are a second apart, and so were those of the recorded series."""

WINDOW_LOOKS: Final = 30
"""Looks that are kept: half a minute at one a second, so that the burst of a monitor is no work of
a rank that is stuck, and a rank that stops counts as working for no longer."""

SETTLED_LOOKS: Final = 8
"""Looks without a wake-up that tell a blocked thread from one that polls: the slowest poll that was
recorded (`queue.get(timeout=5)`) wakes once in five. So many on a few lines make a loop of it."""

COMPUTING_CORES: Final = 0.05
"""CPU time of one core. Recorded polls took 0.007 at most (a hundred looks at a file a second);
programs that compute, 0.26 and more, three at once on two cores."""

MOVING_BYTES: Final = 1 << 16
"""Bytes per second. Stuck programs next to monitors had 1 KB/s, jobs that started 47 KB/s,
slow checkpoints 120 KB/s and more."""

FLOWING_BYTES: Final = 4 * MOVING_BYTES
"""The same for the alarm, between two looks and over the whole window: what it holds for work keeps
it back for an hour, so a monitor that writes in bursts next to a stuck rank must not count."""

TRICKLING_BYTES: Final = 1 << 13
"""Bytes per second to and from devices, or over TCP where the main thread waits on a socket. A log
that is flushed each second dirties a page a second, half of this, and a store that was polled ten
times a second had 0.24 KB/s; a checkpoint onto slow storage wrote 23 KB/s, recorded 27 KB/s, and a
download that trickles has 20 KB/s and more."""

HELPED_CORES: Final = 0.02
"""CPU time of children, of one core, while the main thread waits for them. Children that waited
had none; converters and loader workers 0.05 and more, and 0.04 where all cores were taken."""

TASK_CORES: Final = 0.3
"""CPU time of Ray's other tasks and actors together, of one core. Those that keep house took 0.07
next to three ranks."""

OFTEN: Final = 2
"""Looks in which something must show to happen again and again: once is an accident, or a last
word."""

LEAST_LOOKS: Final = OFTEN + 1
"""So many intervals are the least in which something can show again; so many of the newest tell of
now."""

STARTING_LOOKS: Final = WINDOW_LOOKS // 3
"""Looks of a window in which a compilation has started new processes; a monitor starts one every
few seconds, six in a window at most."""

TURN_S, TURN_CORES = 0.000_5, 0.004
"""CPU time each time that the main thread goes on, and the least share of a core. Recorded polls of
files, folders, queues, stores took 0.03 to 0.24 ms a turn; the smallest batches 2 to 3 ms."""

RARE_TURN_S: Final = 3 * TURN_S
"""The same where it sleeps for seconds between turns: caches are cold then, and polls took up to
1.2 ms (2,000 files listed); a batch of an evaluation 2.6 ms and more, recorded 20 ms."""

FEW_LINES: Final = 3
"""A loop that waits for something is seen on as many lines; programs that get on, on more."""

# ------------------------------------------------------------------ a job (run/watching/watch.py)

SURVIVED_FACTOR: Final = 2.0
"""A pause twice as long as the longest one that was survived is not explained by history."""

IDLE_FACTOR: Final = 3.0
"""The same where no call waits: the ranks may simply be between two phases of the program."""

BUSY_FACTOR: Final = 12.0
"""How much longer the ranks may stay away from communication while one computes or reads."""

AUTO_LEAST_S: Final = SETTLED_LOOKS * APART_S
"""No shorter quiet is suspicious, whatever the rhythm: a garbage collection, a slow disk."""

AUTO_FACTOR: Final = 5.0
"""So many times its longest standstill makes one an alarm, once the job's rhythm is known."""

AUTO_AFTER: Final = 20
"""So many looks that saw progress make a rhythm: a first step says nothing of the second."""

# ------------------------------------------------------------------ a rank (run/watching/pace.py)

BLOCK_NS: Final = 750_000_000
"""Own times are summed over at least so long: a step of many calls counts as a whole."""

BLOCKS: Final = 18
"""So many of the newest blocks must agree, in thirds of their own; or two or four times as many.
As many as one third, the first ones are warm-up."""

LEAST_EXCESS: Final = 0.07
"""A rank that needs 7 % longer than the others is slow; jitter of healthy ones stays below that."""

LEAST_OF_TWO: Final = 0.12
"""With one other rank alone nothing tells how far healthy ones differ."""

ERRORS: Final = 5.5
"""And by so many times what the other ranks differ by among each other, and what chance makes. Set
on simulated jobs (benchmarks/simulated.py): recorded ones of both sides are missing."""

SUSPECT_ERRORS: Final = 2.0
"""So many of what chance makes are enough to look again soon."""

LEAST_MS: Final = 0.2
"""Per call: less is the order in which a host wakes its processes."""
