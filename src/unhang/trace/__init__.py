"""Call traces: Python calls per process into bounded files that survive a kill, and system calls.

`hook` and `agent` run inside the traced program (standard library only); `reading` and `syscalls`
judge what they left. Nothing here decides about a whole job: it says where a process stood.
"""
