"""Hugging Face's Trainer with deepspeed=<config>, on 2 CPU ranks: unchanged scripts, against the Trainer on DDP."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from hf_runs import Samples, ds_config, main_with_models, make_model, make_trainer, numbers_of, shared_folder, train
from models import largest_difference
from ranks import message, run, whole


def train_all(kind: str, stages: list[int | None], **options) -> list[list[float]]:
    return [train(kind, stage, **options) for stage in stages]


def stages_for(*stages: int) -> list[int]:
    """All of them in the whole grid."""
    return [0, 1, 2, 3] if whole() else list(stages)


def compare(kind: str, stages: list[int], against_plain: bool = True, **options) -> None:
    """The stages with each other, to the bit, and with the Trainer without DeepSpeed, which is stage None."""
    every = [*stages, *([None] if against_plain else [])]
    runs = dict(zip(every, run(__file__, "train_all", 2, kind=kind, stages=every, **options)[0]))
    first = runs[stages[0]]
    for stage in stages:
        assert runs[stage] == first, f"{kind}: stage {stage} differs from stage {stages[0]}:\n{runs[stage]}\n{first}"
    assert len(first) > 6, first
    if against_plain:
        assert len(runs[None]) == len(first), runs
        difference = largest_difference(first, runs[None])
        assert difference < 1e-5, f"{kind}: {difference} away from DDP:\n{runs[None]}\n{first}"


def test_gpt2():
    compare("gpt2", [0, 1, 2, 3])


def test_llama_with_accumulation_and_a_short_last_window():
    os.environ["SHOAL_REPRODUCIBLE"] = "1"
    try:
        compare("llama", [0, 1, 2, 3], gradient_accumulation_steps=3, max_steps=5)
    finally:
        del os.environ["SHOAL_REPRODUCIBLE"]


def test_llama_with_gradient_checkpointing():
    compare("llama", stages_for(1, 3), gradient_checkpointing=True)


def test_optimizer_and_schedule_of_the_config():
    compare("gpt2", stages_for(2, 3), config_optimizer=True, against_plain=False)


def test_bf16():
    compare("llama-bf16", stages_for(0, 3), bf16=True, against_plain=False)


def test_t5():
    compare("t5", stages_for(0, 3))


def test_vision_transformer():
    compare("vit", stages_for(2, 3))


def used_experts(trainer, facts: dict) -> None:
    """Notes which experts of the first layer the first micro-step runs."""
    experts = trainer.model.model.layers[0].mlp.experts

    def note(module, args, kwargs):
        chosen = [*args, *kwargs.values()][1]
        facts.setdefault("experts", sorted(set(chosen.flatten().tolist())))

    experts.register_forward_pre_hook(note, with_kwargs=True)


def train_experts(kind: str, stages: list[int]) -> dict:
    facts: dict = {"runs": []}
    for stage in (*stages, None):
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(kind, folder, None if stage is None else ds_config(stage), max_steps=4)
            used_experts(trainer, facts)
            trainer.train()
            facts["runs"].append([*numbers_of(trainer), trainer.evaluate()["eval_loss"]])
    return facts


def compare_experts(kind: str, count: int, stages: list[int]) -> None:
    """The ranks' samples are sent to other experts, and to some that no sample of the other rank is sent to."""
    first, second = run(__file__, "train_experts", 2, kind=kind, stages=stages)
    assert set(first["experts"]) - set(second["experts"]) and set(second["experts"]) - set(first["experts"]), (first, second)
    assert max(len(first["experts"]), len(second["experts"])) < count, (first["experts"], second["experts"])
    *runs, plain = first["runs"]
    assert all(numbers == runs[0] for numbers in runs) and len(plain) > 6, runs
    difference = largest_difference(runs[0], plain)
    assert difference < 1e-5, (plain, runs[0])


def test_two_experts_a_token_that_run_on_some_ranks_only():
    compare_experts("mixtral", 32, stages_for(0, 3))


def test_one_expert_a_token_that_runs_on_some_ranks_only():
    compare_experts("qwen", 16, stages_for(1, 3))


