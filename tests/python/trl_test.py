"""TRL's SFT and DPO on the package `deepspeed`, 2 CPU ranks, against TRL on DDP. DPO has two engines at stage 3: the policy's
and the reference model's. Skipped where trl is not installed: tools/setup.sh trl, with Python 3.11 or newer."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from hf_runs import LENGTH, VOCABULARY, ds_config, main_with_models, make_model, numbers_of
from models import largest_difference
from ranks import run


def make_tokenizer():
    """One token a word, made on the spot."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(VOCABULARY - 3))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def sentences(count: int, words: int, seed: int) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, VOCABULARY - 3, (count, words), generator=generator).tolist()
    return [" ".join(f"w{word}" for word in row) for row in rows]


def options(folder: str, stage: int | None, on_gpu: bool) -> dict:
    return dict(
        output_dir=folder, use_cpu=not on_gpu, bf16=False, deepspeed=None if stage is None else ds_config(stage), max_steps=3,
        per_device_train_batch_size=2, learning_rate=1e-2, logging_steps=1, report_to=[], disable_tqdm=True, save_strategy="no",
        seed=0, gradient_checkpointing=False, max_length=LENGTH, dataset_num_proc=None,
    )


def sft(stage: int | None, on_gpu: bool = False) -> list[float]:
    import datasets
    import trl

    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.SFTConfig(**options(folder, stage, on_gpu))
        trainer = trl.SFTTrainer(
            model=make_model("llama"), args=arguments, processing_class=make_tokenizer(),
            train_dataset=datasets.Dataset.from_dict({"text": sentences(16, 10, seed=0)}),
        )
        trainer.train()
        return numbers_of(trainer)


def dpo(stage: int | None, on_gpu: bool = False) -> dict:
    import datasets
    import trl

    data = {"prompt": sentences(16, 4, 1), "chosen": sentences(16, 6, 2), "rejected": sentences(16, 6, 3)}
    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.DPOConfig(**options(folder, stage, on_gpu), beta=0.5)
        trainer = trl.DPOTrainer(
            model=make_model("llama"), ref_model=make_model("llama"), args=arguments, processing_class=make_tokenizer(),
            train_dataset=datasets.Dataset.from_dict(data),
        )
        trainer.train()
        kinds = [type(trainer.model_wrapped).__name__, type(trainer.ref_model).__name__]
        rewards = [entry["rewards/margins"] for entry in trainer.state.log_history if "rewards/margins" in entry]
        return {"numbers": [*numbers_of(trainer), *rewards], "kinds": kinds}


def train_sft() -> list:
    return [sft(stage) for stage in (1, 3, None)]


def train_dpo() -> list:
    return [dpo(stage) for stage in (1, 3, None)]


def near(a: list[float], b: list[float]) -> None:
    difference = largest_difference(a, b)
    assert difference < 1e-5, (difference, a, b)


def test_sft():
    first, third, plain = run(__file__, "train_sft", 2)[0]
    assert len(first) == 6 and first == third, (first, third)
    near(first, plain)


def test_dpo_with_two_engines():
    first, third, plain = run(__file__, "train_dpo", 2)[0]
    assert third["kinds"] == ["DeepSpeedEngine", "DeepSpeedEngine"], third
    assert first["numbers"] == third["numbers"], (first, third)
    near(first["numbers"], plain["numbers"])
    assert any(abs(margin) > 1e-3 for margin in first["numbers"][-2:]), "the policy moved away from the reference"


if __name__ == "__main__":
    if importlib.util.find_spec("trl") is None:
        print("skipped: trl is not installed; tools/setup.sh trl installs it, with Python 3.11 or newer")
        sys.exit(77)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    main_with_models(globals(), "llama")
