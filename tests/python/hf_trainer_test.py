"""Hugging Face's Trainer with deepspeed=<config>, on 2 CPU ranks: unchanged scripts, against the Trainer on DDP."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, run

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


def save_models(folder: str) -> None:
    for kind in ("gpt2", "llama", "t5", "vit", "mixtral"):
        build_model(kind).save_pretrained(os.path.join(folder, kind))
    # At stage 3 zero.Init rounds first values to bf16, so equal bits need a model that was saved so.
    build_model("llama").bfloat16().save_pretrained(os.path.join(folder, "llama-bf16"))


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
                                  num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
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
        output_dir=folder, use_cpu=True, deepspeed=config, per_device_train_batch_size=2, per_device_eval_batch_size=2,
        max_steps=options.pop("max_steps", 6), learning_rate=1e-2, logging_steps=1, report_to=[], disable_tqdm=True,
        save_strategy=options.pop("save_strategy", "no"), lr_scheduler_type=options.pop("lr_scheduler_type", "linear"),
        warmup_steps=options.pop("warmup_steps", 2), seed=0, remove_unused_columns=False, weight_decay=0.01, **options,
    )
    model = make_model(kind)
    if lora:
        model = _with_adapters(model)
    return tf.Trainer(model=model, args=arguments, train_dataset=Samples(kind, 32), eval_dataset=Samples(kind, 8, 1))


def numbers_of(trainer) -> list[float]:
    """Losses and norms that the Trainer logged (rounded by it), and what it evaluates to."""
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


def train_all(kind: str, against_plain: bool, **options) -> list[list[float]]:
    """At every stage, and last without DeepSpeed."""
    stages = [0, 1, 2, 3, *([None] if against_plain else [])]
    return [train(kind, stage, **options) for stage in stages]


def compare(kind: str, tolerance: float = 2e-3, against_plain: bool = True, **options) -> None:
    runs = run(__file__, "train_all", 2, kind=kind, against_plain=against_plain, **options)[0]
    for stage, numbers in enumerate(runs[:4]):
        assert numbers == runs[0], f"{kind}: stage {stage} differs from stage 0:\n{numbers}\n{runs[0]}"
    assert len(runs[0]) > 6, runs[0]
    if against_plain:
        assert len(runs[4]) == len(runs[0]), runs
        difference = max(abs(a - b) for a, b in zip(runs[4], runs[0]))
        assert difference < tolerance, f"{kind}: {difference} away from DDP:\n{runs[4]}\n{runs[0]}"


def test_gpt2():
    compare("gpt2")


def test_llama_with_accumulation_and_a_short_last_window():
    os.environ["SHOAL_REPRODUCIBLE"] = "1"
    try:
        compare("llama", gradient_accumulation_steps=3, max_steps=5)
    finally:
        del os.environ["SHOAL_REPRODUCIBLE"]


def test_llama_with_gradient_checkpointing():
    compare("llama", gradient_checkpointing=True)


def test_optimizer_and_schedule_of_the_config():
    compare("gpt2", config_optimizer=True, against_plain=False)


def test_bf16():
    compare("llama-bf16", bf16=True, against_plain=False)


def test_t5():
    compare("t5")


def test_vision_transformer():
    compare("vit")


def test_mixture_of_experts():
    compare("mixtral")


def train_lora(stage: int | None) -> list[float]:
    """A frozen base with adapters: most of each block is never trained."""
    import peft

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer("llama", folder, None if stage is None else ds_config(stage), lora=True)
        assert isinstance(trainer.model, peft.PeftModel)
        trainer.train()
        return [*numbers_of(trainer), trainer.evaluate()["eval_loss"]]


def train_lora_all() -> list[list[float]]:
    return [train_lora(stage) for stage in (0, 2, 3, None)]


def test_lora():
    if importlib.util.find_spec("peft") is None:
        print("skipped test_lora: peft is not installed")
        return
    *stages, plain = run(__file__, "train_lora_all", 2)[0]
    assert stages[0] == stages[1] == stages[2], stages
    difference = max(abs(a - b) for a, b in zip(plain, stages[0]))
    assert difference < 2e-3, (plain, stages[0])


def resume(stage: int) -> dict:
    with tempfile.TemporaryDirectory() as own:
        folder = _shared_folder(own)
        straight = make_trainer("gpt2", folder, ds_config(stage), save_strategy="steps", save_steps=3)
        straight.train()
        again = make_trainer("gpt2", folder, ds_config(stage), save_strategy="no")
        again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-3"))
        files = sorted(os.listdir(os.path.join(folder, "checkpoint-3")))
        return {
            "straight": [e["loss"] for e in straight.state.log_history if "loss" in e],
            "again": [e["loss"] for e in again.state.log_history if "loss" in e],
            "evaluation": [straight.evaluate()["eval_loss"], again.evaluate()["eval_loss"]],
            "files": files,
        }


def _shared_folder(own: str) -> str:
    import torch.distributed as dist
    import transformers as tf

    tf.TrainingArguments(output_dir=own, use_cpu=True)  # brings torch.distributed up
    names = [own]
    if dist.is_initialized():
        dist.broadcast_object_list(names, src=0)
    return names[0]


def test_save_and_resume_to_the_bit():
    for stage in (2, 3):
        facts = run(__file__, "resume", 2, stage=stage)[0]
        assert facts["straight"] == facts["again"], facts
        assert facts["evaluation"][0] == facts["evaluation"][1], facts
        assert "model.safetensors" in facts["files"] and "global_step3" in facts["files"], facts


def generate(stage: int) -> list:
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer("gpt2", folder, ds_config(stage), max_steps=2)
        trainer.train()
        ids = Samples("gpt2", 2).ids[:, :4]
        out = trainer.model.generate(ids, max_new_tokens=5, do_sample=False, synced_gpus=True, pad_token_id=0)
        return out.tolist()


def test_generate_is_the_same_at_stage_3():
    assert run(__file__, "generate", 2, stage=3) == run(__file__, "generate", 2, stage=1)


if __name__ == "__main__":
    if importlib.util.find_spec("accelerate") is None:
        print("skipped: accelerate is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as models:
        os.environ["SHOAL_TEST_MODELS"] = models
        save_models(models)
        main(globals())
