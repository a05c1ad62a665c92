"""Holds every family of the table against transformers: loss, gradients, ten steps, weights in and out, number of parameters.

    families_test.py PROBE SHOAL [unittest arguments]

Each case is a small model that transformers builds and saves, with sequences longer than its windows. PROBE (model_probe.cpp) opens
all of them in one process. Switches that no row of src/models/dense/families.cpp combines so are cases too.
"""

import copy
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
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import (FalconConfig, Gemma2Config, Gemma3TextConfig, GemmaConfig, GPTNeoXConfig, GraniteConfig, LlamaConfig,
                          MistralConfig, MixtralConfig, Olmo2Config, Olmo3Config, OlmoeConfig, OPTConfig, Phi3Config, Qwen2Config,
                          Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, SmolLM3Config, Starcoder2Config)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils import logging

PROBE = SHOAL = None
STEPS, BATCH, TIME = 10, 2, 20
VOCAB = 67
LR, WEIGHT_DECAY, CLIP, EPS = 3e-3, 0.1, 1.0, 1e-4
CONFIG = {
    "train_batch_size": 1,
    "gradient_clipping": CLIP,
    "optimizer": {"type": "AdamW", "params": {"lr": LR, "betas": [0.9, 0.95], "eps": EPS, "weight_decay": WEIGHT_DECAY}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
TOKENS = dict(bos_token_id=0, eos_token_id=0)
SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=32, **TOKENS)
GROUPED = dict(SHAPE, num_key_value_heads=2)
WINDOW = dict(sliding_window=6)
# Heads of 32 dimensions, and turns of which half lie between fast and slow.
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 64}
FOR_YARN = dict(GROUPED, hidden_size=64, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256)
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 3.5]}
FULL_AND_SLIDING = ["sliding_attention", "full_attention"]

