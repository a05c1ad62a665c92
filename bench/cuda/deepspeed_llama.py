"""Trains Hugging Face's Llama with the real DeepSpeed on one GPU: a peer of bench/cuda/offload.py and bench/cuda/python_llama.py.

    deepspeed_llama.py --model llama-3b --stage 2 [--resident] [--ratio 0.5] [--steps 10] [--warmup 3]

8 x 2048 random tokens a step, bf16, clip 1.0, gradient checkpointing. Prints a line "figures {...}".
"""

import argparse
import json
import os
import statistics
import time

for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}.items():
    os.environ.setdefault(name, value)

import deepspeed
import torch

from shapes import SHAPES
from torch_llama import build

BATCH, SEQUENCE = 8, 2048


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3b", choices=sorted(SHAPES))
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--resident", action="store_true", help="the optimizer on the GPU, in place of the host")
    parser.add_argument("--ratio", type=float, default=1.0, help="the share of the optimizer that the CPU updates (Twin-Flow, stage 3)")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    if "shoal" in deepspeed.__version__:
        raise SystemExit("this is Shoal answering as deepspeed; run it with a Python that has the real one")
    torch.manual_seed(1)
    model = build(args.model)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "steps_per_print": 10**9,
        "zero_optimization": {"stage": args.stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}},
    }
    if not args.resident:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": True, "ratio": args.ratio}
    torch.cuda.synchronize()
    start = time.perf_counter()
    engine = deepspeed.initialize(model=model, config=config)[0]
    times, first_step_s = [], None
    for step in range(args.warmup + args.steps):
        tokens = torch.randint(0, 32000, (BATCH, SEQUENCE), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        torch.cuda.synchronize()
        if step == 0:
            first_step_s = time.perf_counter() - start
        if step >= args.warmup:
            times.append(time.perf_counter() - begin)
    gpu = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    figures = {"median_s": statistics.median(times), "first_step_s": first_step_s, "loss": loss.item(), "gpu": gpu}
    print("figures " + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
