"""One rank of torch.distributed's gloo beside bench_collectives: the same sizes, the same lines. Started by bench/hosts.py.

    collectives.py [megabytes ...]
"""

import sys
import time

import torch
import torch.distributed as dist

ROUNDS = 12


def fastest(call):
    best = float("inf")
    for _ in range(ROUNDS):
        dist.barrier()
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    for megabytes in map(int, sys.argv[1:] or (8, 32, 128)):
        whole = torch.ones((megabytes << 20) // 4 // world * world)
        shard = torch.ones(whole.numel() // world)
        reduce_s = fastest(lambda: dist.reduce_scatter_tensor(shard, whole))
        gather_s = fastest(lambda: dist.all_gather_into_tensor(whole, shard))
        if dist.get_rank() == 0:
            print(f"torch gloo {megabytes} MiB reduce_scatter {reduce_s * 1e3:.2f} ms all_gather {gather_s * 1e3:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
