"""`unhang run`: the supervisor next to a user's job. It watches, collects and has the case judged.

Nothing here may disturb the job: the child gets the wrapper's standard streams, signals and
exit code, and whatever fails in here ends in a note. Everything before the child's start is the
standard library only; numpy and the rest of the house are loaded in a process of their own, once
there is a case to judge.
"""
