"""Weights that are written by hand between steps, at every stage and precision: below stage 3 in place, everywhere inside a
gather that says who writes. What was written counts, or the engine refuses to go on."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, run

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WRITTEN = 0.5


def config(stage: int, dtype: str) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.0}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": dtype == "bf16"}, "fp16": {"enabled": dtype == "fp16", "loss_scale": 1},
    }  # fmt: skip


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def step(engine: object) -> None:
    x = torch.ones(4, 8, dtype=engine.module[0].weight.dtype)
    engine.backward(engine(x).float().square().mean())
    engine.step()


@torch.no_grad()
def in_place(model: nn.Module) -> None:
    for param in model.parameters():  # or a rank that owns nothing of it hears of the refusal by another's end
        param.fill_(WRITTEN)


def loaded(model: nn.Module) -> None:
    model.load_state_dict({name: torch.full_like(value, WRITTEN) for name, value in model.state_dict().items()})


@torch.no_grad()
def by_rank_0(model: nn.Module) -> None:
    import deepspeed

    with deepspeed.zero.GatheredParameters([model[0].weight, None, torch.ones(2)], modifier_rank=0):
        if os.environ["RANK"] == "0":
            model[0].weight.fill_(WRITTEN)


def other_data(model: nn.Module) -> None:
    """At stage 3: what the parameter is then is not the memory that was gathered."""
    import deepspeed

    with deepspeed.zero.GatheredParameters(model[0].weight, modifier_rank=0):
        if os.environ["RANK"] == "0":
            model[0].weight.data = torch.full_like(model[0].weight, WRITTEN)


def nested(model: nn.Module) -> None:
    import deepspeed

    with deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):
        if os.environ["RANK"] == "0":  # the others are not here
            with torch.no_grad(), deepspeed.zero.GatheredParameters(model[0].weight, modifier_rank=0):
                model[0].weight.fill_(WRITTEN)


@torch.no_grad()
def aside_and_back(model: nn.Module) -> None:
    kept = [param.clone() for param in model.parameters()]
    in_place(model)
    model(torch.ones(4, 8, dtype=kept[0].dtype))
    for param, value in zip(model.parameters(), kept):
        param.copy_(value)


WAYS = {"in place": in_place, "loaded": loaded, "by rank 0": by_rank_0, "nested": nested, "other data": other_data, "aside and back": aside_and_back}


def written(stage: int) -> dict:
    """Of each precision and way: whether the weight was what was written after a step, or the first words of the error."""
    import deepspeed

    found = {}
    for dtype in DTYPES:
        for name, way in WAYS.items():
            if way is other_data and stage < 3:  # refused by the rank that did it, and the others hear of its end
                continue
            engine = deepspeed.initialize(model=model_of(), config=config(stage, dtype))[0]
            step(engine)
            try:
                way(engine.module)
                step(engine)
                found[f"{dtype}, {name}"] = all_written(engine.module)
            except RuntimeError as error:
                found[f"{dtype}, {name}"] = str(error)
            engine.destroy()
    return found


def all_written(model: nn.Module) -> bool:
    """By the weight and by its master, both."""
    import deepspeed

    with deepspeed.zero.GatheredParameters(model[0].weight):
        whole = model[0].weight.detach().float().clone()
    master = deepspeed.utils.safe_get_full_fp32_param(model[0].weight)
    return bool(whole.eq(WRITTEN).all()) and bool(((master - WRITTEN).abs() < 0.01).all())


def test_what_is_written_counts_or_is_refused():
    for stage in range(4):
        for found in run(__file__, "written", 2, stage=stage):
            for dtype in DTYPES:
                assert found[f"{dtype}, by rank 0"] is True and found[f"{dtype}, nested"] is True, (stage, found)
                assert stage < 3 or found[f"{dtype}, other data"] is True, found
                for name in ("in place", "loaded", "aside and back"):
                    what = found[f"{dtype}, {name}"]
                    if stage == 3:
                        assert isinstance(what, str) and "is released" in what, (stage, name, found)
                    elif name == "aside and back":
                        assert what is False, (stage, dtype, found)
                    elif dtype == "fp16":
                        assert "written in place, and its fp32 master was not" in what, (stage, name, found)
                    else:
                        assert what is True, (stage, dtype, name, found)


def masters_after(stage: int, dtype: str, gathers: str) -> dict[str, list[float]]:
    """Of a run whose parameters are gathered for a writer after each step: to be read, or one of them to be written."""
    import deepspeed

    model = model_of()
    adamw = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    engine = deepspeed.initialize(model=model, config=config(stage, dtype) | adamw)[0]
    for _ in range(4):
        step(engine)
        if gathers != "none":
            with torch.no_grad(), deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=1):
                if gathers == "last written" and os.environ["RANK"] == "1":
                    model[1].bias.data[-1] = WRITTEN
    found = {name: deepspeed.utils.safe_get_full_fp32_param(param).tolist() for name, param in model.named_parameters()}
    engine.destroy()
    return found


def all_masters() -> dict[str, dict]:
    cases = ("none", "read", "last written")
    return {f"{dtype} {stage} {case}": masters_after(stage, dtype, case) for dtype in ("bf16", "fp16") for stage in range(4) for case in cases}


def test_what_nobody_writes_keeps_its_masters():
    for found in run(__file__, "all_masters", 2):
        for dtype in ("bf16", "fp16"):
            for stage in range(4):
                none, read, written = (found[f"{dtype} {stage} {case}"] for case in ("none", "read", "last written"))
                assert read == none, (dtype, stage)
                assert written["1.bias"][-1] == WRITTEN != none["1.bias"][-1], (dtype, stage)
                assert any(value != float(torch.tensor(value).to(DTYPES[dtype])) for value in written["0.weight"][0]), (dtype, stage)


def zeroed(stage: int) -> list[float]:
    """Masters of biases that were set to zero in place and trained on; half of their remainders have their top bit set."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    torch.manual_seed(0)
    settings = config(stage, "bf16")
    settings["optimizer"]["params"]["lr"] = 0.1
    settings["zero_optimization"]["stage3_param_persistence_threshold"] = 1000  # whole on every rank at stage 3 too
    model = nn.Linear(8, 64)
    engine = deepspeed.initialize(model=model, config=settings)[0]
    nn.init.zeros_(model.bias)
    for _ in range(3):
        engine.backward((engine(torch.ones(4, 8, dtype=torch.bfloat16)).float() - 3).square().mean())
        engine.step()
    master, weight = safe_get_full_fp32_param(model.bias), model.bias.detach().float()
    engine.destroy()
    assert (master - weight).abs().max() <= 2**-8 * weight.abs().max(), (master, weight)
    return master.tolist()


