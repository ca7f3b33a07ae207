"""One of two Gloo ranks with torch's own servers: rank 1 never comes to the second all_reduce.

Started with TORCH_WORKER_SERVER_SOCKET (a socket a rank) and the port of torch's debug server.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server
from torch.distributed.elastic.control_plane import worker_main


@worker_main()
def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    start_debug_server(port=int(sys.argv[1]), fetch_timeout=20.0)
    dist.all_reduce(torch.ones(4))
    print("ready", flush=True)
    if dist.get_rank() == 1:
        time.sleep(1_000)
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main()
