"""mics_shard_size, zero_hpz_partition_size and the keys of ZeRO++ through `import deepspeed`: the weights of one rank, with zero.Init, client optimizers, a
save in the middle that another mesh goes on from, and the errors of groups that mean nothing."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, run, whole

WIDTH = 12
LEAVES = 4
MESHES = {
    "full": {},
    "groups": {"zero_optimization": {"mics_shard_size": 2}},
    "one each": {"zero_optimization": {"mics_shard_size": 1}},
    "stage 2": {"zero_optimization": {"mics_shard_size": 2, "stage": 2}},
    "stage 1": {"zero_optimization": {"mics_shard_size": 2, "stage": 1}, "shoal": {"reproducible": True}},
    "by host": {"shoal": {"shard_size": "host"}},
    "second": {"zero_optimization": {"zero_hpz_partition_size": 2}},
    "over hosts": {"zero_optimization": {"mics_shard_size": 4, "mics_hierarchical_params_gather": True}},
}
ALL_OF_IT = {"zero_quantized_weights": True, "zero_quantized_gradients": True, "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024}}
QUANTIZED = {
    "zeropp": {"zero_optimization": ALL_OF_IT | {"zero_hpz_partition_size": 2}},
    "zeropp, groups": {"zero_optimization": ALL_OF_IT | {"mics_shard_size": 2}},
}


def config_of(mesh: str, adam: bool = True) -> dict:
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    config = {"train_batch_size": 2 * LEAVES, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": zero}
    if adam:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}
    for section, keys in (MESHES | QUANTIZED)[mesh].items():
        config[section] = config.get(section, {}) | keys
    return config


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 3 * WIDTH)
        self.frozen = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.frozen(self.first(x).tanh()).tanh()).float().square().mean()


def train(mesh: str, way: str = "plain", first: int = 0, last: int = 3, folder: str = "") -> list:
    """The weights at the end, of a run from step `first`, which it loads, to `last`, which it saves."""
    import deepspeed

    config = config_of(mesh, adam=way != "client")
    torch.manual_seed(0)
    if way == "init":
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = Net()
    else:
        model = Net()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9) if way == "client" else None
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if first > 0:
        engine.load_checkpoint(folder)
    for step in range(first, last):
        for micro_step in range(LEAVES // ranks):
            generator = torch.Generator().manual_seed(100 * step + micro_step * ranks + rank)
            engine.backward(engine(torch.randn(2, WIDTH, generator=generator).bfloat16()))
            engine.step()
        engine.eval()
        with torch.no_grad():
            engine(torch.ones(2, WIDTH).bfloat16())
        engine.train()
    if folder:
        engine.save_checkpoint(folder)
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        weights = [p.detach().float().flatten().tolist() for p in engine.module.parameters()]
    engine.destroy()
    return weights


def mistake(config: dict) -> str:
    import deepspeed

    try:
        deepspeed.initialize(model=Net(), config=config)
    except Exception as error:
        return str(error)
    return ""


def refusals() -> list[str]:
    found = []
    for keys in ({"mics_shard_size": 3}, {"mics_shard_size": 2, "zero_hpz_partition_size": 2}, {"mics_shard_size": 2, "stage": 0}):
        config = config_of("full")
        config["zero_optimization"] |= keys
        found.append(mistake(config))
    return found


def test_every_mesh_has_the_weights_of_one_rank():
    os.environ["SHOAL_HOSTS"] = ""
    for way in ("plain", "init", "client"):
        alone = run(__file__, "train", 1, mesh="full", way=way)[0]
        os.environ["SHOAL_HOSTS"] = "a,a,b,b"
        most = list(MESHES) if whole() else ["groups", "stage 1", "by host", "second"]
        for mesh in most if way == "plain" else ("groups", "second") if whole() else ("second",):
            for weights in run(__file__, "train", 4, mesh=mesh, way=way):
                assert weights == alone, (way, mesh)
        os.environ["SHOAL_HOSTS"] = ""


def test_quantized_runs_are_the_same_on_every_mesh_and_not_the_exact_one():
    def trained(ranks: int, mesh: str) -> list:
        return run(__file__, "train", ranks, mesh=mesh, way="init")

    os.environ["SHOAL_HOSTS"] = "a,a,b,b"
    zeropp = trained(4, "zeropp")[0]
    for weights in trained(4, "zeropp, groups"):
        assert weights == zeropp
    os.environ["SHOAL_HOSTS"] = ""
    exact = trained(1, "full")[0]
    assert exact != zeropp, "nothing was rounded"
    assert exact[2] == zeropp[2], "what is not trained is exact, however it was gathered"


def test_another_mesh_goes_on_from_what_one_saved():
    with tempfile.TemporaryDirectory() as folder:
        alone = run(__file__, "train", 1, mesh="full", last=4)[0]
        chain = (("groups", 4), ("full", 2), ("second", 4), ("full", 1))
        for step, (mesh, ranks) in enumerate(chain):
            weights = run(__file__, "train", ranks, mesh=mesh, first=step, last=step + 1, folder=folder)[0]
        assert weights == alone


def test_groups_that_mean_nothing_are_refused_in_one_sentence():
    uneven, both, nothing = run(__file__, "refusals", 4)[0]
    assert "groups of 3 ranks do not divide the 4 ranks" in uneven, uneven
    assert "Remove one of them" in both, both
    assert "stage 0 shards nothing" in nothing, nothing


if __name__ == "__main__":
    main(globals())
