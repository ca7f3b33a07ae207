"""Serving engines and trainers with a server that stand still, with the titles of real ones.

What runs is ours; real are the processes, their pipes and sockets, torch's Gloo groups, and what is
asked of them. After vLLM and SGLang are named: titles of processes, files and functions of the
frames, the order in which a process waits for another, and the lines of the log. A real engine on a
CPU takes minutes to start and a gigabyte to install; its loops are these.
"""
