"""Faults of DeepSpeed 0.19.8 that ours does not have, and configs as its users write them. One process, a world of one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import largest_difference
from ranks import main

BASE = {"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}}


class Odd(nn.Module):
    """Parameters without a dimension, transposed, in channels_last, and a padded embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.turned = nn.Parameter(torch.randn(5, 4).t())
        self.conv = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        image = torch.arange(50, dtype=torch.float32).reshape(1, 2, 5, 5) / 50
        return ((self.embedding(ids) * self.scale) @ self.turned).square().mean() + self.conv(image).square().mean()


def train(model: nn.Module, config: dict, steps: int = 3) -> list[float]:
    import deepspeed

    engine = deepspeed.initialize(model=model, config=config)[0]
    losses = []
    for _ in range(steps):
        loss = engine(torch.tensor([[0, 1, 2], [3, 4, 0]]))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def plain(model: nn.Module, steps: int = 3) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    losses = []
    for _ in range(steps):
        loss = model(torch.tensor([[0, 1, 2], [3, 4, 0]]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def messages(action) -> list[str]:
    """What the package warns of while it acts."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logger = logging.getLogger("DeepSpeed")
    logger.addHandler(handler)
    try:
        action()
    finally:
        logger.removeHandler(handler)
    return heard


def test_odd_parameters_train_as_in_plain_torch_at_every_stage():
    for stage in range(4):
        torch.manual_seed(0)
        wanted = plain(Odd())
        torch.manual_seed(0)
        model = Odd()
        strides = model.turned.stride(), model.conv.weight.stride()
        assert strides[0] == (1, 4) and not model.conv.weight.is_contiguous()
        found = train(model, BASE | {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
                                     "gradient_clipping": 1.0})  # fmt: skip
        assert largest_difference(found, wanted) < 1e-5, (stage, found, wanted)


def test_a_padded_embedding_is_made_inside_zero_init():
    import deepspeed

    config = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"},
              "train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}  # fmt: skip
    for given in (config, {"zero_optimization": {"stage": 3}}):  # "auto", and no batch size
        with deepspeed.zero.Init(config_dict_or_path=given):
            model = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 4))
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            assert model[0].weight[0].tolist() == [0, 0, 0, 0] and model[0].weight[1:].abs().sum() > 0
            assert model[0].weight.dtype == torch.float32


def test_a_model_may_be_cast_between_zero_init_and_initialize():
    import deepspeed

    torch.manual_seed(0)
    wanted = train(Odd(), BASE | {"zero_optimization": {"stage": 3}})
    torch.manual_seed(0)
    with deepspeed.zero.Init():
        model = Odd()
    model.to(torch.bfloat16)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            with deepspeed.zero.GatheredParameters(list(model.parameters())):
                assert model.turned.shape == (4, 5) and model.turned.dtype == torch.float32
            model.to(torch.bfloat16)
    told = [str(each.message) for each in heard if "[init]" in str(each.message)]
    assert len(told) == 1 and "stay torch.float32" in told[0], told
    model.half()
    assert train(model, BASE | {"zero_optimization": {"stage": 3}}) == wanted


def test_without_an_accelerator_of_its_own_the_cpu_answers():
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    assert accelerator.device_name() == "cpu" and accelerator.communication_backend_name() == "gloo"
    assert accelerator.total_memory() >= accelerator.available_memory() > 0
    assert accelerator.on_accelerator(torch.ones(1))


def test_a_warmup_of_no_steps_is_accepted():
    for name, others in (("WarmupLR", {}), ("WarmupDecayLR", {"total_num_steps": 9}), ("WarmupCosineLR", {"total_num_steps": 9})):
        config = BASE | {"scheduler": {"type": name, "params": {"warmup_num_steps": 0, **others}}}
        assert len(train(Odd(), config)) == 3


def test_without_a_launcher_it_is_a_world_of_one():
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    script = """
import time; import torch; from torch import nn
begin = time.process_time(); import deepspeed; imported = time.process_time()
engine = deepspeed.initialize(model=nn.Linear(8, 8), config={"train_batch_size": 1, "optimizer": {"type": "AdamW"}})[0]
made = time.process_time()
print("[test] seen", engine.world_size, deepspeed.comm.get_world_size(), imported - begin, made - imported)
"""
    import_seconds, initialize_seconds = [], []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        words = next(line for line in done.stdout.splitlines() if line.startswith("[test] seen ")).split()[1:]
        assert words[1:3] == ["1", "1"]
        import_seconds.append(float(words[3]))
        initialize_seconds.append(float(words[4]))
    # Of the processor's time: 1 s and 0.3 s are the limits on a quiet machine; a slow or busy one gets three times that.
    assert min(import_seconds) < 3, import_seconds
    assert min(initialize_seconds) < 0.9, initialize_seconds


OFF = {
    "amp": {"enabled": False}, "sparse_gradients": False, "elasticity": {"enabled": False}, "compression_training": {},
    "flops_profiler": {"enabled": False}, "wandb": {"enabled": False}, "tensorboard": {"enabled": False},
    "csv_monitor": {"enabled": False}, "comms_logger": {"enabled": False}, "curriculum_learning": {"enabled": False},
    "data_efficiency": {"enabled": False}, "progressive_layer_drop": {"enabled": False}, "eigenvalue": {"enabled": False},
    "autotuning": {"enabled": False}, "hybrid_engine": {"enabled": False}, "fp16": {"enabled": False}, "pipeline": {},
    "weight_quantization": {"enabled": False}, "tensor_parallel": {"autotp_size": 0}, "data_parallel_size": 1,
}  # fmt: skip


def test_what_is_switched_off_is_accepted():
    for key, value in OFF.items():
        train(Odd(), BASE | {key: value}, steps=0)


def test_what_is_switched_on_and_missing_is_refused_by_name():
    import shoal

    for key, value in {"amp": {"enabled": True}, "elasticity": {"enabled": True}}.items():
        try:
            train(Odd(), BASE | {key: value}, steps=0)
        except shoal.Error as error:
            assert key in str(error), error
        else:
            raise AssertionError(f"{key} was accepted")


def test_numbers_as_users_write_them():
    zero = {"stage": 3.0, "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 0.9 * 4099, "sub_group_size": 1e9,
            "stage3_param_persistence_threshold": "auto", "load_from_fp32_weights": True, "parameter_alignment": 0}  # fmt: skip
    config = {**BASE, "train_batch_size": 2.0, "gradient_accumulation_steps": 1.0, "steps_per_print": float("inf")}
    assert len(train(Odd(), config | {"zero_optimization": zero})) == 3


def test_unknown_keys_are_warned_of_once_by_name():
    def act() -> None:
        for _ in range(2):
            train(Odd(), BASE | {"my_own_key": 1, "another": {}}, steps=0)

    heard = messages(act)
    for key in ("my_own_key", "another"):
        assert len([line for line in heard if f"[config {key}]" in line]) == 1, heard


def test_the_real_package_beside_ours_is_explained():
    import deepspeed
    from deepspeed.other_package import explain

    own = str(Path(deepspeed.__file__).parent)
    with tempfile.TemporaryDirectory() as site:
        assert explain(own, [site]) is None
        real = Path(site, "deepspeed")
        real.mkdir()
        (real / "git_version_info.py").write_text("")
        info = Path(site, "deepspeed-0.19.8.dist-info")
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.19.8\n")
        said = explain(own, ["", site])
        assert said is not None and "0.19.8" in said and site in said and own in said, said
        try:
            explain(str(real), [site])
        except ImportError as error:
            assert "pip uninstall" in str(error)
        else:
            raise AssertionError("files of both in one folder were accepted")


if __name__ == "__main__":
    main(globals())
