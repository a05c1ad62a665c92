"""The packages on one GPU: a plain DeepSpeed loop, Hugging Face's Trainer, construction, offload, checkpoints, and two ranks
that share the GPU. Numbers are compared in torch's deterministic mode.

SHOAL_TEST_DEVICE=cpu tries the file itself where there is no GPU.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from hf_runs import Samples, ds_config, main_with_models, make_trainer, numbers_of
from models import Net, largest_difference, tokens
from ranks import run

DEVICE = os.environ.get("SHOAL_TEST_DEVICE", "cuda")
STEPS = 4


def be_deterministic() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def config(stage: int, precision: str = "fp32", **others) -> dict:
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0} | others.pop("zero", {})
    made = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 1.0,
        "steps_per_print": float("inf"),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.01}},
        "zero_optimization": zero,
        **others,
    }
    if precision != "fp32":
        made[precision] = {"enabled": True} | ({"initial_scale_power": 8} if precision == "fp16" else {})
    return made


def make_net(**options) -> Net:
    torch.manual_seed(0)
    model = Net(width=64, depth=4, **options)
    with torch.no_grad():
        model.embedding.weight.mul_(0.1)  # losses of a few units, which fp32 tells apart at 1e-6
    return model


def batch(step: int, rank: int = 0) -> torch.Tensor:
    return tokens(step, rank, rows=2, length=32).to(DEVICE)


def steps_of(engine, first: int = 0, last: int = STEPS) -> list[float]:
    numbers = []
    for step in range(first, last):
        loss = engine(batch(step))
        engine.backward(loss)
        engine.step()
        numbers += [loss.item(), engine.get_global_grad_norm()]
    return numbers


def start(settings: dict, model: nn.Module | None = None, **options):
    import deepspeed

    return deepspeed.initialize(model=model if model is not None else make_net(), config=settings, **options)[0]


def train(stage: int, precision: str = "fp32", **others) -> list[float]:
    engine = start(config(stage, precision, **others))
    assert engine.device.type == DEVICE, engine.device
    numbers = steps_of(engine)
    engine.destroy()
    return numbers


def plain_torch(factor: float = 1.0) -> list[float]:
    """`factor`: of the gradients of matrices."""
    model = make_net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    numbers = []
    for step in range(STEPS):
        loss = model(batch(step))
        loss.backward()
        for param in model.parameters():
            param.grad *= factor if param.dim() > 1 else 1.0
        numbers += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()]
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def assert_equal(a: list, b: list, text: str) -> None:
    assert a == b, f"{text}:\n{a}\n{b}"


def test_stages_agree_to_the_bit():
    for precision in ("fp32", "bf16", "fp16"):
        runs = [train(stage, precision) for stage in range(4)]
        for stage, numbers in enumerate(runs):
            assert_equal(numbers, runs[0], f"{precision}, stage {stage} against stage 0")
        assert runs[0][0] > runs[0][-2] > 0, runs[0]


def test_fp32_is_plain_torch():
    difference = largest_difference(train(3), plain_torch())
    assert difference < 1e-5, difference


def test_recompute_changes_nothing():
    plain = train(3, "bf16")
    for kind in ("reentrant", "other"):
        engine = start(config(3, "bf16"), make_net(recompute=kind))
        assert_equal(steps_of(engine), plain, f"recompute {kind}")
        engine.destroy()


def test_backward_without_the_engine():
    numbers = train(3)
    engine = start(config(3))
    again = []
    for step in range(STEPS):
        loss = engine(batch(step))
        loss.backward()
        engine.step()
        again += [loss.item(), engine.get_global_grad_norm()]
    assert_equal(again, numbers, "loss.backward()")
    engine.destroy()


def test_offloaded_states_give_the_same_bits():
    for stage, precision in ((2, "bf16"), (3, "bf16"), (3, "fp32")):
        offloaded = train(stage, precision, zero={"offload_optimizer": {"device": "cpu"}})
        assert_equal(offloaded, train(stage, precision), f"stage {stage}, {precision}")


def test_buffers_and_parameters_come_to_the_gpu():
    class WithBuffer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_net()
            self.register_buffer("factor", torch.full((1,), 2.0))

        def forward(self, ids):
            return self.net(ids) * self.factor.sum()

    model = WithBuffer()
    params = list(model.parameters())
    engine = start(config(3), model)
    assert model.factor.device.type == DEVICE
    assert all(a is b and b.device.type == DEVICE for a, b in zip(params, model.parameters()))
    assert len(steps_of(engine)) == 2 * STEPS
    engine.destroy()


def test_shoal_trains_where_the_model_is():
    import shoal

    settings = config(3)
    settings.pop("steps_per_print")
    engine = shoal.initialize(make_net().to(DEVICE), settings)
    assert engine.device.type == DEVICE
    losses = []
    for step in range(STEPS):
        loss = engine(batch(step))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert_equal(losses, train(3)[::2], "shoal.initialize against deepspeed.initialize")
    with tempfile.TemporaryDirectory() as folder:
        engine.save(folder, step=STEPS)
        engine.destroy()
        again = shoal.initialize(make_net().to(DEVICE), settings)
        again.load(folder)
        straight = train_longer()
        continued = []
        for step in range(STEPS, STEPS + 2):
            loss = again(batch(step))
            again.backward(loss)
            again.step()
            continued.append(loss.item())
        assert_equal(continued, straight, "after a load")
        again.make_whole()
        assert all(param.device.type == DEVICE and param.isfinite().all() for param in again.module.parameters())


def train_longer() -> list[float]:
    engine = start(config(3))
    losses = steps_of(engine, 0, STEPS + 2)[::2][STEPS:]
    engine.destroy()
    return losses


def test_construction_under_zero_init():
    import deepspeed

    wanted = make_net().state_dict()
    numbers = train(3)
    torch.manual_seed(1)
    with deepspeed.zero.Init(config_dict_or_path=config(3)):
        model = Net(width=64, depth=4)
    assert all(param.numel() == 0 for param in model.parameters())
    assert model.embedding.weight.device.type == DEVICE
    model.to(DEVICE)  # passes over empty parameters
    model.to(torch.bfloat16)
    model.to(torch.float32)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        assert model.embedding.weight.device.type == DEVICE
        model.load_state_dict(wanted)
    with deepspeed.zero.GatheredParameters([model.embedding.weight]):
        assert torch.equal(model.embedding.weight.cpu(), wanted["embedding.weight"])
    engine = start(config(3), model)
    assert_equal(steps_of(engine), numbers, "a model made under zero.Init")
    engine.destroy()
    # What the engine left is gathered for the user, and adopted by the next engine.
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        left = model.embedding.weight.detach().clone()
        assert left.device.type == DEVICE and left.isfinite().all() and left.abs().sum() > 0
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        model.load_state_dict(wanted)
    again = start(config(3), model)
    assert_equal(steps_of(again), numbers, "an engine after the engine")
    again.destroy()


def test_gathering_and_states():
    import deepspeed
    from deepspeed.utils import (
        safe_get_full_fp32_param,
        safe_get_full_grad,
        safe_get_full_optimizer_state,
        safe_set_full_fp32_param,
    )

    for stage in (1, 3):
        engine = start(config(stage, "bf16"))
        weight = engine.module.blocks[0].up.weight
        loss = engine(batch(0))
        engine.backward(loss)
        grad = safe_get_full_grad(weight)
        assert grad.device.type == DEVICE and grad.shape == weight.shape and grad.norm() > 0
        engine.step()
        master = safe_get_full_fp32_param(weight)
        moment = safe_get_full_optimizer_state(weight, "exp_avg")
        assert master.device.type == moment.device.type == DEVICE and moment.norm() > 0
        with deepspeed.zero.GatheredParameters([weight]):
            assert weight.device.type == DEVICE
            assert torch.allclose(weight.float(), master, atol=1e-2)
            assert copy.deepcopy(weight).shape == weight.shape
        safe_set_full_fp32_param(weight, torch.full_like(master, 0.25))
        with deepspeed.zero.GatheredParameters([weight], modifier_rank=0):
            assert bool((weight == 0.25).all())
            with torch.no_grad():
                weight[0].fill_(0.5)
        assert safe_get_full_fp32_param(weight)[0].eq(0.5).all()
        whole = engine._consolidated_16bit_state_dict()
        assert whole["blocks.0.up.weight"].device.type == "cpu" and whole["blocks.0.up.weight"][0].eq(0.5).all()
        assert len(steps_of(engine, 1)) == 2 * (STEPS - 1)
        engine.destroy()


def test_checkpoints_continue_to_the_bit():
    for stage in (0, 2, 3):
        for precision in ("bf16", "fp16"):
            engine = start(config(stage, precision))
            steps_of(engine, 0, 2)
            with tempfile.TemporaryDirectory() as folder:
                engine.save_checkpoint(folder, client_state={"note": torch.ones(1)})
                straight = steps_of(engine, 2)
                engine.destroy()
                again = start(config(stage, precision))
                path, client = again.load_checkpoint(folder)
                assert path is not None and client["note"].item() == 1
                assert_equal(steps_of(again, 2), straight, f"stage {stage}, {precision}")
                again.destroy()


def test_optimizers_of_torch():
    def own(kind, model):
        return kind(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)

    import shoal

    # AdamW means the engine's own; a kind that the engine does not know runs itself, on the shards.
    model = make_net()
    engine = start(config(3), model, optimizer=own(torch.optim.AdamW, model))
    assert_equal(steps_of(engine), train(3), "torch.optim.AdamW")
    engine.destroy()
    plain = make_net().to(DEVICE)
    optimizer = own(torch.optim.NAdam, plain)
    wanted = []
    for step in range(STEPS):
        loss = plain(batch(step))
        loss.backward()
        wanted += [loss.item(), nn.utils.clip_grad_norm_(plain.parameters(), 1.0).item()]
        optimizer.step()
        optimizer.zero_grad()
    for stage in (0, 3):
        model = make_net()
        engine = start(config(stage), model, optimizer=own(torch.optim.NAdam, model))
        assert largest_difference(steps_of(engine), wanted) < 1e-5, stage
        states = engine._shoal.client.optimizer.state
        assert all(state["exp_avg"].device.type == DEVICE for state in states.values()) and len(states) > 4
        with tempfile.TemporaryDirectory() as folder:
            engine.save_checkpoint(folder)
            straight = steps_of(engine, STEPS, STEPS + 2)
            engine.destroy()
            again_model = make_net()
            again = start(config(stage), again_model, optimizer=own(torch.optim.NAdam, again_model))
            again.load_checkpoint(folder)
            assert largest_difference(steps_of(again, STEPS, STEPS + 2), straight) < 1e-6, stage
            again.destroy()
    model = make_net().to(DEVICE)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    engine = shoal.initialize(model, {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}, optimizer=fused)
    losses = []
    for step in range(STEPS):
        loss = engine(batch(step))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[0] > losses[-1] > 0, losses
    engine.destroy()


def test_autocast():
    runs = []
    for stage in (0, 3):
        engine = start(config(stage))
        losses = []
        for step in range(STEPS):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = engine(batch(step))
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        runs.append(losses)
        engine.destroy()
    assert_equal(runs[1], runs[0], "stage 3 against stage 0")


def test_dropout_is_repeated_by_recompute():
    class Dropping(nn.Module):
        def __init__(self, recompute: bool):
            super().__init__()
            torch.manual_seed(0)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3)) for _ in range(3))
            self.recompute = recompute

        def forward(self, x):
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
            return x.square().mean()

    runs = []
    for recompute in (False, True):
        engine = start(config(3), Dropping(recompute))
        torch.manual_seed(5)
        x = torch.randn(8, 64, device=DEVICE)
        losses = []
        for _ in range(STEPS):
            loss = engine(x)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        runs.append(losses)
        engine.destroy()
    assert_equal(runs[1], runs[0], "recompute")


def test_inputs_of_checkpoints_on_the_host():
    import deepspeed

    width, rows, depth = 256, 2048, 8

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

        def forward(self, x):
            for block in self.blocks:
                x = deepspeed.checkpointing.checkpoint(lambda t, block=block: block(t).relu() + t, x)
            return x.square().mean()

    runs, kept = [], []
    for on_host in (False, True):
        section = {"activation_checkpointing": {"cpu_checkpointing": on_host}}
        deepspeed.checkpointing.configure(deepspeed_config=config(3, **section))
        engine = start(config(3, **section), Blocks())
        torch.manual_seed(5)
        x = torch.randn(rows, width, device=DEVICE)
        losses = []
        for _ in range(STEPS):
            before = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0
            loss = engine(x)
            kept.append((torch.cuda.memory_allocated() if DEVICE == "cuda" else 0) - before)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        runs.append(losses)
        engine.destroy()
    deepspeed.checkpointing.configure(checkpoint_in_cpu=False)
    assert_equal(runs[1], runs[0], "inputs on the host")
    if DEVICE == "cuda":  # all inputs but the first, which the user holds; the last output stays for its square
        assert kept[STEPS - 1] - kept[-1] >= (depth - 1) * rows * width * 4, kept


def test_streams():
    if DEVICE == "cpu":
        return
    import shoal

    wanted = train(3)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        engine = start(config(3))
        assert_equal(steps_of(engine), wanted, "on a stream of its own")
    torch.cuda.synchronize()
    try:
        engine(batch(0))
        raise AssertionError("a forward on another stream was not refused")
    except shoal.Error as error:
        assert "another CUDA stream" in str(error), error
    engine.destroy()


def test_accelerator():
    from deepspeed import comm
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.utils import see_memory_usage

    accelerator = get_accelerator()
    assert accelerator.device_name() == DEVICE and accelerator.is_bf16_supported()
    assert accelerator.total_memory() > accelerator.available_memory() > 0
    see_memory_usage("now", force=True)
    if DEVICE == "cuda":
        comm.init_distributed()
        value = torch.ones(3, device=DEVICE)
        comm.all_reduce(value)
        comm.barrier()
        assert value.tolist() == [1, 1, 1]
        assert accelerator.current_stream() == torch.cuda.current_stream()


def shared_gpu() -> list[list[float]]:
    """Two ranks: at every stage."""
    import deepspeed

    be_deterministic()
    rank = int(os.environ["RANK"])
    runs = []
    for stage in range(4):
        engine = deepspeed.initialize(model=make_net(), config=config(stage))[0]
        numbers = []
        for step in range(STEPS):
            loss = engine(batch(step, rank))
            engine.backward(loss)
            engine.step()
            numbers += [loss.item(), engine.get_global_grad_norm()]
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), modifier_rank=1):
            if rank == 1:
                with torch.no_grad():
                    engine.module.norm.weight.fill_(3)
        with deepspeed.zero.GatheredParameters([engine.module.norm.weight]):
            assert engine.module.norm.weight.eq(3).all() or stage < 3
        engine.destroy()
        runs.append(numbers)
    return runs


def test_two_ranks_share_the_gpu():
    first, _ = run(__file__, "shared_gpu", 2)
    for stage, numbers in enumerate(first):
        assert_equal(numbers, first[0], f"stage {stage} against stage 0")
    model = make_net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    wanted = []
    for step in range(STEPS):
        losses = [model(batch(step, rank)) for rank in range(2)]
        (sum(losses) / 2).backward()
        wanted += [losses[0].item(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()]
        optimizer.step()
        optimizer.zero_grad()
    assert largest_difference(first[0], wanted) < 1e-5, (first[0], wanted)


def hugging_face() -> dict:
    """One rank under torchrun, as `deepspeed --num_gpus=1 script.py` would start it."""
    be_deterministic()
    on_cpu = DEVICE == "cpu"
    facts: dict = {"runs": {}, "resumed": {}, "generated": {}, "lora": {}}
    for stage in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"use_cpu": on_cpu, "bf16": True, "max_steps": 6}
            trainer = make_trainer("llama-bf16", folder, ds_config(stage), save_strategy="steps", save_steps=3, **settings)
            trainer.train()
            facts["device"] = str(trainer.model.device)
            facts["runs"][stage] = [*numbers_of(trainer), trainer.evaluate()["eval_loss"]]
            ids = Samples("llama", 2).ids[:, :4].to(DEVICE)
            facts["generated"][stage] = trainer.model.generate(
                ids, max_new_tokens=5, do_sample=False, synced_gpus=stage == 3, pad_token_id=0
            ).tolist()
            again = make_trainer("llama-bf16", folder, ds_config(stage), **settings)
            again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-3"))
            facts["resumed"][stage] = [*numbers_of(again), again.evaluate()["eval_loss"]]
            facts["files"] = sorted(os.listdir(os.path.join(folder, "checkpoint-3")))
            trainer.save_model(os.path.join(folder, "saved"))
            facts["saved"] = sorted(os.listdir(os.path.join(folder, "saved")))
    if importlib.util.find_spec("peft") is not None:
        for stage in (0, 3):
            with tempfile.TemporaryDirectory() as folder:
                trainer = make_trainer("llama", folder, ds_config(stage), lora=True, use_cpu=on_cpu, max_steps=4)
                trainer.train()
                facts["lora"][stage] = [*numbers_of(trainer), trainer.evaluate()["eval_loss"]]
    return facts


def test_trainer():
    facts = run(__file__, "hugging_face", 1)[0]
    assert facts["device"].startswith(DEVICE), facts["device"]
    assert_equal(facts["runs"]["3"], facts["runs"]["2"], "stage 3 against stage 2")
    for stage in ("2", "3"):
        assert_equal(facts["resumed"][stage], facts["runs"][stage], f"resumed at stage {stage}")
    assert_equal(facts["generated"]["3"], facts["generated"]["2"], "generated at stages 3 and 2")
    assert "model.safetensors" in facts["files"] and "global_step3" in facts["files"], facts["files"]
    assert "model.safetensors" in facts["saved"], facts["saved"]
    if facts["lora"]:
        assert_equal(facts["lora"]["3"], facts["lora"]["0"], "LoRA at stages 3 and 0")
    else:
        print("skipped LoRA by peft: it is not installed")


class Adapted(nn.Module):
    """LoRA by hand, for machines without peft: frozen matrices with two small ones beside each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 4), nn.Linear(4, 64)]) for _ in range(3))
        for frozen, _, _ in self.blocks:
            frozen.requires_grad_(False)

    def forward(self, x):
        for frozen, down, up in self.blocks:
            x = frozen(x) + up(down(x))
        return x.square().mean()


