"""Trains Hugging Face's Llama on one GPU through `import deepspeed`, answered by Shoal, and in plain PyTorch, in turns.

    python_llama.py [--parts resident,offload,start,hooks] [--deepspeed-python python] [--json FILE]

resident   1.10B, ZeRO-3 without offload, against PyTorch with everything on the GPU
offload    3.02B, ZeRO-3 with offload_optimizer: cpu, against PyTorch with everything on the GPU
start      1.10B with offload_optimizer: cpu: seconds from initialize to the end of the first step, and of its parts
hooks      bench/python_hooks.py on the GPU

8 x 2048 tokens a step, bf16, clip 1.0, activations recomputed (the model's own gradient checkpointing). PyTorch: bf16 weights,
fp32 masters, fused AdamW. Both models live in one process and start from the same weights; rounds are interleaved, and a row's
time is the median of all its steps. Each part is a process of its own: one that fails leaves the others alone. The real DeepSpeed,
where a Python has it, runs after the part that it is a peer of: ZeRO-3 resident, ZeRO-2 with its optimizer on the host.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEQUENCE, BATCH = 2048, 8
PART_SECONDS = 150
PEERS = {
    "resident": ["--model", "llama-1b", "--stage", "3", "--resident", "--steps", "8", "--warmup", "3"],
    "offload": ["--model", "llama-3b", "--stage", "2", "--steps", "4", "--warmup", "2"],
    "start": ["--model", "llama-1b", "--stage", "2", "--steps", "1", "--warmup", "1"],
}
REACH = {"resident": 1.02, "offload": 1.08, "start": 10.0}


def config_of(offload):
    zero = {"stage": 3}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "steps_per_print": float("inf"),
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}},
    }


def build(name, layers=None):
    import torch
    from torch_llama import build as make

    torch.manual_seed(1)
    model = make(name) if layers is None else make(name, layers)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


class Plain:
    """bf16 weights, fp32 masters, torch's fused AdamW."""

    def __init__(self, model):
        import torch

        self.torch, self.model = torch, model
        self.params = [param for param in model.parameters()]
        self.masters = [param.detach().float() for param in self.params]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, weight_decay=0.0, fused=True)

    def step(self, tokens):
        torch = self.torch
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        torch._foreach_copy_([master.grad for master in self.masters], [param.grad for param in self.params])
        for param in self.params:
            param.grad = None
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.params, self.masters)
        return loss


class Engine:
    def __init__(self, model, offload):
        import deepspeed

        self.engine = deepspeed.initialize(model=model, config=config_of(offload))[0]

    def step(self, tokens):
        loss = self.engine(input_ids=tokens, labels=tokens).loss
        self.engine.backward(loss)
        self.engine.step()
        return loss


def timed_step(program, tokens):
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    loss = program.step(tokens)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, loss.item()


def compare(name, offload, args):
    import torch

    # The engine first: its states are CUDA's own memory, and PyTorch then takes what is left.
    begin = time.perf_counter()
    model = build(name, args.layers)
    weights = {key: value.to("cpu", copy=True) for key, value in model.state_dict().items()}
    built = time.perf_counter()
    programs = {"shoal": Engine(model, offload)}
    torch.cuda.synchronize()
    initialized = time.perf_counter()
    other = build(name, args.layers)
    other.load_state_dict(weights)
    programs["torch"] = Plain(other)
    del weights
    times, losses = {key: [] for key in programs}, {key: [] for key in programs}
    generator = torch.Generator("cpu").manual_seed(0)
    end = time.perf_counter() + args.seconds
    for round_number in range(args.rounds + 1):  # the first warms up
        batches = [torch.randint(0, 32000, (BATCH, SEQUENCE), generator=generator).cuda() for _ in range(args.steps)]
        for key, program in programs.items():
            for tokens in batches:
                seconds, loss = timed_step(program, tokens)
                losses[key].append(loss)
                if round_number > 0:
                    times[key].append(seconds)
        if round_number > 1 and time.perf_counter() > end:
            break
    medians = {key: statistics.median(values) for key, values in times.items()}
    engine = programs["shoal"].engine
    held = engine._shoal.memory().held
    return {
        "model": name,
        "parameters": sum(param.numel() for param in other.parameters()),
        "shoal_s": medians["shoal"],
        "torch_s": medians["torch"],
        "ratio": medians["shoal"] / medians["torch"],
        "reach": REACH["offload" if offload else "resident"],
        "shoal_fastest_s": min(times["shoal"]),
        "torch_fastest_s": min(times["torch"]),
        "steps": len(times["shoal"]),
        "losses_shoal": losses["shoal"][:3] + losses["shoal"][-1:],
        "losses_torch": losses["torch"][:3] + losses["torch"][-1:],
        "states_gib": round(held.total / 2**30, 2),
        "host_gib": round(held.host_total / 2**30, 2),
        "torch_peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "build_s": round(built - begin, 2),
        "initialize_s": round(initialized - built, 2),
    }


