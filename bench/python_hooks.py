"""Measures what the engine's hooks cost a block: a stack of blocks that compute next to nothing, through an engine at
stage 3 and without one, in turns. The difference over the blocks is the cost of one.

    python_hooks.py [--device cuda] [--blocks 64] [--rounds 15]

A block has two tensors that are sharded. On a GPU a pass ends with a synchronisation.
"""

import argparse
import copy
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))  # unless it is installed
os.environ.setdefault("OMP_NUM_THREADS", "1")
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "steps_per_print": 0,
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * self.scale + self.shift


class Stack(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def seconds_of(call, device):
    begin = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--passes", type=int, default=10, help="in one round")
    args = parser.parse_args()
    import shoal

    torch.set_num_threads(1)
    plain = Stack(args.blocks).to(args.device)
    hooked = copy.deepcopy(plain)
    engine = shoal.initialize(hooked, CONFIG)
    optimizer = torch.optim.AdamW(plain.parameters(), fused=args.device == "cuda")
    x = torch.randn(2, 8, device=args.device, requires_grad=True)
    times = {}

    def note(name, seconds):
        times.setdefault(name, []).append(seconds)

    for round_number in range(args.rounds + 2):
        for model, name in ((plain, "plain"), (hooked, "engine")):
            for _ in range(args.passes):
                def evaluate():
                    with torch.no_grad():
                        model(x)

                evaluation = seconds_of(evaluate, args.device)
                outputs = []
                forward = seconds_of(lambda: outputs.append(model(x).sum()), args.device)
                back = engine.backward if model is hooked else torch.Tensor.backward
                backward = seconds_of(lambda: back(outputs[0]), args.device)
                if model is hooked:
                    engine.step()
                else:
                    optimizer.step()
                    optimizer.zero_grad()
                if round_number >= 2:
                    for phase, seconds in (("evaluation", evaluation), ("forward", forward), ("backward", backward)):
                        note((phase, name), seconds)

    result = {"device": args.device, "blocks": args.blocks}
    print("| pass | plain, us a block | engine, us a block | hooks, us a block |\n|---|---|---|---|")
    for phase in ("evaluation", "forward", "backward"):
        plain_us, engine_us = (statistics.median(times[phase, name]) * 1e6 / args.blocks for name in ("plain", "engine"))
        result[phase] = engine_us - plain_us
        print(f"| {phase} | {plain_us:.1f} | {engine_us:.1f} | {engine_us - plain_us:.1f} |")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
