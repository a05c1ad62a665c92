"""A plain DeepSpeed loop on the package `deepspeed` that Shoal answers: the engine's surface, schedules, accumulation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, largest_difference, tokens
from ranks import free_port, main, run

STEPS = 4


def config(stage: int, **others) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "steps_per_print": float("inf"),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.01}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2, "warmup_num_steps": 3}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 5e8},
        "zero_allow_untested_optimizer": True,
        "amp": {"enabled": False},
        "sparse_gradients": False,
        "zero_optimization.reduce_bucket_size": 17,
        **others,
    }


def plain(world: int, rank: int) -> list[float]:
    from deepspeed.runtime.lr_schedules import WarmupLR

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.01)
    scheduler = WarmupLR(optimizer, warmup_min_lr=0, warmup_max_lr=1e-2, warmup_num_steps=3)
    numbers = []
    for step in range(STEPS):
        for micro in range(2):
            losses = [model(tokens(2 * step + micro, other)) for other in range(world)]
            (sum(losses) / world / 2).backward()
            numbers.append(losses[rank].item())
        numbers.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        numbers.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return numbers


def loop(stage: int, boundary_from_outside: bool, offload: dict | None = None) -> list[float]:
    import deepspeed

    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = Net()
    asked = config(stage)
    asked["zero_optimization"].update(offload or {})
    engine, optimizer, loader, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=asked
    )
    assert type(engine) is deepspeed.DeepSpeedEngine is deepspeed.runtime.engine.DeepSpeedEngine
    assert loader is None and engine.module is model and engine.lr_scheduler is scheduler
    assert engine.train_batch_size() == 4 * int(os.environ["WORLD_SIZE"])
    weights = asked["zero_optimization"].get("offload_param")
    assert weights is None or list(Path(weights["nvme_path"]).rglob("weights")), "the weights are not on disk"
    numbers = []
    for step in range(STEPS):
        for micro in range(2):
            loss = engine(tokens(2 * step + micro, rank))
            if boundary_from_outside:
                engine.set_gradient_accumulation_boundary(is_boundary=micro == 1)
                engine.backward(loss / 2, scale_wrt_gas=False)
            else:
                assert engine.is_gradient_accumulation_boundary() == (micro == 1)
                engine.backward(loss)
            rate = optimizer.param_groups[0]["lr"]
            if micro == 1 or not boundary_from_outside:
                engine.step()
            numbers.append(loss.item())
        numbers += [engine.get_global_grad_norm(), rate]
    assert engine.global_steps == STEPS and not optimizer.overflow
    engine.destroy()
    return numbers


def train(disk: str) -> dict:
    import deepspeed  # noqa: F401

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_disk = {"device": "nvme", "nvme_path": disk, "buffer_count": 2, "pin_memory": True, "ratio": 0.7}
    return {
        "runs": [loop(stage, outside) for stage in range(4) for outside in (False, True)],
        "offloaded": [
            loop(stage, False, {"offload_optimizer": offload}) for stage in (1, 3) for offload in (on_disk, {"device": "cpu"})
        ],
        "weights on disk": loop(3, False, {"offload_param": {"device": "nvme", "nvme_path": disk, "max_in_cpu": 0}}),
        "plain": plain(world, rank),
    }


def test_loop_against_plain_torch_at_every_stage():
    os.environ["SHOAL_REPRODUCIBLE"] = "1"
    with tempfile.TemporaryDirectory() as disk:
        results = run(__file__, "train", 2, disk=disk)
        assert os.listdir(disk) == []
    for rank, result in enumerate(results):
        for index, numbers in enumerate(result["runs"]):
            assert numbers == result["runs"][0], f"rank {rank}, stage {index // 2}: {numbers} {result['runs'][0]}"
        assert all(numbers == result["runs"][0] for numbers in result["offloaded"]), f"rank {rank}: {result['offloaded']}"
        assert result["weights on disk"] == result["runs"][0], f"rank {rank}: {result['weights on disk']}"
        difference = largest_difference(result["runs"][0], result["plain"])
        assert difference < 1e-5, f"rank {rank}: {difference} away from plain torch"


def states(stage: int) -> dict:
    from deepspeed import utils, zero
    import deepspeed

    torch.manual_seed(0)
    with zero.Init(config_dict_or_path={"bf16": {"enabled": "auto"}}, enabled=stage == 3):
        model = Net()
    engine, *_ = deepspeed.initialize(model=model, config=config(stage, gradient_accumulation_steps=1))
    weight = model.blocks[0].up.weight
    engine.backward(engine(tokens(0, int(os.environ["RANK"]))))
    grad = utils.safe_get_full_grad(weight)
    engine.step()
    before = utils.safe_get_full_fp32_param(weight)
    moment = utils.safe_get_full_optimizer_state(weight, "exp_avg")
    utils.safe_set_full_fp32_param(weight, torch.full_like(before, 0.5))
    utils.safe_set_full_optimizer_state(weight, torch.full_like(moment, 0.25), "exp_avg")
    with zero.GatheredParameters([weight, None], modifier_rank=None):
        seen = weight.detach().clone()
    facts = {
        "grad": grad.double().abs().sum().item(),
        "before": before.double().sum().item(),
        "moment": moment.double().sum().item(),
        "set": bool((seen == 0.5).all()),
        "moment set": bool((utils.safe_get_full_optimizer_state(weight, "exp_avg") == 0.25).all()),
        "marked": hasattr(weight, "ds_id") == (stage == 3),
    }
    consolidated = engine._zero3_consolidated_16bit_state_dict()
    if consolidated is not None:
        facts["keys"] = sorted(consolidated) == sorted(Net().state_dict())
        facts["tied"] = consolidated["head.weight"] is consolidated["embedding.weight"]
    engine.destroy()
    return facts


def all_states() -> list:
    return [states(stage) for stage in range(4)]


def test_states_are_read_and_written_alike_at_every_stage():
    for result in run(__file__, "all_states", 2):
        for facts in result:
            assert facts == result[0], (facts, result[0])
            assert facts["set"] and facts["moment set"] and facts["marked"] and facts["grad"] > 0, facts
            assert facts.get("keys", True) and facts.get("tied", True), facts


def save_and_resume(folder: str, stage: int) -> list:
    import deepspeed

    def make():
        model = Net()
        return deepspeed.initialize(model=model, config=config(stage, gradient_accumulation_steps=1))[0]

    def steps(engine, first: int, last: int) -> list[float]:
        losses = []
        for step in range(first, last):
            loss = engine(tokens(step, int(os.environ["RANK"])))
            engine.backward(loss)
            engine.step()
            losses += [loss.item(), engine.get_lr()[0]]
        return losses

    engine = make()
    steps(engine, 0, 2)
    engine.save_checkpoint(folder, client_state={"epoch": 7})
    engine.save_checkpoint(folder, client_state={"epoch": 7})  # twice, as the Trainer does
    straight = steps(engine, 2, 4)
    path, client = engine.load_checkpoint(folder)  # into an engine that went on
    back = steps(engine, 2, 4)
    engine.destroy()
    engine = make()
    path, client = engine.load_checkpoint(folder)
    assert path is not None and client["epoch"] == 7 and engine.global_steps == 2
    assert engine.load_checkpoint(folder + "/nothing") == (None, None)
    return [straight, back, steps(engine, 2, 4)]


def test_resume_is_equal_to_the_bit():
    for stage in range(4):
        with tempfile.TemporaryDirectory() as folder:
            for straight, back, resumed in run(__file__, "save_and_resume", 2, folder=folder, stage=stage):
                assert straight == back == resumed, (straight, back, resumed)


def resume_elsewhere(folder: str, stage: int, save: bool) -> list[float]:
    """Saves after two steps, or loads and says what the model evaluates to and what its optimizer holds."""
    import deepspeed
    from deepspeed import utils

    torch.manual_seed(0)
    model = Net()
    engine = deepspeed.initialize(model=model, config=config(stage, gradient_accumulation_steps=1))[0]
    if save:
        for step in range(2):
            engine.backward(engine(tokens(step, int(os.environ["RANK"]))))
            engine.step()
        engine.save_checkpoint(folder)
    else:
        engine.load_checkpoint(folder)
    with torch.no_grad():
        loss = model(tokens(99, 0)).item()
    if save and engine.global_rank == 0:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        whole = get_fp32_state_dict_from_zero_checkpoint(folder)
        again = Net()
        again.load_state_dict(whole)
        assert again(tokens(99, 0)).item() == loss and whole["head.weight"] is whole["embedding.weight"]
    moments = [utils.safe_get_full_optimizer_state(param, "exp_avg_sq") for param in model.parameters()]
    return [loss, *(moment.double().sum().item() for moment in moments)]


def test_resume_on_another_number_of_ranks_and_at_another_stage():
    for stage, other_stage in ((3, 1), (2, 3)):
        with tempfile.TemporaryDirectory() as folder:
            saved = run(__file__, "resume_elsewhere", 2, folder=folder, stage=stage, save=True)[0]
            for world in (1, 3):
                for found in run(__file__, "resume_elsewhere", world, folder=folder, stage=other_stage, save=False):
                    assert found == saved, (stage, other_stage, world, found, saved)


def end_with_collectives_in_flight(made_by_torch: bool) -> bool:
    import deepspeed

    if made_by_torch:
        torch.distributed.init_process_group("gloo")
    deepspeed.init_distributed()
    for _ in range(600):
        deepspeed.comm.all_reduce(torch.ones(500_000), async_op=True)
    return True


def test_a_process_ends_well_with_collectives_in_flight():
    for made_by_torch in (False, True):
        assert run(__file__, "end_with_collectives_in_flight", 2, made_by_torch=made_by_torch) == [True, True]


def test_the_launcher_starts_ranks_with_local_rank():
    # In one write: torchrun's ranks do not buffer, and lines of two ranks would mix.
    script = "import os, sys; os.write(1, f'rank {os.environ[\"RANK\"]} of {os.environ[\"WORLD_SIZE\"]} {sys.argv[1:]}\\n'.encode())"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script)
        for extra, argument in (([], "--local_rank=1"), (["--no_local_rank"], "")):
            command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(free_port())]
            done = subprocess.run([*command, *extra, str(path), "--mine"], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            wanted = f"rank 1 of 2 {[argument, '--mine'] if argument else ['--mine']}"
            assert wanted in done.stdout, done.stdout


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
