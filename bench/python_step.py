"""Measures a training step of Hugging Face's Llama through `import deepspeed`: Shoal's package against DDP and FSDP2, and
against the real DeepSpeed where a Python that has it is given. Rounds are interleaved; runs in about five minutes.

    python_step.py                                                 DDP, FSDP2 and ZeRO-3 of Shoal; prints a table
    python_step.py --deepspeed-python /tmp/real/bin/python --write   the real one too; writes bench/results/

The Python must have transformers, and torch of the extension's version.
"""

import argparse
import os
import shlex
import sys

from machine import describe_machine, today
from train_compare import ROOT, check_losses, run_heat, table_of


def command_of(engine, args):
    python = args.deepspeed_python if engine.startswith("deepspeed") else sys.executable
    command = [python, str(ROOT / "bench/peers/hf_train.py"), "--engine", engine]
    return command + (["--layers", str(args.layers)] if args.layers else [])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepspeed-python", help="a Python that has the real DeepSpeed, torch and transformers")
    parser.add_argument("--stages", default="3", help="of Shoal and of DeepSpeed: 0,1,2,3")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps of one engine in one round")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, help="another number of layers, for quick trials")
    parser.add_argument("--write", action="store_true", help="write bench/results/python-step-<arch>-<date>.md")
    parser.set_defaults(command_of=command_of)
    return parser.parse_args()


def main():
    args = parse_args()
    stages = args.stages.split(",")
    engines = ["ddp", *(f"shoal-{stage}" for stage in stages), "fsdp2"]
    if args.deepspeed_python:
        engines += [f"deepspeed-{stage}" for stage in stages if stage != "0"]
    results, unable = run_heat(engines, args)
    text = "\n\n".join([table_of(engines, results, unable), *check_losses(results)])
    print(text)
    if args.write:
        path = ROOT / f"bench/results/python-step-{os.uname().machine}-{today()}.md"
        head = (f"# A step of Hugging Face's Llama through `import deepspeed`, {args.ranks} ranks on one host\n\n"
                f"LlamaForCausalLM: hidden 512, {args.layers or 8} layers, 8 heads, ffn 1376, vocabulary 8192{'' if args.layers else ' (33.7 M)'}; 2 x 256 tokens a rank; "
                "fp32; AdamW; clip 1.0; 1 thread a rank. `shoal-N`: Shoal's package `deepspeed` at stage N; `deepspeed-N`: "
                f"the real one. {args.steps} steps of each in turn, {args.rounds} rounds; the slowest rank's time counts.\n\n"
                f"Command: `python {shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])}`\n\n{describe_machine(args.deepspeed_python or 'none')}\n")
        path.write_text(f"{head}\n{text}\n")
    return 1 if unable else 0


if __name__ == "__main__":
    sys.exit(main())
