"""The Trainer's evaluations, best-model reload, fp16, resume on fewer ranks, and `accelerate launch`, on CPU ranks."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from hf_runs import ds_config, main_with_models, make_model, make_trainer, numbers_of, shared_folder, train
from models import largest_difference
from ranks import run, whole

ROOT = Path(__file__).parents[2]


def best_model(stage: int | None) -> dict:
    """Evaluates and saves after every step. The greatest loss counts as best: that of the first step, not the last."""
    with tempfile.TemporaryDirectory() as own:
        folder = shared_folder(own)
        config = None if stage is None else ds_config(stage)
        trainer = make_trainer(
            "gpt2", folder, config, max_steps=4, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
            load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=True, warmup_steps=0,
        )
        trainer.train()
        losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        return {"losses": losses, "step": trainer.state.best_global_step, "after": trainer.evaluate()["eval_loss"]}


def best_models() -> list[dict]:
    return [best_model(stage) for stage in ((2, 3, None) if whole() else (3, None))]


def test_evaluation_while_training_and_the_best_model_at_the_end():
    *stages, plain = run(__file__, "best_models", 2)[0]
    for facts in stages:
        best = max(facts["losses"])
        assert len(facts["losses"]) == 4 and best > facts["losses"][-1], f"the last model is the best one: {facts}"
        assert facts["after"] == best, f"evaluates to {facts['after']} after the reload, {best} before: {facts}"
        assert facts["losses"] == stages[0]["losses"], stages
        assert facts["step"] == plain["step"], (facts, plain)
    difference = largest_difference([stages[0]["after"]], [plain["after"]])
    assert difference < 1e-5, (stages[0], plain)


def fp16() -> list[list[float]]:
    return [train("llama-fp16", stage, fp16=True, max_steps=4) for stage in (0, 1, 2, 3)]


def test_fp16_is_equal_at_every_stage():
    for numbers in (runs := run(__file__, "fp16", 2)[0]):
        assert numbers == runs[0] and all(math.isfinite(number) for number in numbers), runs


def save_half(folder: str, stage: int) -> list[float]:
    """Four steps with four samples each; the checkpoint is of the second."""
    trainer = make_trainer("gpt2", folder, ds_config(stage), max_steps=4, save_strategy="steps", save_steps=2)
    trainer.train()
    return numbers_of(trainer)


def resume_half(folder: str, stage: int) -> list[float]:
    """The same samples a step on one rank."""
    trainer = make_trainer("gpt2", folder, ds_config(stage), max_steps=4, batch=4)
    trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-2"))
    return numbers_of(trainer)


def test_resume_on_one_rank_what_two_saved():
    for stage in (2, 3) if whole() else (3,):
        with tempfile.TemporaryDirectory() as folder:
            straight = run(__file__, "save_half", 2, folder=folder, stage=stage)[0]
            resumed = run(__file__, "resume_half", 1, folder=folder, stage=stage)[0]
            assert len(resumed) == len(straight) == 8, (straight, resumed)
            assert resumed[:4] == straight[:4], "what the checkpoint logged"
            difference = largest_difference(resumed, straight)
            assert difference < 1e-5, f"stage {stage}: {difference}\n{straight}\n{resumed}"


SCRIPT = """
import json, sys, torch
from accelerate import Accelerator, PartialState
PartialState(cpu=True)
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(3, 64, (16, 16), generator=torch.Generator().manual_seed(0))
loader = torch.utils.data.DataLoader([{"input_ids": row, "labels": row} for row in ids], batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
if accelerator.is_main_process:
    facts = {"losses": losses, "type": str(accelerator.distributed_type), "engine": type(model).__name__}
    open(sys.argv[2], "w").write(json.dumps(facts))
"""


def launch(folder: str, name: str, *options: str) -> dict:
    script, result = Path(folder, "script.py"), Path(folder, f"{name}.json")
    script.write_text(SCRIPT)
    model = os.path.join(os.environ["SHOAL_TEST_MODELS"], "gpt2")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1",
               "--dynamo_backend", "no", "--main_process_port", "0", *options, str(script), model, str(result)]
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"}  # says where a rank was that aborted
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-12000:]}"
    return json.loads(result.read_text())


def plain_losses() -> list[float]:
    """One process that sees both ranks' samples; accelerate gives rank r the batches r, r + 2, ..."""
    model = make_model("gpt2")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for ids in torch.randint(3, 64, (16, 16), generator=torch.Generator().manual_seed(0)).split(4):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_accelerate_launch_with_a_config_file():
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for stage in (2, 3) if whole() else (3,):
            path = Path(folder, f"zero{stage}.json")
            path.write_text(json.dumps(ds_config(stage) | {"train_micro_batch_size_per_gpu": 2}))
            options = ["--use_deepspeed", "--deepspeed_config_file", str(path)]
            found.append(launch(folder, f"stage{stage}", *options))
        plain = plain_losses()
        for facts in found:
            assert facts["engine"] == "DeepSpeedEngine" and "DEEPSPEED" in facts["type"], facts
            assert facts["losses"] == found[0]["losses"], found
        difference = largest_difference(found[0]["losses"], plain)
        assert difference < 1e-5, (found[0], plain)


if __name__ == "__main__":
    main_with_models(globals(), "gpt2", "llama-fp16")