CASES = {
    "llama_biases": LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "llama_linear_rope": LlamaConfig(**SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}),
    "llama_dynamic_rope": LlamaConfig(**dict(SHAPE, max_position_embeddings=12),
                                      rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    "mistral_window": MistralConfig(**GROUPED, **WINDOW),
    "qwen2_yarn": Qwen2Config(**FOR_YARN, rope_parameters=YARN, tie_word_embeddings=True),
    "qwen2_yarn_untruncated": Qwen2Config(**FOR_YARN, rope_parameters=YARN | {"truncate": False, "attention_factor": 1.2,
                                                                             "beta_fast": 4.0, "beta_slow": 0.5}),
    "llama_yarn_length_beside": LlamaConfig(**FOR_YARN, original_max_position_embeddings=128, rope_parameters=dict(YARN)),
    "qwen2_window": Qwen2Config(**GROUPED, **WINDOW, use_sliding_window=True, max_window_layers=1),
    "qwen3_biases_yarn": Qwen3Config(**FOR_YARN, head_dim=32, attention_bias=True,
                                     rope_parameters=YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}),
    "gemma": GemmaConfig(**GROUPED, head_dim=12),
    "gemma2": Gemma2Config(**GROUPED, **WINDOW, head_dim=12, query_pre_attn_scalar=20, attn_logit_softcapping=2.0,
                           final_logit_softcapping=1.5),
    "gemma2_uncapped": Gemma2Config(**GROUPED, **WINDOW, head_dim=12, attn_logit_softcapping=None, final_logit_softcapping=None,
                                    tie_word_embeddings=False),
    "gemma3": Gemma3TextConfig(**dict(GROUPED, num_hidden_layers=3), **WINDOW, head_dim=12, query_pre_attn_scalar=20,
                               layer_types=FULL_AND_SLIDING + ["sliding_attention"], final_logit_softcapping=1.5,
                               rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "phi3": Phi3Config(**GROUPED, pad_token_id=3, **WINDOW),
    "phi3_longrope_short": Phi3Config(**GROUPED, pad_token_id=None, original_max_position_embeddings=24, rope_parameters=LONG),
    "phi3_longrope_long": Phi3Config(**GROUPED, pad_token_id=None, original_max_position_embeddings=16, rope_parameters=LONG,
                                     tie_word_embeddings=True),
    "olmo2": Olmo2Config(**GROUPED, attention_bias=True),
    "olmo3": Olmo3Config(**FOR_YARN, **WINDOW, layer_types=FULL_AND_SLIDING,
                         rope_parameters={"full_attention": YARN, "sliding_attention": {"rope_type": "default",
                                                                                        "rope_theta": 5e5}}),
    "smollm3": SmolLM3Config(**GROUPED, pad_token_id=3, no_rope_layer_interval=2),
    "smollm3_window": SmolLM3Config(**GROUPED, **WINDOW, pad_token_id=None, no_rope_layers=[0, 1], use_sliding_window=True,
                                    mlp_bias=True, tie_word_embeddings=False),
    "starcoder2": Starcoder2Config(**GROUPED, **WINDOW),
    "granite": GraniteConfig(**GROUPED, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.2,
                             logits_scaling=3.0, attention_bias=True),
    "gpt_neox": GPTNeoXConfig(**SHAPE, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
    "gpt_neox_in_a_row": GPTNeoXConfig(**SHAPE, use_parallel_residual=False, hidden_act="gelu_new", tie_word_embeddings=True,
                                       rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}),
    "opt": OPTConfig(vocab_size=VOCAB, hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=32, dropout=0.0, pad_token_id=1, **TOKENS),
    "opt_unbiased_gelu": OPTConfig(vocab_size=VOCAB, hidden_size=32, ffn_dim=56, num_hidden_layers=2, num_attention_heads=4,
                                   max_position_embeddings=32, dropout=0.0, enable_bias=False, activation_function="gelu",
                                   tie_word_embeddings=False, **TOKENS),
}
# Mixtures of experts, with the auxiliary loss or without.
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.1)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2)
NARROW = dict(moe_intermediate_size=24)
CASES |= {
    "mixtral": MixtralConfig(**GROUPED, **WINDOW, num_local_experts=4, num_experts_per_tok=2, **BALANCED),
    "mixtral_of_one": MixtralConfig(**GROUPED, num_local_experts=5, num_experts_per_tok=1),
    "qwen2_moe": Qwen2MoeConfig(**GROUPED, **EXPERTS, **NARROW, shared_expert_intermediate_size=40, **BALANCED),
    "qwen2_moe_every_other": Qwen2MoeConfig(**dict(GROUPED, num_hidden_layers=4), **EXPERTS, **NARROW, decoder_sparse_step=2,
                                            mlp_only_layers=[3], shared_expert_intermediate_size=40, norm_topk_prob=True,
                                            qkv_bias=False, **BALANCED),
    "qwen3_moe": Qwen3MoeConfig(**GROUPED, **EXPERTS, **NARROW, head_dim=12, norm_topk_prob=True, **BALANCED),
    "qwen3_moe_biases": Qwen3MoeConfig(**dict(GROUPED, num_hidden_layers=3), **EXPERTS, **NARROW, attention_bias=True,
                                       mlp_only_layers=[0], tie_word_embeddings=True),
    "olmoe": OlmoeConfig(**GROUPED, **EXPERTS, **BALANCED),
    "olmoe_normed": OlmoeConfig(**SHAPE, num_experts=6, num_experts_per_tok=6, norm_topk_prob=True, pad_token_id=None),
}
for name, more in {"falcon": {}, "falcon_heads_in_a_row": dict(multi_query=False, parallel_attn=False, bias=True),
                   "falcon_grouped": dict(new_decoder_architecture=True, num_kv_heads=2),
                   "falcon_grouped_one_norm": dict(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1,
                                                   ffn_hidden_size=40)}.items():
    CASES[name] = FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                               max_position_embeddings=32, **TOKENS, **more)

