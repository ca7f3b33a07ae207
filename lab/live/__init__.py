"""Real jobs with a fault in them: the live half of the lab.

`faults` is the table of what can be had, `jobs/` are the training scripts (their lines are the
truth, marked by comments that `markers` reads), `job` runs the processes, `side/` is what looks
out of each of them, and `capture` waits until exactly the right ranks are stuck and keeps what
torch's recorder holds then. Nothing here judges: that is the analysis' business.
"""
