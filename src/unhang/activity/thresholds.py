"""The numbers that the estimate of activity rests on, each with its reason.

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
