"""A healthy rank: some all_reduces on Gloo, then a word and a good end.

`few_calls.py CALLS [SECONDS]`: so many calls, with a pause after each.
"""

import sys
import time

import torch
import torch.distributed as dist

calls, pause_s = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
dist.init_process_group("gloo")
for number in range(calls):
    dist.all_reduce(torch.ones(4))
    if not number and dist.get_rank() == 0:
        print("begun", flush=True)
    time.sleep(pause_s)
dist.destroy_process_group()
print("done", flush=True)
