"""shoal.initialize on torch modules: losses, norms and weights against plain torch, stages equal to the bit."""

from __future__ import annotations

import copy
import inspect
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Block, Net, largest_difference, tokens, train_steps
from ranks import main, run, whole

STEPS = 4


def config(stage: int, **others) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        **others,
    }


def plain(world: int, rank: int, **options) -> list[float]:
    """What one process that sees every rank's samples computes."""
    torch.manual_seed(0)
    model = Net(**options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    numbers = []
    for step in range(STEPS):
        losses = [model(tokens(step, other)) for other in range(world)]
        (sum(losses) / world).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        numbers += [losses[rank].item(), norm.item(), model(tokens(99, 0)).item()]
        model.train()
    return numbers


def train(stages: list[int], outside: bool = False, **options) -> dict:
    import shoal

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    runs = []
    for stage in stages:
        torch.manual_seed(0)
        model = Net(**options)
        engine = shoal.initialize(model, config(stage))
        numbers = []
        for step in range(STEPS):
            loss = engine(tokens(step, rank))
            if outside:
                loss.backward()
            else:
                engine.backward(loss)
            norm = engine.step().grad_norm
            model.eval()
            with torch.no_grad():
                numbers += [loss.item(), norm, model(tokens(99, 0)).item()]
            model.train()
        engine.make_whole()
        numbers.append(sum(param.double().sum().item() for param in model.parameters()))
        runs.append(numbers)
    return {"runs": runs, "plain": plain(world, rank, **options)}


def check(world: int, **arguments) -> None:
    for rank, result in enumerate(run(__file__, "train", world, stages=[0, 1, 2, 3], **arguments)):
        for stage, numbers in enumerate(result["runs"]):
            assert numbers == result["runs"][0], f"rank {rank}: stage {stage} differs from stage 0"
        difference = largest_difference(result["runs"][0][:-1], result["plain"])
        assert difference < 1e-5, f"rank {rank}: {difference} away from plain torch"


def test_one_rank():
    check(1)


def test_two_ranks():
    check(2)


def test_three_ranks_backward_without_the_engine():
    check(3, outside=True)


def test_a_block_that_runs_twice():
    check(2, twice=True)


def test_checkpointing_with_and_without_reentry():
    for recompute in ("reentrant", "other"):
        for outside in (False, True) if whole() else (recompute == "other",):
            check(2, recompute=recompute, outside=outside)
        check(2, recompute=recompute, twice=True)


def test_units_are_found_or_named():
    import shoal

    def names(rule=None, **options) -> list[str]:
        with torch.device("meta"):
            model = Net(**options)
        return [name for name, _ in shoal.find_units(model, rule)]

    blocks = ["blocks.0", "blocks.1", "blocks.2", ""]
    assert names() == names([Block]) == names(["Block"]) == names(lambda name, module: isinstance(module, Block)) == blocks
    assert names(["norm", "blocks.1"]) == ["blocks.1", "norm", ""]
    assert names(width=20_000, depth=2)[0] == "embedding", "a large embedding is a unit of its own"


def compiled(way: str) -> list[list[float]]:
    """Losses with blocks compiled, and without; at stage 3."""
    import shoal

    runs = []
    for how in (way, ""):
        torch.manual_seed(0)
        model = Net(depth=2)
        for block in model.blocks:
            if how == "forward":
                block.forward = torch.compile(block.forward, backend="aot_eager")
            elif how == "module":
                block.compile(backend="aot_eager")
        engine = shoal.initialize(model, config(3))
        runs.append(train_steps(engine, 0, 3))
        engine.destroy()
    return runs


def test_compiled_blocks_give_the_same_bits():
    for way in ("forward", "module") if whole() else ("module",):
        for with_it, without in run(__file__, "compiled", 2, way=way):
            assert with_it == without, (way, with_it, without)


def compile_units(stage: int) -> dict:
    """Losses with engine.compile and without, and the graphs that the compiler was given."""
    import shoal

    graphs: list = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    facts: dict = {}
    for how in ("compiled", "plain"):
        torch.manual_seed(0)
        model = Net(depth=10)  # more blocks than torch would compile one by one
        engine = shoal.initialize(model, config(stage))
        if how == "compiled":
            engine.compile(backend=backend, fullgraph=True)
            facts["signature"] = str(inspect.signature(model.blocks[0].forward))
        facts[how] = train_steps(engine, 0, 3)
        facts.setdefault("graphs", len(graphs))
        engine.make_whole()
        x, block = torch.ones(2, 16), model.blocks[0]
        twin, before = copy.deepcopy(block), block(x)
        with torch.no_grad():
            block.down.bias.add_(1)
        facts[f"{how} copy"] = torch.equal(twin(x), before) and not torch.equal(block(x), before)
    return facts


def test_compiled_units_give_the_same_bits():
    for stage in (0, 3):
        for facts in run(__file__, "compile_units", 2, stage=stage):
            assert facts["compiled"] == facts["plain"], (stage, facts)
            assert facts["graphs"] == 1, f"stage {stage}: one graph serves all blocks: {facts}"
            assert facts["compiled copy"] and facts["plain copy"], "a copy runs on weights of its own"
            assert facts["signature"].startswith("(x: "), facts


def compile_oddly() -> dict:
    import shoal

    def message(model: nn.Module, units: list[str]) -> str:
        try:
            shoal.initialize(model, config(3), units=units).compile(backend="eager")
        except shoal.Error as error:
            return str(error)
        return type(model.forward).__name__

    return {"layers": message(Net(), ["embedding", "norm"]), "one unit": message(Block(16), [])}


def test_units_without_a_block_are_compiled_as_one_or_refused():
    facts = run(__file__, "compile_oddly", 1)[0]
    assert "single layers (embedding, norm)" in facts["layers"] and "before initialize" in facts["layers"], facts
    assert facts["one unit"] == "CompiledForward", facts


def peaks_in_shards() -> dict:
    """How far the peak of this process rises when a model is built in shards, and when an engine takes it over."""
    import shoal

    def peak() -> int:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) << 10

    peaks = [peak()]
    with shoal.init(empty=True):
        model = nn.ModuleList()
        for _ in range(32):
            model.append(nn.Linear(1024, 1024, bias=False))  # each is sharded before the next is made
    peaks.append(peak())
    engine = shoal.initialize(model, config(3))
    peaks.append(peak())
    return {"built": peaks[1] - peaks[0], "taken over": peaks[2] - peaks[1], "shards": engine.memory().held.weights}


