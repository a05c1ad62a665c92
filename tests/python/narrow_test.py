"""A model of Hugging Face's in bf16 and fp16 through `import deepspeed`, on any CPU: no warning, equal bits at every stage, and
said once how products are made where the processor lacks the type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main

# Losses and norms by precision and stage, on the line of ours; eager attention multiplies batches of matrices, sdpa has a kernel.
SCRIPT = """
import json, sys, torch, deepspeed
from transformers import LlamaConfig, LlamaForCausalLM

def train(precision, stage, attention):
    torch.manual_seed(0)
    shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attn_implementation=attention, **shape))
    config = {"train_batch_size": 2, "zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    if precision != "fp32":
        config[precision] = {"enabled": True}
    engine = deepspeed.initialize(model=model, config=config)[0]
    ids = torch.randint(0, 128, (2, 24), generator=torch.Generator().manual_seed(1))
    numbers = []
    for step in range(3):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        numbers += [loss.item(), engine.get_global_grad_norm()]
    dtypes = {str(param.dtype) for param in model.parameters()}
    engine.destroy()
    return numbers, sorted(dtypes)

found = {f"{precision} {attention}": [train(precision, stage, attention) for stage in stages]
         for precision, stages in (("fp32", [0]), ("bf16", [0, 3]), ("fp16", [0, 3])) for attention in ("sdpa", "eager")}
open(sys.argv[1], "w").write(json.dumps(found))
"""


def test_bf16_and_fp16_train_on_any_cpu_without_a_warning():
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(out)], capture_output=True, text=True, timeout=300, env=os.environ)
        assert done.returncode == 0, done.stderr[-4000:]
        found = json.loads(out.read_text())
    for attention in ("sdpa", "eager"):
        plain = found[f"fp32 {attention}"][0][0]
        for precision, unit in (("bf16", 2**-8), ("fp16", 2**-11)):
            runs = found[f"{precision} {attention}"]
            assert all(run == runs[0] for run in runs), (precision, attention, runs)
            assert runs[0][1] == ["torch.bfloat16" if precision == "bf16" else "torch.float16"], runs[0][1]
            # Weights and activations are rounded to 16 bits: a few units of the last place in a loss or a norm.
            assert largest_difference(runs[0][0], plain) < 16 * unit, (precision, attention, runs[0][0], plain)
    said = done.stdout + done.stderr
    for unwanted in ("mkldnn", "frame #", "Overriding", "UserWarning"):
        assert unwanted not in said, said[-4000:]
    lacks_bf16 = not any(word in Path("/proc/cpuinfo").read_text().split() for word in ("bf16", "avx512_bf16"))
    assert said.count("shoal: bf16: products in fp32, this processor has no bf16 arithmetic") == int(lacks_bf16), said


if __name__ == "__main__":
    main(globals())
