"""One rank of one peer engine that Shoal is measured against. Started and driven by bench/train_compare.py.

    train.py --engine ddp | fsdp2 | fsdp2-noreshard | hsdp | deepspeed-1 | deepspeed-2 | deepspeed-3
    train.py --engine deepspeed-hpz | deepspeed-mics | deepspeed-zeropp

The last line, and hsdp, cut over the ranks of a host (LOCAL_WORLD_SIZE).

Speaks the protocol of bench/README.md: says `ready`, then for each line `run K` on its stdin trains K steps and answers
`K seconds loss`. An engine that cannot run says `unable <reason>`. Every engine does the same work: fp32, clip the
global norm at 1.0, AdamW with the values below.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

from llama import POOL, Shape, make_batches, make_model

LR, BETAS, EPS, WEIGHT_DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


def make_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)


def torch_step(model, shape):
    """A step of a module with an optimizer of torch: DDP and FSDP2."""
    optimizer = make_adamw(model)

    def step(tokens, targets):
        loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def build_ddp(shape):
    from torch.nn.parallel import DistributedDataParallel

    return torch_step(DistributedDataParallel(make_model(shape), gradient_as_bucket_view=True), shape)


def build_fsdp2(shape, reshard, by_host=False):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make_model(shape)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if by_host:
        ranks = local_ranks()
        mesh = init_device_mesh("cpu", (dist.get_world_size() // ranks, ranks), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    return torch_step(model, shape)


def local_ranks():
    return int(os.environ["LOCAL_WORLD_SIZE"])


def build_deepspeed(shape, stage, make=make_model, **zero):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": shape.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": CLIP,
        "zero_optimization": {"stage": stage, **zero},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": WEIGHT_DECAY},
        },
        "steps_per_print": 1000000,
    }
    model = make(shape)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    def step(tokens, targets):
        loss = engine(tokens, targets)
        engine.backward(loss)
        engine.step()
        return loss

    return step


BUILDERS = {
    "ddp": build_ddp,
    "fsdp2": lambda shape: build_fsdp2(shape, reshard=True),
    "fsdp2-noreshard": lambda shape: build_fsdp2(shape, reshard=False),
    "deepspeed-1": lambda shape: build_deepspeed(shape, 1),
    "deepspeed-2": lambda shape: build_deepspeed(shape, 2),
    "deepspeed-3": lambda shape: build_deepspeed(shape, 3),
    "hsdp": lambda shape: build_fsdp2(shape, reshard=True, by_host=True),
    "deepspeed-hpz": lambda shape: build_deepspeed(shape, 3, zero_hpz_partition_size=local_ranks()),
    "deepspeed-mics": lambda shape: build_deepspeed(shape, 3, mics_shard_size=local_ranks()),
    "deepspeed-zeropp": lambda shape: build_deepspeed(
        shape, 3, zero_hpz_partition_size=local_ranks(), zero_quantized_weights=True, zero_quantized_gradients=True),
}


def init_distributed(engine):
    if engine.startswith("deepspeed"):
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
    else:
        dist.init_process_group("gloo")


def serve(step, shape, answer):
    """Trains as many steps as stdin asks for, until it ends."""
    batches = make_batches(shape, dist.get_rank())
    done = 0
    for line in sys.stdin:
        count = int(line.split()[1])
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            batch = batches[done % POOL]
            loss = step(batch[:, :-1], batch[:, 1:])
            done += 1
        value = loss.item()
        answer(f"{count} {time.perf_counter() - begin:.6f} {value:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=BUILDERS, required=True)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    args = parser.parse_args()

    # stdout belongs to the protocol; whatever a library prints goes to stderr.
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(text):
        print(text, file=protocol, flush=True)

    torch.set_num_threads(1)
    shape = Shape(layers=args.layers)
    try:
        init_distributed(args.engine)
        step = BUILDERS[args.engine](shape)
    except Exception as error:  # the table says why an engine is not in it
        answer(f"unable {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        raise
    answer("ready")
    serve(step, shape, answer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
