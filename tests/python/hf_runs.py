"""What the tests of Hugging Face's Trainer share: small models saved on the spot, data, configs, trainers, numbers."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile

import torch

from ranks import main

VOCABULARY, LENGTH = 64, 16


def ds_config(stage: int, **zero) -> dict:
    """The config of the Hugging Face documentation, "auto" and all."""
    return {
        "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
                 "min_loss_scale": 1},
        "bf16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": 1e9,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 1e9,
            "stage3_max_reuse_distance": 1e9,
            "stage3_gather_16bit_weights_on_model_save": True,
            **zero,
        },
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "steps_per_print": 2000,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "wall_clock_breakdown": False,
    }


def with_optimizer(config: dict) -> dict:
    """The optimizer and the schedule in the config too."""
    auto = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    schedule = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}
    return config | {
        "optimizer": {"type": "AdamW", "params": auto},
        "scheduler": {"type": "WarmupLR", "params": schedule},
    }


def make_model(kind: str):
    """From one folder at every stage: what a model draws while it is built depends on how it is built."""
    import transformers as tf

    auto = {"t5": tf.AutoModelForSeq2SeqLM, "vit": tf.AutoModelForImageClassification}.get(kind, tf.AutoModelForCausalLM)
    return auto.from_pretrained(os.path.join(os.environ["SHOAL_TEST_MODELS"], kind))


def save_models(folder: str, *kinds: str) -> None:
    """At stage 3 zero.Init rounds first values to bf16 or fp16, so equal bits need a model that was saved so."""
    for kind in kinds:
        family, _, dtype = kind.partition("-")
        model = build_model(family)
        if dtype:
            model = model.to({"bf16": torch.bfloat16, "fp16": torch.float16}[dtype])
        model.save_pretrained(os.path.join(folder, kind))


def build_model(kind: str):
    import transformers as tf

    torch.manual_seed(0)
    if kind == "gpt2":
        config = tf.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=3, n_head=4,
                               resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2)
        return tf.AutoModelForCausalLM.from_config(config)
    if kind == "llama":
        config = tf.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
                                bos_token_id=1, eos_token_id=2)
        return tf.AutoModelForCausalLM.from_config(config)
    if kind == "t5":
        config = tf.T5Config(vocab_size=VOCABULARY, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4,
                             dropout_rate=0.0, decoder_start_token_id=0)
        return tf.AutoModelForSeq2SeqLM.from_config(config)
    if kind == "vit":
        config = tf.ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                              image_size=8, patch_size=4, num_labels=4, hidden_dropout_prob=0.0)
        return tf.AutoModelForImageClassification.from_config(config)
    if kind == "mixtral":
        config = tf.MixtralConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, num_local_experts=32,
                                  max_position_embeddings=LENGTH)
        return tf.AutoModelForCausalLM.from_config(config)
    if kind == "qwen":
        config = tf.Qwen2MoeConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                   num_attention_heads=4, num_key_value_heads=2, num_experts=16, num_experts_per_tok=1,
                                   moe_intermediate_size=16, shared_expert_intermediate_size=32,
                                   max_position_embeddings=LENGTH)
        return tf.AutoModelForCausalLM.from_config(config)
    raise ValueError(kind)


class Samples(torch.utils.data.Dataset):
    def __init__(self, kind: str, count: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.kind = kind
        self.ids = torch.randint(3, VOCABULARY, (count, LENGTH), generator=generator)
        self.images = torch.randn(count, 3, 8, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict:
        if self.kind == "vit":
            return {"pixel_values": self.images[index], "labels": self.ids[index][0] % 4}
        return {"input_ids": self.ids[index], "labels": self.ids[index].clone()}


def _with_adapters(model):
    import peft

    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=True))


def make_trainer(kind: str, folder: str, config: dict | None, lora: bool = False, **options):
    import transformers as tf

    arguments = tf.TrainingArguments(
        output_dir=folder, use_cpu=options.pop("use_cpu", True), deepspeed=config, per_device_train_batch_size=options.pop("batch", 2),
        per_device_eval_batch_size=2, max_steps=options.pop("max_steps", 6),
        learning_rate=options.pop("learning_rate", 1e-2), logging_steps=1, report_to=[], disable_tqdm=True,
        save_strategy=options.pop("save_strategy", "no"), lr_scheduler_type=options.pop("lr_scheduler_type", "linear"),
        warmup_steps=options.pop("warmup_steps", 2), seed=0, remove_unused_columns=False, weight_decay=0.01, **options,
    )
    model = make_model(kind)
    if lora:
        model = _with_adapters(model)
    return tf.Trainer(model=model, args=arguments, train_dataset=Samples(kind, 32), eval_dataset=Samples(kind, 8, 1))


def numbers_of(trainer) -> list[float]:
    """Losses and norms that the Trainer logged, and evaluations while it trained."""
    found = []
    for entry in trainer.state.log_history:
        found += [entry[key] for key in ("loss", "grad_norm", "eval_loss") if key in entry]
    return found


def train(kind: str, stage: int | None, config_optimizer: bool = False, **options) -> list[float]:
    config = None if stage is None else ds_config(stage)
    if config is not None and config_optimizer:
        config = with_optimizer(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(kind, folder, config, **options)
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
        return [*numbers_of(trainer), loss]


def shared_folder(own: str) -> str:
    import torch.distributed as dist
    import transformers as tf

    tf.TrainingArguments(output_dir=own, use_cpu=True)  # brings torch.distributed up
    names = [own]
    if dist.is_initialized():
        dist.broadcast_object_list(names, src=0)
    return names[0]


def main_with_models(tests: dict, *kinds: str) -> None:
    """ranks.main with these models on disk; skips where accelerate is missing."""
    if importlib.util.find_spec("accelerate") is None:
        print("skipped: accelerate is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as models:
        os.environ["SHOAL_TEST_MODELS"] = models
        save_models(models, *kinds)
        main(tests, imports=("deepspeed", "accelerate", "transformers.trainer"))