def test_a_model_is_built_and_taken_over_in_the_memory_of_its_shards():
    for facts in run(__file__, "peaks_in_shards", 2):
        shards = 64 << 20  # half of the model
        assert facts["shards"] == shards, facts
        assert facts["built"] < 2 * shards, f"freed weights stay with malloc: {facts}"
        assert facts["taken over"] < shards / 2, f"shards are held twice: {facts}"


def construct_and_gather() -> dict:
    import shoal

    world = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    whole = Net()
    torch.manual_seed(0)
    with shoal.init():
        model = Net()
    params = dict(model.named_parameters())
    identity = {name: id(param) for name, param in params.items()}
    facts = {"released": "", "values": True}
    try:
        params["blocks.0.up.weight"].sum()
    except RuntimeError as error:
        facts["released"] = str(error)
    with shoal.gathered([*model.parameters(), None, torch.ones(2)]):
        with shoal.gathered(model.embedding.weight):  # inside another: nothing to do
            facts["values"] = all(torch.equal(p, q) for p, q in zip(model.parameters(), whole.parameters()))
    with shoal.gathered(model.norm.weight, written_by=world - 1):
        model.norm.weight.data.fill_(float(os.environ["RANK"]) + 2)
    engine = shoal.initialize(model, config(3))
    facts["identity"] = identity == {name: id(param) for name, param in model.named_parameters()}
    with shoal.gathered(model.norm.weight):
        facts["written"] = model.norm.weight[0].item()
    with shoal.gathered(model.parameters()), torch.no_grad():  # the model runs on what is gathered
        inside = model(tokens(0, 0)).item()
    with torch.no_grad():
        facts["same"] = inside == model(tokens(0, 0)).item()
    with shoal.gathered(model.norm.bias, written_by=0):
        model.norm.bias.data.fill_(0.25)
    engine.backward(engine(tokens(0, 0)))
    engine.step()
    engine.destroy()
    again = shoal.initialize(model, config(2))  # another engine takes the shards over
    again.backward(again(tokens(1, 0)))
    facts["again"] = again.step().applied
    return facts


def test_sharded_construction_gathering_and_a_second_engine():
    for world in (1, 2):
        for facts in run(__file__, "construct_and_gather", world):
            assert "is released" in facts["released"], facts
            assert facts["values"] and facts["identity"] and facts["same"] and facts["again"], facts
            assert facts["written"] == world + 1, facts


def save_and_resume(folder: str, stage: int, resume_stage: int) -> list[float]:
    import shoal

    torch.manual_seed(0)
    engine = shoal.initialize(Net(), config(stage))
    train_steps(engine, 0, 2)
    engine.save(folder, step=2)
    straight = train_steps(engine, 2, 4)
    engine.destroy()
    torch.manual_seed(1)
    resumed = shoal.initialize(Net(), config(resume_stage))
    assert resumed.load(folder).step == 2
    return [straight, train_steps(resumed, 2, 4)]


def test_resume_is_equal_to_the_bit_at_another_stage():
    for stage, resume_stage in ((3, 3), (3, 1), (0, 3)):
        with tempfile.TemporaryDirectory() as folder:
            for straight, resumed in run(
                __file__, "save_and_resume", 2, folder=folder, stage=stage, resume_stage=resume_stage
            ):
                assert straight == resumed, f"stage {stage} to {resume_stage}: {straight} and {resumed}"


def mistakes() -> dict:
    import shoal

    def message(call) -> str:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return ""

    model = Net()
    engine = shoal.initialize(model, config(3))
    found = {
        "step without backward": message(engine.step),
        "a loss without a graph": message(lambda: engine.backward(torch.ones(()))),
        "a released parameter": message(lambda: model.blocks[0].up.weight.norm()),
        "no parameters": message(lambda: shoal.initialize(nn.ReLU(), config(0))),
        "a missing file": message(lambda: shoal.initialize(Net(), "/nowhere.json")),
        "wrong JSON": message(lambda: shoal.initialize(Net(), "{ not json")),
        "an unknown key": message(lambda: shoal.initialize(Net(), config(1, zero_optimisation={}))),
    }
    loss = engine(tokens(0, 0))
    engine.backward(loss)
    found["still works"] = str(engine.step().applied)
    engine.destroy()
    found["destroyed"] = message(engine.step)
    return found


def test_mistakes_are_exceptions_with_a_remedy():
    facts = run(__file__, "mistakes", 1)[0]
    expected = {
        "step without backward": "Error: [step] no gradient has come",
        "a loss without a graph": "has not a graph",
        "a released parameter": "is released: its data is sharded",
        "no parameters": "ReLU has no parameters",
        "a missing file": "cannot be read",
        "wrong JSON": "Error: ",
        "an unknown key": "zero_optimization",
        "still works": "True",
        "destroyed": "the engine was destroyed",
    }
    for name, part in expected.items():
        assert part in facts[name], f"{name}: {facts[name]!r}"


if __name__ == "__main__":
    main(globals(), imports=("shoal",))