# What is read of a config.json with nothing but a shape, and of the forms of older versions of transformers.
MINIMAL = dict(vocab_size=130000, hidden_size=256, intermediate_size=128, num_hidden_layers=6, num_attention_heads=32)
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "olmo3", "smollm3", "granite",
            "gpt_neox", "opt", "falcon", "starcoder2") + MIXTURES
LINEAR = {"type": "linear", "factor": 2.0}
OLD_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 512}
OLD_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
OLD_LONG = {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.5, 4.0, 4.5]}
BESIDE = dict(original_max_position_embeddings=64)
OLD_KEYS = [
    ("llama", dict(rope_theta=500.0, rope_scaling=LINEAR)),
    ("llama", dict(rope_theta=500.0, rope_scaling={"type": "yarn", "factor": 4.0})),
    ("llama", dict(rope_theta=500.0, rope_scaling=OLD_YARN)),
    ("llama", dict(rope_theta=500.0, rope_scaling=OLD_YARN, **BESIDE)),
    ("llama", dict(rope_theta=500.0, rope_scaling=OLD_LLAMA3)),
    ("llama", dict(rope_theta=500.0, rope_scaling=OLD_LLAMA3, **BESIDE)),
    ("qwen2", dict(use_sliding_window=True, max_window_layers=2, sliding_window=16)),
    ("gpt_neox", dict(rotary_pct=0.5, rotary_emb_base=500)),
    ("gpt_neox", dict(rotary_pct=1.0, rotary_emb_base=500, rope_scaling=LINEAR)),
    ("phi3", dict(rope_theta=500.0, rope_scaling=OLD_LONG)),
    ("phi3", dict(rope_theta=500.0, rope_scaling=OLD_LONG | {"type": "su", "original_max_position_embeddings": 16})),
    ("phi3", dict(rope_theta=500.0, rope_scaling=OLD_LONG | {"type": "yarn"}, original_max_position_embeddings=16)),
    ("gemma3_text", dict(rope_theta=5e4, rope_local_base_freq=500.0, sliding_window_pattern=3,
                         rope_scaling={"rope_type": "linear", "factor": 2.0})),
    ("gemma3_text", dict(_sliding_window_pattern=3)),
    ("gemma3_text", dict(rope_scaling=OLD_YARN, **BESIDE)),
    ("olmo3", dict(rope_theta=5e4, rope_local_base_freq=500.0, sliding_window_pattern=3, rope_scaling=OLD_YARN)),
    ("olmo3", dict(rope_scaling=OLD_YARN, **BESIDE)),
    ("mixtral", dict(sliding_window=16, rope_theta=500.0, output_router_logits=True)),
    ("qwen3_moe", dict(num_local_experts=16, norm_topk_prob=True, output_router_logits=True, router_aux_loss_coef=0.5)),
]


def first_of(config, *keys):
    return next(getattr(config, key) for key in keys if getattr(config, key, None) is not None)


def turns_of(config, head_dim, layer_type):
    """Frequencies and the factor of attention, by the functions that transformers' models call."""
    of = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    if of["rope_type"] != "default":
        frequencies, factor = ROPE_INIT_FUNCTIONS[of["rope_type"]](config, "cpu", seq_len=24, **({"layer_type": layer_type} if layer_type else {}))
        return {"frequencies": frequencies.tolist(), "factor": factor}
    dim = int(head_dim * of.get("partial_rotary_factor", 1.0))
    return {"frequencies": (1 / of["rope_theta"]**(torch.arange(0, dim, 2, dtype=torch.float) / dim)).tolist(), "factor": 1.0}


