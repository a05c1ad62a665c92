"""Trains Hugging Face's Llama with FSDP2 and its CPU offload on one GPU: a peer of bench/cuda/offload.py.

    fsdp_llama.py --model llama-3b [--steps 10] [--warmup 3]

fp32 masters and AdamW states in pinned host memory, bf16 on the GPU, torch's fused AdamW on the CPU; 8 x 2048 random
tokens a step, clip 1.0, gradient checkpointing. Prints a line "figures {...}".
"""

import argparse
import json
import os
import statistics
import time

for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29534"}.items():
    os.environ.setdefault(name, value)

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from shapes import SHAPES
from torch_llama import build

BATCH, SEQUENCE = 8, 2048


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3b", choices=sorted(SHAPES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    torch.cuda.set_device(0)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(1)
    model = build(args.model).float().cpu()
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    options = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        "offload_policy": CPUOffloadPolicy(pin_memory=True),
    }
    for layer in model.model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()  # the whole model was on the GPU while it was made
    times = []
    for step in range(args.warmup + args.steps):
        tokens = torch.randint(0, 32000, (BATCH, SEQUENCE), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= args.warmup:
            times.append(time.perf_counter() - begin)
    gpu = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    print("figures " + json.dumps({"median_s": statistics.median(times), "loss": loss.item(), "gpu": gpu}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