def test_a_bf16_weight_that_is_set_to_zero_trains_on():
    for stage in range(4):
        for masters in run(__file__, "zeroed", 2, stage=stage):
            assert all(value > 0 for value in masters), f"stage {stage}: {masters}"


def saved(stage: int, folder: str) -> str:
    """What a save says after weights of fp16 were loaded into the module."""
    import deepspeed

    engine = deepspeed.initialize(model=model_of(), config=config(stage, "fp16"))[0]
    step(engine)
    engine.save_checkpoint(folder, tag="first")
    loaded(engine.module)
    try:
        engine.save_checkpoint(folder, tag="second")
    except RuntimeError as error:
        engine.load_checkpoint(folder, tag="first")
        step(engine)
        return str(error) + str(sorted(os.listdir(folder)))
    return "saved"


def test_a_save_of_masters_that_do_not_have_them_is_refused():
    for stage in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            for said in run(__file__, "saved", 2, stage=stage, folder=folder):
                assert "[save_checkpoint]" in said and "was written in place" in said and "second" not in said, said


class Writes(nn.Module):
    """Has a weight that its forward writes: in place, or through .data, or by other data. Late: not in the first passes."""

    def __init__(self, way: str):
        super().__init__()
        self.way, self.passes = way, 0
        self.embedding = nn.Embedding(8, 8, max_norm=1.0 if way == "in place" else None)
        self.linear = nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        weight = self.embedding.weight
        if self.way == "through data" or self.way == "late" and self.passes > 1:
            weight.data.clamp_(-0.5, 0.5)
        elif self.way == "rolled" and self.training:
            weight.data.copy_(weight.data.roll(1, 0))  # the same values at other places
        elif self.way == "transposed":
            weight.data = weight.data.t()
        elif self.way == "other data":
            self.embedding.weight.data = self.embedding.weight.data.t().clamp(-0.5, 0.5).t()
        return self.linear(self.embedding(ids))


