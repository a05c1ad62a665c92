"""One rank of an engine under Hugging Face's Llama. Started and driven by bench/python_step.py, by train.py's protocol.

    hf_train.py --engine ddp | fsdp2 | shoal-0 .. shoal-3 | deepspeed-1 .. deepspeed-3

shoal-N and deepspeed-N run the same lines: `import deepspeed` finds Shoal's package for the one and the real package of
this Python for the other.
"""

import argparse
import os
import sys
from pathlib import Path

import torch

from llama import Shape
from train import build_deepspeed, init_distributed, serve, torch_step

SHOAL = Path(__file__).resolve().parents[2] / "python"


def make_llama(shape):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=512, num_hidden_layers=shape.layers, num_attention_heads=8, intermediate_size=1376,
                         vocab_size=8192, tie_word_embeddings=False, max_position_embeddings=512, use_cache=False)
    return LossOnly(LlamaForCausalLM(config))


class LossOnly(torch.nn.Module):
    """The model as the drivers call it: tokens in, loss out. It shifts the labels itself."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        return self.model(input_ids=tokens, labels=tokens).loss


def build(engine, shape):
    if engine == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        return torch_step(DistributedDataParallel(make_llama(shape), gradient_as_bucket_view=True), shape)
    if engine == "fsdp2":
        return build_fsdp2(shape)
    return build_deepspeed(shape, int(engine.split("-")[1]), make=make_llama)


def build_fsdp2(shape):
    """One group a block and one for the rest, weights released after forward: what ZeRO-3 does."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make_llama(shape)
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in model.model.model.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return torch_step(model, shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    args = parser.parse_args()
    if args.engine.startswith("shoal"):
        sys.path.insert(0, str(SHOAL))
    protocol = os.fdopen(os.dup(1), "w", buffering=1)  # what a library prints goes to stderr
    os.dup2(2, 1)

    def answer(text):
        print(text, file=protocol, flush=True)

    torch.set_num_threads(1)
    shape = Shape(layers=args.layers)
    try:
        init_distributed(args.engine.replace("shoal", "deepspeed"))
        step = build(args.engine, shape)
    except Exception as error:  # the table says why an engine is not in it
        answer(f"unable {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        raise
    answer("ready")
    serve(step, shape, answer)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
