"""Holds --lora against the real PEFT: losses, gradients and ten steps, and what is exported, loaded by PEFT and transformers.

    lora_test.py SHOAL PROBE [unittest arguments]

Small models that transformers builds. PROBE (model_probe.cpp) trains on given tokens; PEFT begins from the same adapters and does the
same in PyTorch. SHOAL then runs the commands of docs/train.md from a chat file to a merged model.
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
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, AutoTokenizer, FalconConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MixtralConfig,
                          Phi3Config, PreTrainedTokenizerFast, Qwen2MoeConfig)
from transformers.utils import logging

SHOAL = PROBE = None
STEPS, BATCH, TIME, VOCAB = 10, 2, 20, 67
LR, WEIGHT_DECAY, CLIP, EPS = 1e-2, 0.1, 1.0, 1e-4
RANK, ALPHA = 4, 6
CONFIG = {
    "train_batch_size": 1,
    "gradient_clipping": CLIP,
    "optimizer": {"type": "AdamW", "params": {"lr": LR, "betas": [0.9, 0.95], "eps": EPS, "weight_decay": WEIGHT_DECAY}},
    "zero_optimization": {"stage": 0},
}
TOKENS = dict(bos_token_id=0, eos_token_id=0)
SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=32, **TOKENS)
GPT2 = GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                  **TOKENS)
# A model, the targets of --lora and what they are by the names of PEFT.
CASES = {
    "llama_default": (LlamaConfig(**SHAPE, num_key_value_heads=2), "", ["q_proj", "v_proj"]),
    "llama_all_biases": (LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True), "all-linear", "all-linear"),
    "llama_some_tied": (LlamaConfig(**SHAPE, tie_word_embeddings=True), "mlp.down_proj+layers.1.self_attn.o_proj",
                        ["mlp.down_proj", "layers.1.self_attn.o_proj"]),
    "phi3_all": (Phi3Config(**SHAPE, num_key_value_heads=2, pad_token_id=None), "all-linear", "all-linear"),
    "gpt_neox_all": (GPTNeoXConfig(**SHAPE), "all-linear", "all-linear"),
    "falcon_default": (FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                    max_position_embeddings=32, **TOKENS), "", ["query_key_value"]),
    # Of mixtures of experts the attention.
    "mixtral_default": (MixtralConfig(**SHAPE, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2), "", ["q_proj", "v_proj"]),
    "qwen2_moe_attention": (Qwen2MoeConfig(**SHAPE, num_key_value_heads=2, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                                           shared_expert_intermediate_size=40),
                            "q_proj+k_proj+v_proj+o_proj", ["q_proj", "k_proj", "v_proj", "o_proj"]),
    "gpt2_all": (GPT2, "all-linear", "all-linear"),
    "gpt2_default": (GPT2, "", ["c_attn"]),
}
PREFIX = "base_model.model."


def make_model(config):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn_like(param) * 0.08)
    return model


def make_tokens():
    two = torch.randint(0, VOCAB, (2, BATCH, TIME + 1), generator=torch.Generator().manual_seed(2))
    return two.repeat(STEPS // 2, 1, 1)


def logits_of(model, inputs):
    model.eval()
    with torch.no_grad():
        return model(input_ids=inputs).logits.float()


def relative(got, wanted):
    return ((got - wanted).abs().max() / wanted.abs().max()).item()


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)


def floats(path, like):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(like.shape)


def is_adapter(name):
    return ".lora_" in name


def peft_name(name):
    """Of a parameter of ours, as get_peft_model calls it."""
    return PREFIX + name.replace(".lora_A.weight", ".lora_A.default.weight").replace(".lora_B.weight", ".lora_B.default.weight")


class AgainstPeft(unittest.TestCase):
    def check_case(self, name):
        config, targets, modules = CASES[name]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = Path(folder.name)
        out = place / "out"
        out.mkdir()
        base = make_model(config)
        base.save_pretrained(place / "model")
        tokens = make_tokens()
        (place / "tokens").write_bytes(torch.tensor([STEPS, BATCH, TIME]).numpy().tobytes() + tokens.numpy().tobytes())
        (place / "ds.json").write_text(json.dumps(CONFIG))
        spec = f"r={RANK},alpha={ALPHA}" + (f",targets={targets}" if targets else "")
        result = run(PROBE, "--lora", spec, place / "model", place / "tokens", place / "ds.json", out)
        self.assertEqual(result.returncode, 0, result.stderr)

        # As the base: B is 0.
        inputs = tokens[0, :, :-1]
        wanted = logits_of(base, inputs)
        self.assertLess(relative(floats(out / "logits.f32", wanted), wanted), 2e-6)

        gpt2 = name.startswith("gpt2")
        model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=modules, bias="none",
                                                task_type="CAUSAL_LM", fan_in_fan_out=gpt2))
        params = {key: param for key, param in model.named_parameters() if param.requires_grad}
        begun = {peft_name(key): value for key, value in load_file(out / "whole/model.safetensors").items() if is_adapter(key)}
        self.assertEqual(begun.keys(), params.keys())
        with torch.no_grad():
            for key, param in params.items():
                if ".lora_A." in key:  # drawn by the same rule, from other random numbers
                    bound = param.shape[1] ** -0.5
                    self.assertLessEqual(begun[key].abs().max().item(), bound)
                    self.assertAlmostEqual(begun[key].std().item() / (bound / 3**0.5), 1, delta=0.2)
                else:
                    self.assertEqual(begun[key].abs().max().item(), 0)
                param.copy_(begun[key])

        model.train()
        optimizer = torch.optim.AdamW(params.values(), lr=LR, betas=(0.9, 0.95), eps=EPS, weight_decay=WEIGHT_DECAY)
        losses = [float(line) for line in (out / "losses.txt").read_text().split()]
        gradients = {peft_name(key): value for key, value in load_file(out / "gradients/model.safetensors").items()}
        self.assertEqual(gradients.keys(), params.keys())
        for step, batch in enumerate(tokens):
            logits = model(input_ids=batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            self.assertLess(abs(losses[step] / loss.item() - 1), 1e-6 if step == 0 else 1e-5, f"step {step}")
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                whole = sum(param.grad.norm().item()**2 for param in params.values()) ** 0.5
                for key, param in params.items():
                    self.assertLess((gradients[key] - param.grad).norm().item(), 3e-6 * whole, key)
            torch.nn.utils.clip_grad_norm_(params.values(), CLIP)
            optimizer.step()
        self.assertLess(losses[-2], losses[0] - 0.02)  # of one batch
        for key, value in load_file(out / "trained/model.safetensors").items():
            if is_adapter(key):
                param = params[peft_name(key)]
                self.assertLess((value - param).norm().item(), 1e-5 * param.norm().item() + 1e-7, key)
                with torch.no_grad():
                    param.copy_(value)
        # With the same adapters the same logits; two libraries, fp32 in both, as families_test says.
        wanted = logits_of(model, inputs)
        self.assertLess(relative(floats(out / "evaluated.f32", wanted), wanted), 2e-6)


def add_cases():
    for name in CASES:
        setattr(AgainstPeft, f"test_{name}", lambda self, name=name: self.check_case(name))


def make_folder(folder, text):
    """A folder as one downloads it: weights, config.json, a tokenizer with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>"], show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    words.chat_template = ("{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '<end>' }}{% endfor %}"
                           "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")
    words.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.talks = [[{"role": "user", "content": f"What is {n} and {m}?"}, {"role": "assistant", "content": f"It is {n + m}."}]
                      for n in range(12) for m in range(12)]
        (self.folder / "talks.jsonl").write_text("\n".join(json.dumps({"messages": talk}) for talk in self.talks) + "\n")
        make_folder(self.folder / "llama", (self.folder / "talks.jsonl").read_text())

    def shoal(self, *words, fails=None):
        result = run(SHOAL, *words)
        if fails is None:
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        else:
            self.assertEqual(result.returncode, fails, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def test_from_a_chat_file_to_a_merged_model(self):
        model, tuned = self.folder / "llama", self.folder / "tuned"
        said = self.shoal("train", "--model", model, "--data", f"chat:{self.folder / 'talks.jsonl'}", "--steps", 30, "--ranks", 2,
                          "--sequence", 64, "--lr", 1e-2, "--lora", "r=8,alpha=16,targets=all-linear", "--out", tuned, "--save-every", 15)
        trained = sum(8 * (a + b) for a, b in [(48, 48), (48, 24), (48, 24), (48, 48), (48, 128), (48, 128), (128, 48)]) * 2
        self.assertIn(f"{trained:,} parameters in 14 adapters are trained", said)
        losses = [json.loads(line)["loss"] for line in (tuned / "metrics.jsonl").read_text().splitlines()]
        self.assertLess(losses[-1], losses[0] - 0.5)
        # Adapters and their two moments, whose pieces begin at pages: nothing of the base.
        rows = json.loads(self.shoal("checkpoint", "ls", tuned, "--json"))
        self.assertEqual([row["numel"] for row in rows], [trained, trained])
        self.assertTrue(rows[0]["trained_only"])
        self.assertIn("every byte is as it was saved", self.shoal("checkpoint", "verify", tuned))

        self.assertIn("--adapter", self.shoal("checkpoint", "export", tuned, self.folder / "no", fails=1))
        self.shoal("checkpoint", "export", tuned, self.folder / "adapter", "--adapter")
        self.shoal("checkpoint", "export", tuned, self.folder / "merged", "--merged", "--dtype", "fp32")
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        inputs = torch.randint(0, base.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(3))
        plain = logits_of(base, inputs)
        adapted = PeftModel.from_pretrained(base, self.folder / "adapter")
        self.assertEqual(adapted.peft_config["default"].base_model_name_or_path, str(model))
        wanted = logits_of(adapted, inputs)
        self.assertGreater(relative(wanted, plain), 1e-2)
        merged = AutoModelForCausalLM.from_pretrained(self.folder / "merged", dtype=torch.float32)
        self.assertLess(relative(logits_of(merged, inputs), wanted), 1e-5)  # (W + B A) x, rounded otherwise than W x + B (A x)
        # PEFT's own merge gives the same matrices.
        for key, value in adapted.merge_and_unload().state_dict().items():
            self.assertLess((merged.state_dict()[key] - value).abs().max().item(), 1e-6, key)

        # What Shoal computes with them, in another library's hands.
        (self.folder / "probe").mkdir()
        (self.folder / "ds.json").write_text(json.dumps(CONFIG))
        numbers = torch.tensor([1, 2, 39]).numpy().tobytes() + inputs.contiguous().numpy().tobytes()
        (self.folder / "tokens").write_bytes(numbers)
        result = run(PROBE, self.folder / "merged", self.folder / "tokens", self.folder / "ds.json", self.folder / "probe")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(relative(floats(self.folder / "probe/logits.f32", wanted[:, :-1]), wanted[:, :-1]), 1e-5)

        # As the guide says: with the tokenizer's files, and then it answers.
        for file in [*model.glob("*token*"), *model.glob("*.jinja")]:
            (self.folder / "merged" / file.name).write_bytes(file.read_bytes())
        words = AutoTokenizer.from_pretrained(self.folder / "merged")
        asked = words.apply_chat_template(self.talks[0][:1], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        answer = merged.generate(input_ids=asked["input_ids"], max_new_tokens=6, do_sample=False, pad_token_id=0)
        self.assertTrue(words.decode(answer[0][asked["input_ids"].shape[1]:]).startswith("It is"))

        # bf16 holds what is not adapted to the bit.
        self.shoal("checkpoint", "export", tuned, self.folder / "merged16", "--merged")
        first, again = load_file(model / "model.safetensors"), load_file(self.folder / "merged16/model.safetensors")
        self.assertEqual(first.keys(), again.keys())
        for key, value in first.items():
            self.assertEqual(torch.equal(value, again[key]), "_proj" not in key, key)

        # A base that was moved, and one that is another.
        model.rename(self.folder / "moved")
        self.assertIn("which is not there now", self.shoal("checkpoint", "export", tuned, self.folder / "m2", "--merged", fails=1))
        self.shoal("checkpoint", "export", tuned, self.folder / "m2", "--merged", "--model", self.folder / "moved", "--dtype", "fp32")
        self.assertEqual((self.folder / "m2/model.safetensors").read_bytes(), (self.folder / "merged/model.safetensors").read_bytes())
        said = self.shoal("checkpoint", "export", tuned, self.folder / "m3", "--merged", "--model", self.folder / "merged", fails=1)
        self.assertIn("has other weights than those that the adapters were trained on", said)

    def test_peft_reads_adapters_of_gpt2(self):
        GPT2.save_pretrained(self.folder / "gpt2")
        make_model(GPT2).save_pretrained(self.folder / "gpt2")
        self.shoal("train", "--model", self.folder / "gpt2", "--data", "synthetic:tokens=2000", "--steps", 10, "--sequence", 32, "--lr", 1e-2,
                   "--lora", "r=4,alpha=2,targets=all-linear", "--out", self.folder / "run")
        self.shoal("checkpoint", "export", self.folder / "run", self.folder / "adapter", "--adapter")
        self.shoal("checkpoint", "export", self.folder / "run", self.folder / "merged", "--merged", "--dtype", "fp32")
        inputs = make_tokens()[0]
        base = AutoModelForCausalLM.from_pretrained(self.folder / "gpt2", dtype=torch.float32)
        plain = logits_of(base, inputs)
        wanted = logits_of(PeftModel.from_pretrained(base, self.folder / "adapter"), inputs)
        self.assertGreater(relative(wanted, plain), 1e-2)
        merged = AutoModelForCausalLM.from_pretrained(self.folder / "merged", dtype=torch.float32)
        self.assertLess(relative(logits_of(merged, inputs), wanted), 2e-6)


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    SHOAL, PROBE = sys.argv.pop(1), sys.argv.pop(1)
    add_cases()
    unittest.main()