def train_compiled() -> list[list[float]]:
    """Without a compiler first: TrainingArguments leaves what it was told in the environment."""
    found = [train("llama", stage, max_steps=3) for stage in (0, 3)]
    for stage in (0, 3):
        with tempfile.TemporaryDirectory() as folder:
            options = {"torch_compile": True, "torch_compile_backend": "aot_eager", "max_steps": 3}
            trainer = make_trainer("llama", folder, ds_config(stage), **options)
            trainer.train()
            assert trainer.model_wrapped.is_compiled
            loss = trainer.evaluate()["eval_loss"]
            found.append([*numbers_of(trainer), loss])
    return found


def test_torch_compile():
    runs = run(__file__, "train_compiled", 2)[0]
    assert len(runs[0]) == 8 and all(numbers == runs[0] for numbers in runs), runs


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
    difference = largest_difference(stages[0], plain)
    assert difference < 1e-5, (plain, stages[0])


def resume(stage: int) -> dict:
    with tempfile.TemporaryDirectory() as own:
        folder = shared_folder(own)
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


def test_save_and_resume_to_the_bit():
    for stage in (2, 3):
        facts = run(__file__, "resume", 2, stage=stage)[0]
        assert facts["straight"] == facts["again"], facts
        assert facts["evaluation"][0] == facts["evaluation"][1], facts
        assert "model.safetensors" in facts["files"] and "global_step3" in facts["files"], facts


def run_readme(folder: str) -> list[float]:
    """The README's Python, block by block, with a model of transformers and a batch as its loaders give it."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    batch = {key: value[None] for key, value in Samples("gpt2", 1)[0].items()}
    names = {"model": make_model("gpt2"), "batch": batch}
    losses = []
    os.chdir(folder)
    for block in blocks:
        exec(block, names)
        losses.append(float(names["loss"]))
    engine = names["engine"]
    assert engine.load("checkpoints").step == 1
    losses.append(float(engine(**batch).loss))
    return losses


def test_the_readme_runs_as_it_is_shown():
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ds_config.json").write_text(json.dumps(config))
        for losses in run(__file__, "run_readme", 2, folder=folder):
            assert len(losses) == 2 and losses[1] < losses[0], losses


def train_without_use_cpu() -> str:
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer("gpt2", folder, ds_config(2), use_cpu=False, max_steps=1)
        return message(trainer.train)


def test_ranks_that_accelerate_does_not_count_are_told_what_to_set():
    for text in run(__file__, "train_without_use_cpu", 2):
        assert "accelerate counts 1 process, and 2 ranks run" in text, text
        assert "TrainingArguments(use_cpu=True)" in text, text


def train_again() -> dict:
    """train() with an engine that it has just destroyed, and as the message says; then a Trainer that begins with train()."""
    facts: dict = {"said": []}
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer("gpt2", folder, ds_config(3), max_steps=2)
        trainer.evaluate()
        facts["said"].append(message(trainer.train))
        trainer.model_wrapped = trainer.model
        trainer.train()
        facts["after evaluate"] = numbers_of(trainer)
        trainer = make_trainer("gpt2", folder, ds_config(1), max_steps=2)
        trainer.train()
        facts["at once"] = numbers_of(trainer)
        facts["said"].append(message(trainer.train))
        trainer.model_wrapped = trainer.model
        trainer.train()
        facts["after train"] = numbers_of(trainer)
    return facts


def test_train_after_evaluate_or_train_is_told_what_to_set():
    """transformers goes on with an engine that accelerate has destroyed, whatever package answers as deepspeed."""
    facts = run(__file__, "train_again", 2)[0]
    for text in facts["said"]:
        assert "[forward] the engine was destroyed" in text and "trainer.model_wrapped = trainer.model" in text, text
    assert facts["after evaluate"] == facts["at once"] and len(facts["at once"]) == 4, facts
    assert facts["after train"][0] < facts["at once"][0], facts


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
    main_with_models(globals(), "gpt2", "llama", "llama-bf16", "t5", "vit", "mixtral", "qwen")