def first_step(args):
    """From initialize to the end of the first step: what a user waits for."""
    begin = time.perf_counter()
    import torch

    model = build("llama-1b", args.layers)
    tokens = torch.randint(0, 32000, (BATCH, SEQUENCE), device="cuda")
    torch.cuda.synchronize()
    built = time.perf_counter()
    program = Engine(model, offload=True)
    torch.cuda.synchronize()
    initialized = time.perf_counter()
    seconds = [timed_step(program, tokens)[0] for _ in range(3)]
    return {
        "seconds": initialized - built + seconds[0],
        "reach": REACH["start"],
        "import_and_build_s": round(built - begin, 2),
        "initialize_s": round(initialized - built, 2),
        "steps_s": [round(value, 3) for value in seconds],
    }


def run_part(part, args):
    sys.path += [str(HERE), str(ROOT / "python")]  # the packages of the tree, unless they are installed
    if part == "start":
        result = first_step(args)
    else:
        result = compare("llama-3b" if part == "offload" else "llama-1b", part == "offload", args)
    print(json.dumps({"part": part, **result}), flush=True)


def run_deepspeed(python, part):
    """Seconds of the part's peer: of a step, or from initialize to the end of the first one; or why there are none."""
    words = shlex.split(python) + [str(HERE / "deepspeed_llama.py"), *PEERS[part]]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # ours may be on it
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PART_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return f"no end after {PART_SECONDS} s"
    found = re.search(r"^figures (.*)$", done.stdout, re.MULTILINE)
    if not found:
        return (done.stdout + done.stderr)[-800:]
    return json.loads(found.group(1))["first_step_s" if part == "start" else "median_s"]


def row_of(part, result):
    if "error" in result:
        return f"| {part} | failed | | | | |"
    peer = result.get("deepspeed_s")
    peer = f"{peer:.3f} s" if isinstance(peer, float) else ("" if peer is None else "failed")
    if part == "start":
        what = "1.10B, host offload: initialize to the first step"
        return f"| {what} | {result['seconds']:.2f} s | | | {result['reach']:.0f} s | {peer} |"
    if part == "hooks":
        cost = result["forward"] + result["backward"]
        return f"| hooks, a block, forward and backward | {cost:.1f} us | | | 10 us | |"
    what = f"{result['parameters'] / 1e9:.2f}B, ZeRO-3" + (", optimizer on the host" if part == "offload" else "")
    return (f"| {what} | {result['shoal_s']:.4f} s | {result['torch_s']:.4f} s | {result['ratio']:.3f} | "
            f"{result['reach']:.2f} | {peer} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="resident,offload,start,hooks")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4, help="of each program in a round")
    parser.add_argument("--seconds", type=float, default=45, help="no new round of a comparison after so many")
    parser.add_argument("--layers", type=int, help="another number of layers, for quick trials")
    parser.add_argument("--deepspeed-python", help="a Python that has the real DeepSpeed; words before it are possible")
    parser.add_argument("--json", help="write the figures here too")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        run_part(args.part, args)
        return 0
    results = {}
    for part in args.parts.split(","):
        words = [sys.executable, str(HERE / "python_llama.py"), "--part", part, "--rounds", str(args.rounds)]
        words += ["--steps", str(args.steps), "--seconds", str(args.seconds)]
        words += ["--layers", str(args.layers)] if args.layers else []
        if part == "hooks":
            words = [sys.executable, str(ROOT / "bench/python_hooks.py"), "--device", "cuda"]
        begin = time.monotonic()
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PART_SECONDS)
            said, failed = done.stderr, done.returncode != 0
            if not failed:
                results[part] = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired as error:
            said, failed = f"{(error.stderr or b'').decode(errors='replace')}\nno end after {PART_SECONDS} s", True
        if failed:
            results[part] = {"error": said[-3000:]}
            print(f"{part} failed:\n{said[-3000:]}", flush=True)
        if args.deepspeed_python and part in PEERS:
            results[part]["deepspeed_s"] = run_deepspeed(args.deepspeed_python, part)
        results[part]["part_s"] = round(time.monotonic() - begin, 1)
        print(json.dumps({"part": part, **results[part]}), flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(results, indent=1))
    print("\n| case | Shoal | PyTorch | ratio | reach | DeepSpeed, same run |\n|---|---|---|---|---|---|")
    for part, result in results.items():
        print(row_of(part, result))
    return 1 if any("error" in result for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