def written_in_forward(stage: int, way: str) -> list[float] | str:
    import shoal

    torch.manual_seed(0)
    plain, ids = Writes(way), torch.tensor([0, 1, 2, 0])
    sgd = torch.optim.SGD(plain.parameters(), lr=0.5)
    torch.manual_seed(0)
    settings = config(stage, "fp32") | {"optimizer": {"type": "SGD", "params": {"lr": 0.5}}}
    engine = shoal.initialize(Writes(way), settings)
    differences = []
    try:
        engine.module.eval()
        for _ in range(2):
            engine(ids)
        engine.module.train()
        for _ in range(8):
            loss = (engine(ids) - 1).square().mean()
            engine.backward(loss)
            engine.step()
            wanted = (plain(ids) - 1).square().mean()
            sgd.zero_grad()
            wanted.backward()
            sgd.step()
            differences.append(abs(loss.item() - wanted.item()))
        return differences
    except RuntimeError as error:
        try:
            engine(ids)
        except RuntimeError as again:
            return f"{error} THEN {again}"
        return "went on"
    finally:
        engine.destroy()


def test_what_a_forward_writes_counts_or_is_refused():
    for stage, way in [*itertools.product(range(4), ("in place", "through data", "rolled")), (3, "late"), (3, "other data"), (2, "transposed"), (3, "transposed")]:
        for found in run(__file__, "written_in_forward", 2, stage=stage, way=way):
            if stage == 2 and way == "transposed":
                assert "given other strides, after the engine took it over" in found, found
            elif stage < 3:
                assert max(found) < 1e-6, (stage, way, found)
            else:
                assert "[parameter embedding.weight] was written in place" in found and "stage 2" in found and "Destroy the engine" in found, found


