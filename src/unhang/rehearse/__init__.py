"""Run a job without its devices, match what its ranks call, and say where they cannot meet.

Every rank runs the user's script in a process of its own, on the CPU. Its process groups know no
network: each call goes to the referee in our process (`referee`), which says when a call may end,
by the rules of who must meet whom (`agreement`). Where all ranks wait and no call can end any more,
that is the end state. It is written down as dumps (`endstate`) and judged by the same analysis as
those of a job that hung; `proof` adds what only a rehearsal knows. `inside` is what runs in the
ranks. One part serves two: the lab's simulator has its rules from here.
"""
