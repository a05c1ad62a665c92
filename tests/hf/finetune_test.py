"""From a Hugging Face folder to a fine-tuned one, with the commands of docs/train.md.

    finetune_test.py SHOAL PROBE [unittest arguments]

transformers and tokenizers make a small Llama with a vocabulary of its own. `shoal tokenize`, `train` and `checkpoint export` do
the rest, and what transformers loads at the end must compute what Shoal computed. PROBE is model_probe.cpp.
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast
from transformers.utils import logging

SHOAL = PROBE = None
ROOT = Path(__file__).resolve().parents[2]
SEQUENCE, MICRO_BATCH, RANKS, STEPS = 32, 4, 2, 40
CONFIG = {
    "train_micro_batch_size_per_gpu": MICRO_BATCH,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 5e-3}},
}


def make_tokenizer(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<end>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def make_checkpoint(folder, text):
    """A folder as one downloads it: weights in bf16, config.json, tokenizer.json."""
    tokenizer = make_tokenizer(text)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return tokenizer


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)


class Finetune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.text = 12 * (ROOT / "LICENSE").read_text()  # a text that does not change
        (self.folder / "book.txt").write_text(self.text)
        (self.folder / "ds.json").write_text(json.dumps(CONFIG))
        self.tokenizer = make_checkpoint(self.folder / "llama", self.text)

    def shoal(self, *words):
        result = run(SHOAL, *words)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def rows(self, name):
        return [json.loads(line) for line in (self.folder / "tuned" / name).read_text().splitlines()]

    def validation_rows(self, tokens):
        """What Shoal evaluated on: the last twentieth of the samples, in whole micro-batches."""
        samples = (len(tokens) - 1) // SEQUENCE
        kept = -(-samples // 20)
        used = kept // MICRO_BATCH * MICRO_BATCH
        begins = range((samples - kept) * SEQUENCE, (samples - kept + used) * SEQUENCE, SEQUENCE)
        return torch.stack([tokens[begin : begin + SEQUENCE + 1] for begin in begins])

    def probe_logits(self, folder, rows):
        out = self.folder / "probe"
        out.mkdir()
        shape = torch.tensor([1, rows.shape[0], rows.shape[1] - 1])
        (out / "tokens").write_bytes(shape.numpy().tobytes() + rows.contiguous().numpy().tobytes())
        (out / "ds.json").write_text(json.dumps(CONFIG | {"train_micro_batch_size_per_gpu": 1}))
        result = run(PROBE, folder, out / "tokens", out / "ds.json", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        logits = torch.frombuffer(bytearray((out / "logits.f32").read_bytes()), dtype=torch.float32)
        return logits.view(rows.shape[0], rows.shape[1] - 1, -1)

    def test_the_commands_of_the_guide(self):
        model, tokens_file, tuned = self.folder / "llama", self.folder / "book.bin", self.folder / "tuned"
        self.shoal("tokenize", "--tokenizer", model / "tokenizer.json", self.folder / "book.txt", "-o", tokens_file)
        tokens = torch.frombuffer(bytearray(tokens_file.read_bytes()[32:]), dtype=torch.uint16).long()
        self.assertEqual(tokens.tolist(), self.tokenizer.encode(self.text, add_special_tokens=False).ids)

        self.shoal("train", "--model", model, "--data", f"tokens:{tokens_file}", "--config", self.folder / "ds.json",
                   "--steps", STEPS, "--ranks", RANKS, "--sequence", SEQUENCE, "--eval-every", STEPS, "--eval-batches", 1000,
                   "--out", tuned)
        losses = [row["loss"] for row in self.rows("metrics.jsonl")]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], losses[0] - 1)

        said = self.shoal("checkpoint", "export", tuned, tuned / "hf", "--dtype", "fp32")
        self.assertIn(f"step-{STEPS:08d} -> ", said)
        again = AutoModelForCausalLM.from_pretrained(tuned / "hf", dtype=torch.float32)
        self.assertEqual(again.config.vocab_size, self.tokenizer.get_vocab_size())

        rows = self.validation_rows(tokens)
        with torch.no_grad():
            logits = again(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()
        # Two libraries, fp32 in both: sums differ in order, as model_parity_test says.
        self.assertAlmostEqual(loss / self.rows("eval.jsonl")[-1]["loss"], 1, delta=1e-5)
        ours = self.probe_logits(tuned / "hf", rows)
        self.assertLess(((ours - logits).abs().max() / logits.abs().max()).item(), 1e-5)

        # As the guide says: the tokenizer's files come from where the weights came from, and then it writes.
        for file in model.glob("*token*"):
            (tuned / "hf" / file.name).write_bytes(file.read_bytes())
        words = AutoTokenizer.from_pretrained(tuned / "hf")
        with torch.no_grad():
            written = again.generate(**words("The rank", return_tensors="pt", return_token_type_ids=False), max_new_tokens=8,
                                     do_sample=False)
        self.assertTrue(words.decode(written[0]).startswith("The rank"))

        self.shoal("checkpoint", "export", tuned, tuned / "bf16")
        self.assertEqual(AutoModelForCausalLM.from_pretrained(tuned / "bf16").dtype, torch.bfloat16)


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    SHOAL, PROBE = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
