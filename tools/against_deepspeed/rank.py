"""One rank of tools/against_deepspeed. Runs under either package named deepspeed: it trains a small model for a few
steps, loading before and saving after where the job says so, and writes losses and whole states."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import nn

import deepspeed
from deepspeed import utils

VOCABULARY, WIDTH = 50, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """A tied head, a frozen layer, a buffer, and numbers of elements that no world divides."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) * self.scale
        if self.training:
            self.seen += 1
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.frozen(x)).float()
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def tokens(step: int, rank: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1000 * step + rank))


def config(job: dict) -> dict:
    result = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": job["stage"], "stage3_param_persistence_threshold": 0, **job.get("zero", {})},
        "bf16": {"enabled": job["precision"] == "bf16"},
        # The second step overflows, and the scale grows again before the last one.
        "fp16": {"enabled": job["precision"] == "fp16", "initial_scale_power": 14, "hysteresis": 1, "loss_scale_window": 2},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 4, "warmup_type": "linear"}},
        "checkpoint": {"load_universal": bool(job.get("universal"))},
    }
    if job["precision"] == "bf16":
        result["data_types"] = {"grad_accum_dtype": "fp32"} if job["stage"] > 1 else {}
    return result


def groups(model: nn.Module) -> list[dict]:
    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    return [
        {"params": [param for _, param in named if param.dim() > 1], "weight_decay": 0.1},
        {"params": [param for _, param in named if param.dim() <= 1], "weight_decay": 0.0},
    ]


def main() -> None:
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model()
    cls = deepspeed.ops.adam.FusedAdam if job.get("fused") else torch.optim.AdamW
    optimizer = cls(groups(model), lr=1e-2, betas=(0.9, 0.95))
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config(job))
    rank = int(os.environ["RANK"])
    result: dict = {"losses": [], "rates": [], "norms": [], "scales": []}
    if job.get("load"):
        path, client = engine.load_checkpoint(job["load"], tag=job.get("tag"))
        result["client"] = client["note"] if path else None
        result["loaded"] = states(engine, model)
        result["counters"] = [engine.global_steps, engine.global_samples, engine.skipped_steps]
        result["seen"] = model.seen.tolist()
        result["loaded scale"] = scale_of(engine)
    for step in range(job["first"], job["last"]):
        loss = engine(tokens(step, rank))
        engine.backward(loss)
        engine.step()
        result["losses"].append(loss.item())
        result["rates"].append(engine.get_lr())
        result["norms"].append(float(engine.get_global_grad_norm() or 0.0) if engine.was_step_applied() else 0.0)
        result["scales"].append(scale_of(engine))
    result["states"] = states(engine, model)
    result["scale"] = scale_of(engine)
    if job.get("save"):
        engine.save_checkpoint(job["save"], client_state={"note": "from the script"})
    if rank == 0:
        torch.save(result, job["out"])


def scale_of(engine: deepspeed.DeepSpeedEngine) -> float:
    holder = getattr(engine.optimizer, "loss_scale_config", engine.optimizer)  # of the real stage 0
    return float(getattr(holder, "cur_scale", 1.0))  # the real stage 1 in bf16 has none


def states(engine: deepspeed.DeepSpeedEngine, model: nn.Module) -> dict[str, torch.Tensor]:
    optimizer = engine.optimizer
    if engine.zero_optimization_stage() == 0 and not hasattr(engine, "_shoal"):
        return states_of_the_real_stage_0(engine, model)
    if hasattr(optimizer, "_hp_optimizer_states_linked"):
        # The real stages 1 and 2 look for a torch optimizer's states before it has made them, and never again.
        optimizer._link_all_hp_params()
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    found = {}
    for name, param in model.named_parameters():
        if param.requires_grad:
            found[name] = utils.safe_get_full_fp32_param(param)
            for state in ("exp_avg", "exp_avg_sq"):
                found[f"{name} {state}"] = utils.safe_get_full_optimizer_state(param, state)
    return {name: value.detach().clone() for name, value in found.items() if value is not None}


def states_of_the_real_stage_0(engine: deepspeed.DeepSpeedEngine, model: nn.Module) -> dict[str, torch.Tensor]:
    """Which its safe_get functions do not give. Masters are the parameters themselves, copies of them, or a flat a group."""
    names = {param: name for name, param in model.named_parameters()}
    optimizer, found = engine.optimizer, {}
    inner = getattr(optimizer, "optimizer", optimizer)
    for index, group in enumerate(getattr(optimizer, "fp16_groups", [own["params"] for own in inner.param_groups])):
        masters = optimizer.fp32_groups_flat[index : index + 1] if hasattr(optimizer, "fp32_groups_flat") else None
        masters = masters or (optimizer.fp32_groups[index] if hasattr(optimizer, "fp32_groups") else group)
        numels = [param.numel() for param in group] if len(masters) != len(group) else None
        for key in (None, "exp_avg", "exp_avg_sq"):
            values = [(master if key is None else inner.state[master].get(key)) for master in masters]
            if values[0] is None:
                continue
            values = values[0].split(numels) if numels else values
            found |= {names[param] + (f" {key}" if key else ""): value for param, value in zip(group, values)}
    return {name: value.detach().clone() for name, value in found.items()}


main()