def test_frozen_bases_with_adapters():
    runs = []
    for stage in (0, 2, 3):
        engine = start(config(stage, "bf16"), Adapted())
        torch.manual_seed(2)
        x = torch.randn(8, 64, device=DEVICE, dtype=torch.bfloat16)
        losses = []
        for _ in range(STEPS):
            loss = engine(x)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        runs.append(losses)
        engine.destroy()
    assert_equal(runs[1], runs[0], "stage 2")
    assert_equal(runs[2], runs[0], "stage 3")
    assert runs[0][0] > runs[0][-1], runs[0]


def setting_gradients(stage: int, factor: float, precision: str = "fp32", **others) -> list[float]:
    """steps_of, with the gradients of matrices read and set again, multiplied."""
    from deepspeed import utils

    engine = start(config(stage, precision, **others))
    numbers = []
    for step in range(STEPS):
        loss = engine(batch(step))
        engine.backward(loss)
        for param in engine.module.parameters():
            if param.dim() > 1:
                grad = utils.safe_get_full_grad(param)
                assert grad.device.type == DEVICE, grad.device
                utils.safe_set_full_grad(param, grad * factor)
        engine.step()
        numbers += [loss.item(), engine.get_global_grad_norm()]
    engine.destroy()
    return numbers


def test_the_step_is_of_the_gradients_that_were_set():
    runs = [setting_gradients(stage, -3.0) for stage in range(4)]
    on_host = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
    runs.append(setting_gradients(2, -3.0, zero=on_host))
    for index, numbers in enumerate(runs):
        assert_equal(numbers, runs[0], f"run {index}")
    difference = largest_difference(runs[0], plain_torch(-3.0))
    assert difference < 1e-5, difference
    for precision in ("bf16", "fp16"):
        assert_equal(setting_gradients(3, 1.0, precision), train(3, precision), f"{precision}, set as they were")


if __name__ == "__main__":
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("skipped: there is no GPU")
        sys.exit(77)
    be_deterministic()
    main_with_models(globals(), "llama", "llama-bf16")