def kept_of_a_gather(stage: int) -> list[float]:
    """Values of tensors that are read after the gather that they are of, before and after a step."""
    import shoal

    engine = shoal.initialize(model_of(), config(stage, "fp32") | {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
    with shoal.gathered(list(engine.module.parameters())):
        kept = {name: value for name, value in engine.module.state_dict().items()}
        view, array = engine.module[0].weight.data[1:], engine.module[0].weight.detach().numpy()
        wanted = sum(value.sum().item() for value in kept.values())
    found = []
    for number in range(2):
        found.append(sum(value.clone().sum().item() for value in kept.values()) - wanted)
        found.append(view.sum().item() - float(array[1:].sum()))
        step(engine)
        if stage < 3:
            break  # they are the weights
    return found


def test_what_is_kept_of_a_gather_can_be_read():
    for stage in (2, 3):
        for found in run(__file__, "kept_of_a_gather", 2, stage=stage):
            assert max(abs(each) for each in found) < 1e-5, (stage, found)


def other_data_between(stage: int) -> list[str]:
    """What a step and a save say of data that stands in a weight's place, as averages of weights do in an evaluation."""
    import deepspeed

    found = []
    for what in ("step", "save", "shared"):
        engine = deepspeed.initialize(model=model_of(), config=config(stage, "fp32"))[0]
        engine.backward(engine(torch.ones(4, 8)).square().mean())
        if what == "save":
            engine.step()
        try:
            if what == "shared":
                engine.module.share_memory()
            for param in engine.module.parameters() if what != "shared" else ():  # or ranks that own nothing of it hear of another's end
                param.data = torch.ones(param.shape)
            with tempfile.TemporaryDirectory() as folder:
                engine.step() if what != "save" else engine.save_checkpoint(folder)
            found.append("went on")
        except RuntimeError as error:
            found.append(str(error))
    return found


def test_data_in_a_weights_place_is_refused_by_steps_and_saves():
    for stage in range(4):
        for found in run(__file__, "other_data_between", 2, stage=stage):
            assert all("was replaced, moved or cast, or given other strides" in what for what in found[:2]), (stage, found)
            assert ("is released" if stage == 3 else "was replaced, moved or cast") in found[2], (stage, found)


def replaced(stage: int) -> list[str]:
    """What a forward or a step says of weights in whose place somebody put others: data, or parameters."""
    import deepspeed

    found = []
    for way in ("data", "assign"):
        engine = deepspeed.initialize(model=model_of(), config=config(stage, "fp32"))[0]
        if way == "data":
            for param in engine.module.parameters():
                param.data = torch.full((8, 8) if param.dim() == 2 else (8,), WRITTEN)
        else:
            engine.module.load_state_dict(model_of().state_dict(), assign=True)
        try:
            step(engine)
            found.append("nothing")
        except RuntimeError as error:
            found.append(str(error))
        engine.destroy()
    return found


def test_replaced_weights_are_an_error():
    for stage in range(4):
        for data, assign in run(__file__, "replaced", 2, stage=stage):
            assert "was replaced, moved or cast" in data, f"stage {stage}: {data}"
            assert "none of the parameters that the engine trains" in assign, f"stage {stage}: {assign}"


def ranks_write(stage: int, what: str) -> list[str | bool]:
    """What each of some steps says when ranks write other values, or one of them writes alone; whether all have the same then."""
    import shoal

    rank = int(os.environ["RANK"])
    engine = shoal.initialize(model_of(), config(stage, "fp32") | {"shoal": {"timeout_seconds": 6}})
    weight, said = engine.module[0].weight, []
    for number in range(4):
        with torch.no_grad():
            if what == "same":
                weight.clamp_(-0.2, 0.2)
            elif what == "gather":
                with shoal.gathered([weight], written_by=1):
                    if rank == 1:
                        weight.fill_(number)
            elif number == 1 and (what in ("other", "other, then read") or rank == 1):
                weight.fill_(rank)
                if what == "other, then read":
                    with shoal.gathered([weight]):
                        pass
        try:
            step(engine)
            said.append("")
        except RuntimeError as error:
            said.append(str(error))
            break
    try:
        said.append(bool(engine.read_state("0.weight", "weight").equal(weight)))
    except RuntimeError as error:
        said.append(str(error))
    return said


def test_ranks_that_write_different_things_are_told():
    for stage, what in [*itertools.product(range(3), ("same", "gather", "other")), (1, "other, then read"), (1, "alone")]:  # alone takes timeout_seconds
        for rank, said in enumerate(run(__file__, "ranks_write", 2, stage=stage, what=what)):
            if what in ("same", "gather"):
                assert said == [""] * 4 + [True], (stage, what, said)
            else:
                assert said[0] == "" and said[1], (stage, what, rank, said)
            if what.startswith("other"):
                assert "0.weight was written in place, and rank 1 has other values than rank 0" in said[1], (stage, said)


def other_tensors(stage: int) -> dict:
    """Of tensors of other strides, of a view's, and of another shape in a weight's place: whether all is as in torch."""
    import shoal

    orthogonal = torch.linalg.qr(torch.arange(64.0).view(8, 8).sin())[0]
    tensors = {"columns": orthogonal, "view": torch.arange(200.0).sin()[64:128].view(8, 8), "shape": torch.ones(4, 16), "dtype": torch.ones(8, 8).double(),
               "transposed": None, "alone": None}
    assert orthogonal.stride() == (1, 8)
    found = {}
    for name, tensor in tensors.items():
        plain, x = model_of(), torch.ones(4, 8)
        engine = shoal.initialize(model_of(), config(stage, "fp32") | {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
        try:
            with shoal.gathered(list(engine.module.parameters()) if name != "alone" else [engine.module[0].weight], written_by=1):
                if os.environ["RANK"] == "1" and tensor is None:
                    engine.module[0].weight.data = engine.module[0].weight.data.t()
                elif os.environ["RANK"] == "1":
                    engine.module[0].weight.data = tensor.clone() if name == "columns" else tensor
            plain[0].weight.data.copy_(tensor if tensor is not None else plain[0].weight.data.t().clone())
            sgd = torch.optim.SGD(plain.parameters(), lr=0.1)
            for _ in range(3):
                engine.backward(engine(x).square().mean())
                engine.step()
                sgd.zero_grad()
                plain(x).square().mean().backward()
                sgd.step()
            found[name] = (engine.read_state("0.weight", "weight") - plain[0].weight).abs().max().item()
        except RuntimeError as error:
            found[name] = str(error)
        engine.destroy()
    return found


def test_a_tensor_of_any_strides_may_be_put_in_a_weights_place():
    for found in run(__file__, "other_tensors", 2, stage=3):
        assert all(found[name] < 1e-6 for name in ("columns", "view", "transposed", "alone")), found
        for name, what in (("shape", "shape (4, 16)"), ("dtype", "float64")):
            assert "rank 1 put a" in found[name] and what in found[name] and "in place of 0.weight" in found[name], found


if __name__ == "__main__":
    main(globals(), imports=("shoal",))
