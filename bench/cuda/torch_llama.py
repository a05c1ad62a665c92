"""Trains Hugging Face's Llama in plain PyTorch on one GPU and prints the time of a step: the peer of `shoal train`.

    torch_llama.py --model llama-1b --steps 15 [--compile] [--recompute] [--json]

bf16 weights and AdamW states in bf16's own precision (torch's fused AdamW), gradient clipping at 1.0, 8 x 2048 random
tokens a step. --compile: torch.compile of each layer.
"""

import argparse
import json
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from shapes import SHAPES


def build(name, other_layers=None):
    hidden, layers, heads, kv_heads, ffn, vocab = SHAPES[name]
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=other_layers or layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=ffn,
        vocab_size=vocab,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with torch.device("cuda"):
        return LlamaForCausalLM(config).to(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-1b", choices=sorted(SHAPES))
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    model = build(args.model)
    model.train()
    if args.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if args.compile:
        for layer in model.model.layers:
            layer.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for step in range(args.warmup + args.steps):
        tokens = torch.randint(0, model.config.vocab_size, (args.batch, args.sequence), device="cuda")
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
    result = {
        "program": "torch" + (" compiled" if args.compile else "") + (" recompute" if args.recompute else ""),
        "model": args.model,
        "parameters": sum(p.numel() for p in model.parameters()),
        "median_s": statistics.median(times),
        "tokens_per_s": args.batch * args.sequence / statistics.median(times),
        "peak_nbytes": torch.cuda.max_memory_allocated(),
    }
    print(json.dumps(result) if args.json else result)


if __name__ == "__main__":
    main()
