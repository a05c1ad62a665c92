"""Holds Shoal's models against transformers: logits, ten training steps, and what an export gives back.

    model_parity_test.py PROBE [unittest arguments]

Each case is a small model that transformers builds and saves; PROBE (model_probe.cpp) opens the folder.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

PROBE = None
STEPS, BATCH, TIME = 10, 3, 33
VOCAB = 97
LR, WEIGHT_DECAY, CLIP = 3e-3, 0.1, 1.0
CONFIG = {
    "train_batch_size": 1,
    "gradient_clipping": CLIP,
    "optimizer": {"type": "AdamW", "params": {"lr": LR, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": WEIGHT_DECAY}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
LLAMA_SHAPE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=104, num_hidden_layers=3, num_attention_heads=6,
                   max_position_embeddings=128)
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
GPT2_SHAPE = dict(vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                  attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)

CASES = {
    "llama2": LlamaConfig(**LLAMA_SHAPE),
    "llama3_grouped_queries_and_scaled_rope": LlamaConfig(**LLAMA_SHAPE, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE),
    "llama3_tied_with_own_head_dim": LlamaConfig(**LLAMA_SHAPE, num_key_value_heads=3, head_dim=16,
                                                 rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True),
    "llama_with_a_padding_token": LlamaConfig(**LLAMA_SHAPE, pad_token_id=5),
    "llama_tied_with_a_padding_token": LlamaConfig(**LLAMA_SHAPE, pad_token_id=5, tie_word_embeddings=True),
    "mistral": MistralConfig(**LLAMA_SHAPE, num_key_value_heads=2, sliding_window=64),
    "qwen2": Qwen2Config(**LLAMA_SHAPE, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**LLAMA_SHAPE, num_key_value_heads=2, head_dim=16),
    "gpt2": GPT2Config(**GPT2_SHAPE),
    "gpt2_untied_wide": GPT2Config(**GPT2_SHAPE, n_inner=100, tie_word_embeddings=False),
}


def make_model(config):
    """A model whose every weight matters: biases and norms away from 0 and 1, matrices large enough to be felt."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn_like(param) * 0.05)
    return model.train()


def make_tokens():
    """Two batches in turn, so that the loss falls: then the updates are right, not only small."""
    generator = torch.Generator().manual_seed(2)
    two = torch.randint(0, VOCAB, (2, BATCH, TIME + 1), generator=generator)
    return two.repeat(STEPS // 2, 1, 1)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens[0, :, :-1]).logits.float()


def train(model, tokens):
    """Ten steps in plain PyTorch, with the engine's optimizer and clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=WEIGHT_DECAY)
    losses = []
    for batch in tokens:
        logits = model(input_ids=batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses


def run_probe(folder, out, tokens):
    (out / "tokens").write_bytes(torch.tensor([STEPS, BATCH, TIME]).numpy().tobytes() + tokens.numpy().tobytes())
    (out / "ds.json").write_text(json.dumps(CONFIG))
    return subprocess.run([PROBE, folder, out / "tokens", out / "ds.json", out], capture_output=True, text=True, timeout=120)


class Parity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.out = Path(folder.name) / "model", Path(folder.name) / "out"
        self.out.mkdir()
        self.tokens = make_tokens()

    def probe(self):
        result = run_probe(self.folder, self.out, self.tokens)
        self.assertEqual(result.returncode, 0, result.stderr)
        logits = torch.frombuffer(bytearray((self.out / "logits.f32").read_bytes()), dtype=torch.float32)
        return logits.view(BATCH, TIME, VOCAB), [float(line) for line in (self.out / "losses.txt").read_text().split()]

    # Both libraries run fp32 by the same formulas; sums within norms, attention and matrix products differ in order, which is
    # some roundings of 6e-8 in a logit. A wrong formula (an epsilon, a scaled angle) is 1e-4 and more.
    def assert_close(self, logits, wanted):
        self.assertLess(((logits - wanted).abs().max() / wanted.abs().max()).item(), 1e-5)

    def check_case(self, config, **save_arguments):
        model = make_model(config)
        model.save_pretrained(self.folder, **save_arguments)
        if config.pad_token_id is not None:
            self.tokens[:, :, ::3] = config.pad_token_id  # often enough to be felt
        wanted = logits_of(model, self.tokens)
        logits, losses = self.probe()
        self.assert_close(logits, wanted)

        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for export in ("whole", "sharded"):
            files = sorted(path.name for path in (self.out / export).glob("*.safetensors"))
            self.assertTrue(files == ["model.safetensors"] if export == "whole" else len(files) > 3, files)
            again = AutoModelForCausalLM.from_pretrained(self.out / export, attn_implementation="sdpa")
            self.assertIs(type(again), type(model))
            self.assertEqual(again.dtype, torch.float32)
            for name, tensor in again.state_dict().items():
                self.assertTrue(torch.equal(tensor, weights[name]), name)
            self.assertTrue(torch.equal(logits_of(again, self.tokens), wanted))

        wanted_losses = train(model, self.tokens)
        self.assertEqual(len(losses), STEPS)
        for step, (loss, wanted_loss) in enumerate(zip(losses, wanted_losses)):
            # AdamW divides by the gradient's magnitude, and so makes of a rounding a part of the learning rate.
            self.assertLess(abs(loss - wanted_loss) / wanted_loss, 1e-4, f"step {step}")
        self.assertLess(losses[-1], losses[0] - 0.5)

    def test_a_sharded_checkpoint_is_read(self):
        self.check_case(CASES["llama3_grouped_queries_and_scaled_rope"], max_shard_size="40KB")
        self.assertTrue((self.folder / "model.safetensors.index.json").exists())

    def test_bf16_and_fp16_weights_are_read(self):
        for dtype in (torch.bfloat16, torch.float16):
            make_model(CASES["llama2"]).to(dtype).save_pretrained(self.folder)
            wanted = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
            self.assert_close(self.probe()[0], logits_of(wanted, self.tokens))

    def test_the_keys_of_transformers_4_are_read(self):
        model = make_model(CASES["llama3_grouped_queries_and_scaled_rope"])
        model.save_pretrained(self.folder)
        config = json.loads((self.folder / "config.json").read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
        (self.folder / "config.json").write_text(json.dumps(config))
        self.assert_close(self.probe()[0], logits_of(model, self.tokens))

    def test_names_without_the_prefix_and_old_buffers_are_accepted(self):
        model = make_model(CASES["gpt2"])
        model.save_pretrained(self.folder)
        tensors = load_file(self.folder / "model.safetensors")
        bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        bare["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
        save_file(bare, self.folder / "model.safetensors", {"format": "pt"})
        self.assert_close(self.probe()[0], logits_of(model, self.tokens))

    def test_an_architecture_of_another_family_is_refused(self):
        make_model(CASES["llama2"]).save_pretrained(self.folder)
        config = json.loads((self.folder / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForTokenClassification"]}))
        result = run_probe(self.folder, self.out, self.tokens)
        self.assertEqual(result.returncode, 1)
        self.assertIn("LlamaForTokenClassification", result.stderr)
        self.assertIn("Qwen3ForCausalLM", result.stderr)


def add_cases():
    for name, config in CASES.items():
        setattr(Parity, f"test_{name}", lambda self, config=config: self.check_case(config))


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    PROBE = sys.argv.pop(1)
    add_cases()
    unittest.main()