def read_by_transformers(kind, keys):
    config = AutoConfig.for_model(kind, **copy.deepcopy(keys))
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    layer_types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    wanted = {
        "ffn": first_of(config, "ffn_hidden_size", "ffn_dim", "intermediate_size"),
        "kv_heads": 1 if kind == "falcon" and config.multi_query else kv_heads,
        "head_dim": head_dim,
        "max_positions": config.max_position_embeddings,
        "norm_eps": getattr(config, {"gpt_neox": "layer_norm_eps", "falcon": "layer_norm_epsilon", "starcoder2": "norm_epsilon"}.get(
            kind, "rms_norm_eps"), 1e-5),  # OPT has no key: torch's own
        "initializer_range": first_of(config, "init_std", "initializer_range"),
        "padding": None if kind in ("gpt_neox", "falcon") else config.pad_token_id,
        "tied": config.tie_word_embeddings,
        "activation": first_of(config, "activation_function", "hidden_activation", "hidden_act", "activation"),
        "windows": [window if of == "sliding_attention" and kind in WINDOWED else 0 for of in layer_types],
    }
    if kind in MIXTURES:
        wanted |= {
            "experts": config.num_local_experts if kind == "mixtral" else config.num_experts,
            "experts_per_token": config.num_experts_per_tok,
            "expert_ffn": getattr(config, "moe_intermediate_size", config.intermediate_size),
            "shared_ffn": getattr(config, "shared_expert_intermediate_size", 0),
            "normalizes": getattr(config, "norm_topk_prob", True),
            "balance": config.router_aux_loss_coef if config.output_router_logits else 0,
        }
    if hasattr(config, "attention_bias"):
        wanted["o_bias"] = config.attention_bias
    if hasattr(config, "rope_parameters"):
        nested = "full_attention" in config.rope_parameters
        wanted["rope"] = turns_of(config, head_dim, "full_attention" if nested else None)
        if nested:
            wanted["local_rope"] = turns_of(config, head_dim, "sliding_attention")
    return wanted


WINDOWED = ("mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo3", "smollm3", "starcoder2")


def make_model(config):
    """A model whose every weight matters: biases and norms away from 0 and 1, matrices large enough to be felt."""
    torch.manual_seed(1)
    # Capped scores are computed by transformers' eager attention only.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(torch.randn_like(param) * 0.08)
    return model.train()


def make_tokens(config):
    """Two batches in turn, so that the loss falls; the padding token often enough to be felt."""
    two = torch.randint(0, VOCAB, (2, BATCH, TIME + 1), generator=torch.Generator().manual_seed(2))
    if config.pad_token_id is not None:
        two[:, :, ::3] = config.pad_token_id
    return two.repeat(STEPS // 2, 1, 1)


def arguments(model, inputs):
    # OPT counts positions by a mask, which would leave out padding tokens.
    return dict(input_ids=inputs, attention_mask=torch.ones_like(inputs))


def logits_of(model, tokens):
    with torch.no_grad():
        return model(**arguments(model, tokens[0, :, :-1])).logits.float()


def loss_of(model, batch):
    """With the loss that balances experts where the config asks for it, as transformers adds it to that of its labels."""
    out = model(**arguments(model, batch[:, :-1]))
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), batch[:, 1:].flatten())
    return loss if getattr(out, "aux_loss", None) is None else loss + model.router_aux_loss_coef * out.aux_loss


