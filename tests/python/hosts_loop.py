"""What the ranks of hosts_test.py run: a few steps of stage 3 whose losses are the same on any number of hosts, or an end."""

import os
import signal
import socket
import sys
import time


def say(text: str) -> None:
    os.write(1, f"\n[test] {text}\n".encode())


def train() -> None:
    import deepspeed
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3},
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}  # fmt: skip
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    rank = deepspeed.comm.get_rank()
    for step in range(3):
        x = torch.randn(2, 16, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = engine(x).square().mean()
        engine.backward(loss)
        engine.step()
        say(f"rank {rank} step {step} loss {loss.item()!r}")


def main() -> None:
    mode, rank = sys.argv[-1], os.environ.get("RANK")
    if mode == "train":
        train()
    elif mode == "tell":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NCCL_DEBUG_FILE", "OF_A_FILE", "NOT_SENT")
        first = os.environ["PYTHONPATH"].split(os.pathsep)[0]
        told = " ".join(f"{name}={os.environ.get(name)}" for name in names)
        say(f"{socket.gethostname()} {told} {sys.argv[1:]} {os.getcwd() == first}")
    elif mode == "fail" and rank == "1":
        say("fails")
        sys.exit(7)
    elif mode == "killed" and rank == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    else:  # what does not end by itself, and leaves something behind
        if os.fork() == 0:
            os.setsid()
        say(f"waits {rank}")
        time.sleep(600)


if __name__ == "__main__":
    main()
