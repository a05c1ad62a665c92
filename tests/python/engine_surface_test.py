"""The surface of DeepSpeed's engine: the shapes in which initialize is called, no_sync, getters, several engines, and what
others read of sharded parameters."""

from __future__ import annotations

import argparse
import copy
import io
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

ADAMW = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}}


def config(stage: int = 3, accumulation: int = 1, **others) -> dict:
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    base = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation, "zero_optimization": zero}
    return {**base, "gradient_clipping": 1.0, **others}


def losses_of(engine, steps: int = 3) -> list[float]:
    found = []
    for step in range(steps):
        loss = engine(tokens(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


def fresh() -> nn.Module:
    torch.manual_seed(0)
    return Net()


def shapes(folder: str) -> dict:
    """Losses by the way in which initialize was called; all ways mean the same."""
    import deepspeed

    with_optimizer = config(optimizer=ADAMW)
    path = os.path.join(folder, f"{os.environ['RANK']}.json")
    Path(path).write_text(json.dumps(with_optimizer))
    found = {}

    def note(name: str, made: nn.Module, *given, **named) -> None:
        engine, optimizer, loader, schedule = deepspeed.initialize(*given, **named)
        assert engine.module is made and engine.optimizer is optimizer and engine.lr_scheduler is schedule and loader is None
        found[name] = losses_of(engine)
        engine.destroy()

    def adamw(params) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=1e-2, weight_decay=0.01)

    def flat(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    model = fresh()
    note("config, a dict", model, model=model, config=with_optimizer, model_parameters=model.parameters())
    model = fresh()
    note("config, a path", model, model=model, config=path)
    model = fresh()
    note("config_params", model, model=model, config_params=with_optimizer)
    model = fresh()
    note("args", model, argparse.Namespace(deepspeed_config=path, local_rank=0), model, None, model.parameters())
    model = fresh()
    note("an optimizer", model, model=model, optimizer=adamw(model.parameters()), config=config())
    model = fresh()
    note("a function for the optimizer", model, model=model, optimizer=adamw, model_parameters=list(model.parameters()), config=config())
    model = fresh()
    optimizer = adamw(model.parameters())
    note("an optimizer and a schedule", model, model=model, optimizer=optimizer, lr_scheduler=flat(optimizer), config=config())
    model = fresh()
    note("a function for the schedule", model, model=model, lr_scheduler=flat, config=with_optimizer)
    return found


def test_every_shape_of_the_call_trains_the_same():
    with tempfile.TemporaryDirectory() as folder:
        for found in run(__file__, "shapes", 2, folder=folder):
            assert len(found) == 8, found
            for name, losses in found.items():
                assert losses == found["config, a dict"], f"{name}: {losses}, {found['config, a dict']}"


def without_optimizer() -> dict:
    """For inference: a model alone."""
    import deepspeed

    model = fresh()
    with torch.no_grad():
        wanted = model(tokens(0, 0)).item()
    engine, optimizer, _, schedule = deepspeed.initialize(model=model, config=config())
    with torch.no_grad():
        facts = {"same": engine(tokens(0, 0)).item() == wanted, "schedule": schedule is None, "optimizer": optimizer is not None}
    engine.destroy()
    facts["trainable again"] = all(param.requires_grad for param in model.parameters())
    return facts


def test_a_model_alone_is_for_inference():
    for facts in run(__file__, "without_optimizer", 2):
        assert all(facts.values()), facts


def accumulate(stage: int, how: str) -> list[float]:
    """Two micro-steps a step: counted by the engine, or the first inside no_sync, where no step is called."""
    import deepspeed

    engine = deepspeed.initialize(model=fresh(), config=config(stage, 2, optimizer=ADAMW))[0]
    found = []
    for step in range(3):
        first, second = (tokens(2 * step + micro, int(os.environ["RANK"])) for micro in range(2))
        if how == "no_sync":
            with engine.no_sync():
                engine.backward(engine(first))
            engine.backward(engine(second))
        else:
            engine.backward(engine(first))
            engine.step()
            engine.backward(engine(second))
        engine.step()
        assert engine.was_step_applied()
        found.append(engine.get_global_grad_norm())
    engine.destroy()
    return found


def all_accumulations() -> list[list[float]]:
    return [accumulate(stage, how) for stage in range(4) for how in ("counted", "no_sync")]


def test_no_sync_accumulates_at_every_stage():
    os.environ["SHOAL_REPRODUCIBLE"] = "1"
    try:
        for found in run(__file__, "all_accumulations", 2):
            assert len(found[0]) == 3 and all(norms == found[0] for norms in found), found
    finally:
        del os.environ["SHOAL_REPRODUCIBLE"]


def compile_twice() -> dict:
    import deepspeed

    graphs: list = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    plain = deepspeed.initialize(model=fresh(), config=config(optimizer=ADAMW))[0]
    facts = {"plain": losses_of(plain), "is_compiled": [plain.is_compiled]}
    plain.destroy()
    model = fresh()
    engine = deepspeed.initialize(model=model, config=config(optimizer=ADAMW))[0]
    engine.compile(backend=backend, compile_kwargs={"backend": "not taken", "fullgraph": True, "dynamic": False})
    first = model.blocks[0].forward
    engine.compile(backend="not looked at")
    facts |= {"compiled": losses_of(engine), "graphs": len(graphs), "same": model.blocks[0].forward is first}
    facts["is_compiled"].append(engine.is_compiled)
    return facts


def test_compile_takes_deepspeeds_arguments_once():
    for facts in run(__file__, "compile_twice", 2):
        assert facts["plain"] == facts["compiled"] and facts["graphs"] == 1 and facts["same"], facts
        assert facts["is_compiled"] == [False, True], facts


def getters() -> dict:
    import deepspeed

    fp16 = {"enabled": True, "loss_scale": 0, "initial_scale_power": 5}
    schedule = {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}
    model = fresh()
    engine = deepspeed.initialize(model=model, config=config(2, 2, optimizer=ADAMW, scheduler=schedule, fp16=fp16))[0]
    facts = {
        "batch": engine.get_batch_info(), "loss scale": engine.loss_scale(), "dynamic": engine.dynamic_loss_scale(),
        "now": [engine.cur_scale, engine.optimizer.cur_scale, engine.optimizer.loss_scale],
        "optimizer": [engine.optimizer_name(), engine.optimizer_params()["lr"]], "schedule": engine.scheduler_name(),
        "offload": [engine.zero_offload_optimizer(), engine.zero_cpu_offload()],
    }  # fmt: skip
    for name, call in {
        "micro batch": lambda: engine.set_train_micro_batch_size(3),
        "offload_states": engine.offload_states,
    }.items():
        try:
            call()
            facts[name] = "accepted"
        except deepspeed.api.Error as error:
            facts[name] = str(error)
    engine.load_module_state_dict({"module": {name: torch.ones_like(v) for name, v in model.state_dict().items()}})
    facts["loaded"] = model.blocks[0].up.weight.double().mean().item()
    engine.destroy()
    return facts


def test_getters_answer_what_deepspeeds_do():
    for facts in run(__file__, "getters", 2):
        assert facts["batch"] == [8, 2, 2] and facts["loss scale"] == 0 and facts["dynamic"] is True, facts
        assert facts["now"] == [32, 32, 32] and facts["optimizer"] == ["AdamW", 1e-2], facts
        assert facts["schedule"] == "WarmupLR" and facts["offload"] == [None, False] and facts["loaded"] == 1, facts
        for name, remedy in (("micro batch", "initialize again"), ("offload_states", "offload_optimizer")):
            assert remedy in facts[name], facts


def own_parts(stage: int) -> dict:
    """What a rank owns of the states of one parameter, and what becomes of it when it is written."""
    import deepspeed
    from deepspeed import utils

    model = fresh()
    engine = deepspeed.initialize(model=model, config=config(stage, optimizer=ADAMW))[0]
    weight = model.blocks[1].down.weight
    engine.backward(engine(tokens(0, int(os.environ["RANK"]))))
    grad = utils.safe_get_local_grad(weight)
    whole_grad = utils.safe_get_full_grad(weight)
    engine.step()
    moment = utils.safe_get_local_optimizer_state(weight, "exp_avg")
    mine = utils.safe_get_local_fp32_param(weight)
    utils.safe_set_local_fp32_param(weight, mine + 1)
    utils.safe_set_local_optimizer_state(weight, moment * 2, "exp_avg")
    facts = {
        "numels": [mine.numel(), moment.numel(), grad.numel()],
        "sums": [values.double().sum().item() for values in (mine, moment, grad)],
        "grad": whole_grad.double().sum().item(),
        "weight": utils.safe_get_full_fp32_param(weight).double().sum().item(),
        "moment": utils.safe_get_full_optimizer_state(weight, "exp_avg").double().sum().item(),
        "numel": weight.numel(),
    }
    try:
        utils.safe_set_local_fp32_param(weight, torch.zeros(weight.numel() + 1))
    except deepspeed.api.Error as error:
        facts["refused"] = str(error)
    engine.destroy()
    return facts


def test_own_parts_of_states_make_the_whole():
    for stage in (1, 3):
        ranks = run(__file__, "own_parts", 2, stage=stage)
        numel = ranks[0]["numel"]
        for index in range(3):
            assert sum(facts["numels"][index] for facts in ranks) == numel, ranks
        weight, moment, grad = (sum(facts["sums"][index] for facts in ranks) for index in range(3))
        for facts in ranks:
            assert abs(facts["weight"] - (weight + numel)) < 1e-3 and abs(facts["grad"] - grad) < 1e-5, ranks
            assert abs(facts["moment"] - 2 * moment) < 1e-6 and f"owns {facts['numels'][0]}" in facts["refused"], ranks


def gather_oddly() -> dict:
    """Lists with None, doubles and plain tensors; a gather inside another on rank 0 alone; copies; a parameter replaced."""
    import deepspeed
    from deepspeed import zero

    whole = fresh()
    torch.manual_seed(0)
    with zero.Init():
        model = Net()
    facts = {}

    def look(name: str) -> None:
        weight = model.blocks[0].up.weight
        with zero.GatheredParameters([weight, weight, None, torch.ones(2), *model.blocks[0].parameters()]):
            if os.environ["RANK"] == "0":  # talks to nobody: the others are not here
                with zero.GatheredParameters(weight, modifier_rank=0):
                    facts[f"{name} values"] = weight.shape == whole.blocks[0].up.weight.shape
            twin = copy.deepcopy(model.blocks[0])
            file = io.BytesIO()
            torch.save(weight, file)
            facts[f"{name} bytes"] = weight.numel() * 4 < file.tell() < weight.numel() * 4 + 4096
            facts[f"{name} copy"] = torch.equal(twin.up.weight, weight) and not hasattr(twin.up.weight, "ds_id")
        facts[f"{name} copy stays whole"] = twin.up.weight.double().sum().isfinite().item() and twin(torch.ones(2, 16)).shape == (2, 16)

    look("lone")
    with zero.GatheredParameters(model.embedding.weight, modifier_rank=None):
        larger = nn.Embedding(60, 16)  # as resize_token_embeddings does
        with torch.no_grad():
            larger.weight[:50] = model.embedding.weight
        model.embedding.weight = model.head.weight = larger.weight
    engine = deepspeed.initialize(model=model, config=config(3, optimizer=ADAMW))[0]
    look("engine")
    losses_of(engine, 1)
    look("trained")
    with zero.GatheredParameters(model.embedding.weight):
        facts["replaced"] = model.embedding.weight.shape == (60, 16) and model.head.weight is model.embedding.weight
    return facts


def test_gathers_as_hugging_face_has_them():
    for rank, facts in enumerate(run(__file__, "gather_oddly", 2)):
        assert len(facts) == (13 if rank == 0 else 10) and all(facts.values()), facts


def several(shared: bool) -> list[float]:
    """A policy and a reference at once, as preference training has them; with `shared`, one after the other on one module."""
    import deepspeed

    model, other = fresh(), fresh()
    if shared:
        first = deepspeed.initialize(model=model, config=config(3, optimizer=ADAMW))[0]
        before = losses_of(first, 1)
        with torch.no_grad():
            left = first(tokens(0, int(os.environ["RANK"]))).item()
        first.destroy()
        again = deepspeed.initialize(model=model, config=config(2, optimizer=ADAMW))[0]
        return [*before, left, *losses_of(again)]
    policy = deepspeed.initialize(model=model, config=config(2, optimizer=ADAMW))[0]
    reference = deepspeed.initialize(model=other, config=config(3))[0]
    found = []
    for step in range(3):
        ids = tokens(step, int(os.environ["RANK"]))
        with torch.no_grad():
            fixed = reference(ids)
        loss = policy(ids)
        policy.backward(loss + 0 * fixed)
        policy.step()
        found += [loss.item(), fixed.item()]
    return found


def test_several_engines_and_one_after_another():
    for found in run(__file__, "several", 2, shared=False):
        assert found[0] == found[1] and found[4] != found[5], found
    for found in run(__file__, "several", 2, shared=True):
        before, left, again, *_, last = found
        assert again == left and left != before and last != again, found


def offload_of(engine):
    return getattr(engine.optimizer, "parameter_offload", engine.optimizer)


def remove_hooks(engine) -> None:
    """What TRL touches before it generates."""
    offload = offload_of(engine)
    for _, param in itertools.chain(offload.module.named_parameters(), offload.module.ds_external_parameters()):
        param.ds_active_sub_modules.clear()
    for hook in (*offload.forward_hooks, *offload.backward_hooks):
        hook.remove()
    offload.forward_hooks, offload.backward_hooks = [], []


def add_hooks(engine) -> None:
    """What TRL touches after it."""
    offload = offload_of(engine)
    if not offload.param_coordinator.is_invalid_trace():
        offload.param_coordinator._invalidate_trace()
    offload._register_deepspeed_module(offload.module)


def generate(engine) -> bool:
    """Forwards of the raw module under a gather of all, on each rank another number of them."""
    from deepspeed import zero

    module, rank = engine.module, int(os.environ["RANK"])
    with zero.GatheredParameters(engine.parameters()):
        remove_hooks(engine)
        module.eval()
        twin = copy.deepcopy(module)
        with torch.no_grad():
            equal = all(module(ids).item() == twin(ids).item() for ids in (tokens(100 + turn, rank) for turn in range(2 + 3 * rank)))
        module.train()
        add_hooks(engine)
    return equal


def train_around_generation(generates: bool) -> list:
    import deepspeed

    engine = deepspeed.initialize(model=fresh(), config=config(3, optimizer=ADAMW))[0]
    found = losses_of(engine, 2)
    for _ in range(2):
        found.append(not generates or generate(engine))
        found += losses_of(engine, 2)
    if generates:
        with deepspeed.zero.unwrap_model_for_generation(engine) as whole, torch.no_grad():
            assert whole is engine and copy.deepcopy(engine.module)(tokens(0, 0)).item() == whole(tokens(0, 0)).item()
    found += losses_of(engine, 1)
    engine.destroy()
    reference = deepspeed.initialize(model=fresh(), config=config(3))[0]
    return [*found, not generates or generate(reference), reference(tokens(0, 0)).item()]


def train_with_and_without_generation() -> list:
    return [train_around_generation(generates) for generates in (False, True)]


def test_training_goes_on_after_generation_as_trl_does_it():
    for without, generated in run(__file__, "train_with_and_without_generation", 2):
        assert generated == without, (generated, without)
        first, *_, last, _, _ = without
        assert without.count(True) == 3 and last < first, without


def external_parameters() -> dict:
    import deepspeed

    model = fresh()
    weight = model.blocks[0].up.weight
    deepspeed.zero.register_external_parameter(model.blocks[2], weight)
    engine = deepspeed.initialize(model=model, config=config(3, optimizer=ADAMW))[0]
    facts = {"modules": all(len(module.ds_external_parameters()) == (module is model.blocks[2]) for module in model.modules())}
    facts["pairs"] = [(key == id(weight), value is weight) for key, value in model.blocks[2].ds_external_parameters()] == [(True, True)]
    with deepspeed.zero.GatheredParameters(model.parameters()):
        facts["copy"] = not copy.deepcopy(model.blocks[2]).ds_external_parameters()
        file = io.BytesIO()
        torch.save(model.blocks[2], file)
        file.seek(0)
        facts["file"] = not torch.load(file, weights_only=False).ds_external_parameters()
    losses_of(engine, 1)
    deepspeed.zero.unregister_external_parameter(model.blocks[2], weight)
    facts["unregistered"] = not model.blocks[2].ds_external_parameters()
    losses_of(engine, 1)
    return facts


def test_every_module_knows_its_external_parameters():
    for facts in run(__file__, "external_parameters", 2):
        assert len(facts) == 5 and all(facts.values()), facts


def shards(stage: int, precision: str) -> dict:
    """What a rank holds of each parameter and of the masters, by the names that others read."""
    import deepspeed
    from deepspeed import utils

    model = fresh()
    frozen = model.blocks[1].down.weight.requires_grad_(False)
    groups = [{"params": [param for param in model.parameters() if param.requires_grad]}, {"params": [], "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    others = {} if precision == "fp32" else {precision: {"enabled": True}}
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage, **others))[0]
    losses_of(engine, 1)
    names = ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups")
    facts = {"names": [name for name in names if hasattr(engine.optimizer, name)], "marked": hasattr(frozen, "ds_tensor")}
    if facts["names"]:
        masters = getattr(engine.optimizer, facts["names"][0])
        own = [utils.safe_get_local_fp32_param(param) for param in model.parameters() if param.requires_grad]
        facts["masters"] = len(masters) == 2 and masters[0].dtype == torch.float32 and torch.equal(masters[0], torch.cat(own))
        facts["none"] = masters[-1].numel() == 0 and masters[0].numel() > 0
    if not facts["marked"]:
        return facts
    facts["parts"], facts["whole"], facts["numels"] = [], [], []
    for param in model.parameters():
        part = param.ds_tensor
        numels = {part.numel(), part.ds_numel, part.shape.numel(), param.partition_numel(), part.detach().numel()}
        assert len(numels) == 1 and part.dtype == part.cpu().dtype == param.dtype and part.device == param.device, numels
        assert part.status.name == "AVAILABLE" and part.final_location is None and param.ds_active_sub_modules == set()
        assert torch.equal(torch.add(part, torch.ones(1, dtype=part.dtype)), part.data.clone() + 1)
        facts["numels"].append(param.ds_numel)
        facts["parts"].append(part.float().tolist())
        with deepspeed.zero.GatheredParameters(param):
            facts["whole"].append(param.detach().float().flatten().tolist())
    with deepspeed.zero.Init():
        lone = nn.Linear(2, 2).weight
    copied = copy.deepcopy(frozen.ds_tensor)
    facts["a write"] = message(lambda: frozen.ds_tensor.data.copy_(torch.ones(1)))
    facts["before an engine"] = [lone.ds_tensor.numel(), lone.ds_tensor.float().numel(), lone.ds_persist]
    facts["a copy"] = message(lambda: copied.numel())
    engine.destroy()
    facts["after an engine"] = frozen.ds_tensor.float().tolist()
    facts["masters after it"] = message(lambda: engine.optimizer.fp32_partitioned_groups_flat)
    return facts


SHARDS = ((0, "fp32"), (1, "fp32"), (2, "bf16"), (3, "fp32"), (3, "bf16"))


def all_shards() -> list[dict]:
    return [shards(stage, precision) for stage, precision in SHARDS]


REFUSALS = {
    "a write": "Use safe_set_local_fp32_param",
    "a copy": "Take it from a parameter of the model.",
    "masters after it": "the engine was destroyed",
}


def test_what_others_read_of_shards_is_what_a_rank_owns():
    for (stage, precision), *ranks in zip(SHARDS, *run(__file__, "all_shards", 2), strict=True):
        wanted = [[], ["single_partition_of_fp32_groups"], ["single_partition_of_fp32_groups"], ["fp32_partitioned_groups_flat"]][stage]
        for facts in ranks:
            assert facts["names"] == wanted and facts["marked"] == (stage == 3), facts
            assert stage == 0 or (facts["masters"] and facts["none"]), (stage, precision, facts)
            for name, remedy in REFUSALS.items() if stage == 3 else ():
                assert remedy in facts[name], (name, facts[name])
        if stage == 3:
            assert sum(facts["before an engine"][0] for facts in ranks) == 4, ranks
            assert all(numel == read and not persists for numel, read, persists in (facts["before an engine"] for facts in ranks))
            assert all(facts["after an engine"] in facts["parts"] for facts in ranks)
            for numel, whole, first, second in zip(ranks[0]["numels"], ranks[0]["whole"], ranks[0]["parts"], ranks[1]["parts"]):
                assert len(whole) == numel and first + second == whole, (precision, numel, len(first), len(second))


def optimizers_by_stage() -> dict:
    """What initialize returns for the optimizer, and what backward returns."""
    import deepspeed
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer, ZeROOptimizer
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    facts = {}
    for stage in range(4):
        model = fresh()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config(stage, accumulation=4))[0]
        loss = engine(tokens(0, int(os.environ["RANK"])))
        facts[f"stage {stage}"] = [
            engine.optimizer is optimizer, type(engine.optimizer) is DeepSpeedZeroOptimizer,
            type(engine.optimizer) is DeepSpeedZeroOptimizer_Stage3, isinstance(engine.optimizer, ZeROOptimizer),
        ]  # fmt: skip
        facts[f"divided {stage}"] = (engine.backward(loss) * 4 - loss).abs().item() < 1e-6
        facts[f"whole {stage}"] = engine.backward(engine(tokens(1, 0)), scale_wrt_gas=False).item() > 0
        engine.destroy()
    for stage, fp16, kind, scale in (
        (0, {"loss_scale": 0, "initial_scale_power": 5, "loss_scale_window": 7}, DynamicLossScaler, 32),
        (2, {"loss_scale": 128}, LossScaler, 128),
    ):
        engine = deepspeed.initialize(model=fresh(), config=config(stage, optimizer=ADAMW, fp16={"enabled": True, **fp16}))[0]
        scaler = engine.optimizer.loss_scaler
        assert isinstance(scaler, kind) and isinstance(engine.optimizer, DeepSpeedOptimizer)
        assert scaler.cur_scale == scaler.loss_scale == engine.optimizer.cur_scale == scale
        assert engine.optimizer.dynamic_loss_scale is scaler.dynamic is (stage == 0)
        assert stage == 2 or engine.optimizer.scale_window == 7
        facts[f"set {stage}"] = message(lambda: setattr(scaler, "cur_scale", 2.0))
        engine.destroy()
    return facts


def test_the_optimizer_is_of_the_class_that_deepspeed_has_for_its_stage():
    for facts in run(__file__, "optimizers_by_stage", 2):
        assert facts["stage 0"] == [True, False, False, False] and facts["stage 3"] == [False, False, True, True], facts
        assert facts["stage 1"] == facts["stage 2"] == [False, True, False, True], facts
        assert all(facts[f"divided {stage}"] and facts[f"whole {stage}"] for stage in range(4)), facts
        assert all("section fp16 of the config" in facts[f"set {stage}"] for stage in (0, 2)), facts


def tags(folder: str, mode: str) -> dict:
    import deepspeed

    checkpoint = {} if mode == "default" else {"checkpoint": {"tag_validation": mode}}
    engine = deepspeed.initialize(model=fresh(), config=config(1, optimizer=ADAMW, **checkpoint))[0]
    heard = heard_by_logger()
    try:
        engine.save_checkpoint(folder, tag=f"of_rank_{os.environ['RANK']}")
        raised = None
    except AssertionError as error:
        raised = str(error)
    names = engine.load_checkpoint(folder)[0] if raised is None else None
    return {"raised": raised, "heard": [line for line in heard if "saves as" in line], "loaded": names and os.path.basename(names)}


def heard_by_logger() -> list[str]:
    import logging

    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    return heard


def test_tags_that_differ_are_told_of_by_tag_validation():
    for mode in ("default", "Ignore", "Fail"):
        with tempfile.TemporaryDirectory() as folder:
            ranks = run(__file__, "tags", 2, folder=folder, mode=mode)
            for rank, facts in enumerate(ranks):
                if mode == "Fail":
                    assert "rank 0 saves as 'of_rank_0' and rank 1 as 'of_rank_1'" in facts["raised"], facts
                else:
                    assert facts["raised"] is None and facts["loaded"] == "of_rank_0", facts
                    assert len(facts["heard"]) == (1 if mode == "default" and rank == 0 else 0), facts
            assert os.listdir(folder) == [] if mode == "Fail" else not os.path.exists(os.path.join(folder, "of_rank_1"))


def writes_inside_a_gather(threshold: int) -> dict:
    """What becomes of writes without modifier_rank, before an engine and under one."""
    import deepspeed

    zero = {"stage": 3, "stage3_param_persistence_threshold": threshold}
    heard = heard_by_logger()
    facts = {}
    with deepspeed.zero.Init():
        model = fresh()

    def write(param, how) -> tuple[int, bool]:
        """How many warnings it made, and whether all is as it was."""
        deepspeed.utils.logging._warned.clear()
        heard.clear()
        with deepspeed.zero.GatheredParameters(param):
            before = param.detach().clone()
        with deepspeed.zero.GatheredParameters(param):
            how(param)
        with deepspeed.zero.GatheredParameters(param):
            return len([line for line in heard if "modifier_rank is None" in line]), torch.equal(param, before)

    @torch.no_grad()
    def fill(param) -> None:
        param.fill_(float(os.environ["RANK"]) + 7)

    ways = {
        "in place": fill,
        "through data": lambda param: param.data.fill_(9.0),
        "other data": lambda param: setattr(param, "data", torch.ones_like(param)),
        "read": lambda param: param.sum(),
    }
    weight = model.blocks[0].up.weight
    for name, how in ways.items():
        facts[f"lone, {name}"] = write(weight, how)
    engine = deepspeed.initialize(model=model, config=config(3, optimizer=ADAMW) | {"zero_optimization": zero})[0]
    facts["persists"] = weight.ds_persist
    for name, how in ways.items():
        facts[f"engine, {name}"] = write(weight, how)
    deepspeed.utils.logging._warned.clear()
    heard.clear()
    with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
        fill(weight)
    with deepspeed.zero.GatheredParameters(weight):
        facts["written by rank 0"] = weight.eq(7).all().item() and not [line for line in heard if "modifier_rank" in line]
    facts["trains"] = all(loss > 0 for loss in losses_of(engine, 1))
    return facts


def test_writes_without_modifier_rank_are_dropped_and_told_of():
    for threshold in (0, 100000):
        for rank, facts in enumerate(run(__file__, "writes_inside_a_gather", 2, threshold=threshold)):
            assert facts["persists"] is (threshold > 0) and facts["written by rank 0"] and facts["trains"], facts
            for where in ("lone", "engine"):
                assert facts[f"{where}, read"] == [0, True], facts
                for name in ("in place", "through data", "other data"):
                    warnings, kept = facts[f"{where}, {name}"]
                    assert kept and warnings == (1 if rank == 0 else 0), (where, name, threshold, facts)


def states_after_backward() -> dict:
    """safe_get_* and safe_set_* between backward and step."""
    import deepspeed
    from deepspeed import utils

    facts = {}
    for stage in range(4):
        found = []
        for writes in (False, True):
            model = fresh()
            engine = deepspeed.initialize(model=model, config=config(stage, optimizer=ADAMW))[0]
            losses_of(engine, 1)
            weight = model.blocks[0].up.weight
            if not writes:  # before the forward: the same as in between
                whole = utils.safe_get_full_fp32_param(weight)
                utils.safe_set_full_fp32_param(weight, whole * 1)
                moment = utils.safe_get_full_optimizer_state(weight, "exp_avg")
                utils.safe_set_full_optimizer_state(weight, moment * 2, "exp_avg")
            engine.backward(engine(tokens(1, int(os.environ["RANK"]))))
            if writes:
                whole = utils.safe_get_full_fp32_param(weight)
                assert utils.safe_get_full_grad(weight).abs().sum() > 0
                utils.safe_set_full_fp32_param(weight, whole * 1)
                moment = utils.safe_get_full_optimizer_state(weight, "exp_avg")
                utils.safe_set_full_optimizer_state(weight, moment * 2, "exp_avg")
                assert torch.equal(utils.safe_get_full_optimizer_state(weight, "exp_avg"), moment * 2)
            engine.step()
            found.append(utils.safe_get_full_fp32_param(weight))
            engine.destroy()
        facts[f"stage {stage}"] = torch.equal(*found)
    return facts


def test_states_are_read_and_set_between_backward_and_step():
    for facts in run(__file__, "states_after_backward", 2):
        assert all(facts.values()) and len(facts) == 4, facts


def leaves_and_collectives() -> dict:
    import deepspeed

    model = fresh()
    kind = type(model.blocks[0]).__name__
    leaf = {"classes": [kind], "names": ["blocks.1.up"], "name_suffixes": ["down"]}
    zero = {"stage": 3, "leaf_module": leaf}
    engine = deepspeed.initialize(model=model, config=config(3, optimizer=ADAMW) | {"zero_optimization": zero})[0]
    names = [name for name, module in model.named_modules() if deepspeed.utils.z3_leaf_module(module)]
    rank = torch.tensor([float(os.environ["RANK"]) + 1])
    deepspeed.comm.inference_all_reduce(rank)
    parts = torch.empty(2)
    deepspeed.comm.allgather_fn(parts, torch.tensor([float(os.environ["RANK"])]))
    ranks = deepspeed.comm.get_all_ranks_from_group()
    loss = losses_of(engine, 1)[0]
    return {"leaves": names, "sum": rank.item(), "parts": parts.tolist(), "ranks": ranks, "loss": loss}


def test_leaf_modules_of_the_config_are_marked_and_collectives_answer():
    for facts in run(__file__, "leaves_and_collectives", 2):
        assert {"blocks.0", "blocks.1", "blocks.1.up", "blocks.0.down", "blocks.1.down"} <= set(facts["leaves"]), facts
        assert facts["sum"] == 3 and facts["parts"] == [0, 1] and facts["ranks"] == [0, 1] and facts["loss"] > 0, facts


def whole_ones(limit: int) -> list[str]:
    """Parameters that ds_persist marks at stage 3, beside those that can be read between passes."""
    import deepspeed

    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    zero = {"stage": 3, "stage3_param_persistence_threshold": 16, "stage3_model_persistence_threshold": limit}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    engine = deepspeed.initialize(model=model, config=config | {"zero_optimization": zero})[0]
    readable = []
    for name, param in model.named_parameters():
        said = message(lambda: param.sum())
        assert (said == "nothing was raised") == param.ds_persist, (name, limit, param.ds_persist, said)
        readable += [name] if param.ds_persist else []
    engine.destroy()
    return readable


def test_what_stays_whole_counts_the_limit_of_the_model():
    for limit, count in ((10**6, 6), (0, 0)):
        for names in run(__file__, "whole_ones", 2, limit=limit):
            assert len(names) == count, (limit, names)


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