def train(model, tokens):
    """Ten steps in plain PyTorch: losses, and the gradients of the first."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=EPS, weight_decay=WEIGHT_DECAY)
    losses, gradients = [], {}
    for batch in tokens:
        loss = loss_of(model, batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or {name: param.grad.clone() for name, param in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses, gradients


class Families(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.models, words = {}, []
        for name, config in CASES.items():
            place = cls.folder / name
            (place / "out").mkdir(parents=True)
            cls.models[name] = make_model(config)
            cls.models[name].save_pretrained(place / "model")
            tokens = make_tokens(config)
            (place / "tokens").write_bytes(torch.tensor([STEPS, BATCH, TIME]).numpy().tobytes() + tokens.numpy().tobytes())
            (place / "ds.json").write_text(json.dumps(CONFIG))
            words += [place / "model", place / "tokens", place / "ds.json", place / "out"]
        cls.result = subprocess.run([PROBE, *map(str, words)], capture_output=True, text=True, timeout=300)

    def saved(self, name):
        """As it was before a test trained it."""
        return AutoModelForCausalLM.from_pretrained(self.folder / name / "model", attn_implementation="eager").train()

    def check_case(self, name):
        model, out = self.models[name], self.folder / name / "out"
        tokens = make_tokens(CASES[name])
        self.assertTrue((out / "losses.txt").exists(), self.result.stderr)
        wanted = logits_of(model, tokens)
        logits = torch.frombuffer(bytearray((out / "logits.f32").read_bytes()), dtype=torch.float32).view(wanted.shape)
        # Two libraries, fp32 in both: sums differ in order, some roundings of 6e-8. A wrong switch is 1e-3 and more.
        self.assertLess(((logits - wanted).abs().max() / wanted.abs().max()).item(), 2e-6)

        # transformers loads what was exported: the same bits, the same logits.
        again = AutoModelForCausalLM.from_pretrained(out / "whole", attn_implementation="eager")
        self.assertIs(type(again), type(model))
        weights = model.state_dict()
        for key, tensor in again.state_dict().items():
            self.assertTrue(torch.equal(tensor, weights[key]), key)
        self.assertTrue(torch.equal(logits_of(again, tokens), wanted))
        # By the names that transformers itself writes.
        written = load_file(self.folder / name / "model/model.safetensors")
        exported = load_file(out / "whole/model.safetensors")
        self.assertEqual(exported.keys(), written.keys())

        wanted_losses, wanted_gradients = train(model, tokens)
        losses = [float(line) for line in (out / "losses.txt").read_text().split()]
        self.assertLess(abs(losses[0] / wanted_losses[0] - 1), 1e-6)
        gradients = load_file(out / "gradients/model.safetensors")
        names = {id(param): key for key, param in model.named_parameters()}
        self.assertEqual(len(gradients), len(names))
        whole = sum(gradient.norm().item()**2 for gradient in wanted_gradients.values()) ** 0.5
        errors = 0
        for key, gradient in wanted_gradients.items():
            got = gradients["embed_out.weight" if key == "lm_head.weight" and "embed_out.weight" in gradients else key]
            # Some are 0 but for rounding, as that of a bias that all scores of a row share.
            error = (got - gradient).norm().item()
            self.assertLess(error, 3e-6 * gradient.norm().item() + 1e-7 * whole, key)
            errors += error**2
        self.assertLess(errors**0.5, 1e-6 * whole)
        self.assertEqual(len(losses), STEPS)
        for step, (loss, wanted_loss) in enumerate(zip(losses, wanted_losses)):
            self.assertLess(abs(loss / wanted_loss - 1), 3e-6, f"step {step}")
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_experts_that_are_one_tensor_in_the_file(self):
        # As transformers 5 has them in memory, and writes them when it is told not to split them.
        for name in ("mixtral", "qwen2_moe"):
            whole = self.folder / f"{name}_whole"
            (whole / "out").mkdir(parents=True)
            self.saved(name).save_pretrained(whole / "model", save_original_format=False)
            self.assertTrue(any(key.endswith(".experts.gate_up_proj") for key in load_file(whole / "model/model.safetensors")))
            (whole / "ds.json").write_text(json.dumps(CONFIG))
            tokens = torch.zeros(1, BATCH, TIME + 1, dtype=torch.long)
            (whole / "tokens").write_bytes(torch.tensor([1, BATCH, TIME]).numpy().tobytes() + tokens.numpy().tobytes())
            words = [PROBE, whole / "model", whole / "tokens", whole / "ds.json", whole / "out"]
            result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            exported = load_file(whole / "out/whole/model.safetensors")
            written = load_file(self.folder / name / "model/model.safetensors")
            self.assertEqual(exported.keys(), written.keys())
            for key, tensor in written.items():
                self.assertTrue(torch.equal(exported[key], tensor), key)

    def test_a_run_of_a_mixture_exports_what_transformers_loads(self):
        place = self.folder / "qwen2_moe"
        run, exported = place / "run", place / "exported"
        # The rate is too small to change a weight.
        for words in (["train", "--model", place / "model", "--data", "synthetic:tokens=1000", "--sequence", "16", "--steps", "1",
                       "--lr", "1e-30", "--router-aux-loss", "1", "--ranks", "2", "--threads", "1", "--no-report", "--out", run],
                      ["checkpoint", "export", run, exported, "--dtype", "fp32"]):
            result = subprocess.run([SHOAL, *map(str, words)], capture_output=True, text=True, timeout=120)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(load_file(exported / "model.safetensors").keys(), load_file(place / "model/model.safetensors").keys())
        again = AutoModelForCausalLM.from_pretrained(exported)
        self.assertTrue(again.config.output_router_logits)
        self.assertEqual(again.config.router_aux_loss_coef, 1.0)
        weights = self.saved("qwen2_moe").state_dict()
        for key, tensor in again.state_dict().items():
            self.assertTrue(torch.equal(tensor, weights[key]), key)

    def test_bf16_is_as_near_as_transformers_own(self):
        """Both against fp32: routers of other bits may choose other experts, so a loss is held against the loss of many tokens."""
        for name in ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe"):
            narrow = self.folder / f"{name}_bf16"
            (narrow / "out").mkdir(parents=True)
            (narrow / "ds.json").write_text(json.dumps(CONFIG | {"bf16": {"enabled": True}}))
            words = [PROBE, self.folder / name / "model", self.folder / name / "tokens", narrow / "ds.json", narrow / "out"]
            result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            losses = [float(line) for line in (narrow / "out/losses.txt").read_text().split()]
            tokens = make_tokens(CASES[name])
            with torch.no_grad():
                exact = loss_of(self.saved(name), tokens[0]).item()
                theirs = loss_of(self.saved(name).to(torch.bfloat16), tokens[0]).item()
            self.assertLess(abs(losses[0] - exact), 2 * abs(theirs - exact) + 2e-3 * exact, name)
            self.assertLess(losses[-1], losses[0] - 0.1)

    def test_keys_that_are_left_out_and_those_of_older_versions(self):
        cases = [(kind, {}) for kind in FAMILIES] + OLD_KEYS
        paths = []
        for number, (kind, more) in enumerate(cases):
            paths.append(str(self.folder / f"minimal_{number}.json"))
            shape = MINIMAL | ({"ffn_dim": 128} if kind == "opt" else {}) | more
            Path(paths[-1]).write_text(json.dumps({"model_type": kind} | shape))
        result = subprocess.run([PROBE, "--read", *paths], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for line, (kind, more) in zip(lines, cases):
            with self.subTest(kind, **more):
                read = json.loads(line)
                wanted = read_by_transformers(kind, MINIMAL | ({"ffn_dim": 128} if kind == "opt" else {}) | more)
                for key, value in wanted.items():
                    if key not in ("rope", "local_rope"):
                        self.assertEqual(read[key], value, key)
                        continue
                    self.assertEqual(len(read[key]["frequencies"]), len(value["frequencies"]))
                    for got, turn in zip(read[key]["frequencies"], value["frequencies"]):
                        self.assertAlmostEqual(got / turn, 1, delta=1e-6)
                    self.assertAlmostEqual(read[key]["factor"], value["factor"], delta=1e-12)

    def test_the_plan_counts_the_parameters(self):
        for name in ("gemma2", "phi3", "olmo3", "falcon_grouped", "opt", "mixtral", "qwen2_moe_every_other"):
            words = [SHOAL, "plan", "--model", self.folder / name / "model", "--world", "1", "--json"]
            result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["parameters"], self.models[name].num_parameters(), name)


def add_cases():
    for name in CASES:
        setattr(Families, f"test_{name}", lambda self, name=name: self.check_case(name))


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    PROBE, SHOAL = sys.argv.pop(1), sys.argv.pop(1)
    add_cases()
    unittest.main()
