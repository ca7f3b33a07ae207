"""What a process does, estimated in one place from what the kernel counts of it over time.

A `Series` holds the newest looks at a process; `estimate` says what they amount to. Alarm, verdict
and decision read the estimate, so that no two of them hold a rank for different things. Every
number that it rests on stands in `thresholds`, with its reason and with what was recorded of both
sides (`python -m lab activity`).
"""
