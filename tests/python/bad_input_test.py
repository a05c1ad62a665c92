"""Bad input through both doors, shoal and deepspeed: a clear exception with what to do, and the process goes on training."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

# What each message says, and what it says to do.
EXPECTED = {
    "wrong JSON": ("wrong.json", "line 2"),
    "a config in UTF-16": ("wrong.json] byte 0 is not UTF-8.", "Save it as UTF-8."),
    "a missing file": ("/nowhere.json] the file cannot be read", "Give the path of a JSON file."),
    "no config": ("", "Pass config="),
    "not a stage": ("zero_optimization.stage] 4 is", "3"),
    "no parameters": ("ReLU has no parameters", "Pass the model that is trained."),
    "no model": ("there is no model", "Pass model=."),
    "a scripted block": ("[initialize] 0 is of torch.jit.script", "engine.compile()"),
    "a scripted block of a list": ("[initialize] blocks is of torch.jit.script", "Pass the module as it was before"),
    "a traced model": ("the model, ", "is of torch.jit.script or torch.jit.trace", "Pass the module as it was before"),
    "a backward without forward": ("[backward] ", "forward"),
    "a loss without a graph": ("has not a graph", "Pass a scalar that the model computed."),
    "a loss of two elements": ("the loss has 2 elements", "Pass a scalar"),
    "a second backward of one forward": ("", "forward"),
    "step without backward": ("[step] no gradient has come", "Call backward(loss) first."),
    "a released parameter": ("[parameter blocks.0.up.weight] is released", "athered"),
    "an unknown state": ("[optimizer state speed] is not known", "Use one of"),
    "a checkpoint that is empty": ("holds no model states", "Give the folder and tag of a checkpoint."),
    "memory that is full in forward": ("Tried to allocate 2 GiB", "[GPU memory, forward of unit blocks.1]", "What makes it fit: "),
    "memory that is full in backward": ("Tried to allocate 2 GiB", "[GPU memory, backward of unit ", "What makes it fit: "),
    "a forward of a destroyed engine": ("[forward] the engine was destroyed. Call initialize again.", "trainer.model_wrapped = "),
    "an engine that is destroyed": ("the engine was destroyed", "Call initialize again."),
}


def config(**others) -> dict:
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    return {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "zero_optimization": zero, **others}


def raise_full(*_) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


def step(engine, number: int) -> None:
    engine.backward(engine(tokens(number, int(os.environ["RANK"]))))
    engine.step()


def mistakes(door: str) -> dict:
    import deepspeed
    import shoal

    def initialize(model, config):
        if door == "shoal":
            return shoal.initialize(model, config)
        return deepspeed.initialize(model=model, config=config)[0]

    found = {
        "a missing file": message(lambda: initialize(Net(), "/nowhere.json")),
        "no parameters": message(lambda: initialize(nn.ReLU(), config())),
        "not a stage": message(lambda: initialize(Net(), config(zero_optimization={"stage": 4}))),
    }
    scripted = [torch.jit.script(nn.Linear(2, 2)) for _ in range(2)]
    found["a scripted block"] = message(lambda: initialize(nn.Sequential(*scripted), config()))
    listed = nn.ModuleDict({"blocks": nn.ModuleList(scripted)})
    if door == "shoal":
        found["a scripted block of a list"] = message(lambda: shoal.initialize(listed, config(), units=["blocks"]))
    found["a traced model"] = message(lambda: initialize(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), config()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wrong.json")
        path.write_text('{\n  "zero_optimization": {"stage": }\n}\n')
        found["wrong JSON"] = message(lambda: initialize(Net(), str(path)))
        path.write_bytes('{"zero_optimization": {"stage": 2}}'.encode("utf-16"))
        found["a config in UTF-16"] = message(lambda: initialize(Net(), str(path)))
        Path(folder, "tag").mkdir()
        model = Net()
        engine = initialize(model, config())
        if door == "deepspeed":
            found["no config"] = message(lambda: initialize(Net(), None))
            found["no model"] = message(lambda: initialize(None, config()))
            weight = model.blocks[0].up.weight
            found["an unknown state"] = message(lambda: deepspeed.utils.safe_get_full_optimizer_state(weight, "speed"))
            found["a checkpoint that is empty"] = message(lambda: engine.load_checkpoint(folder, tag="tag"))
    found["step without backward"] = message(engine.step)
    found["a backward without forward"] = message(lambda: engine.backward(torch.ones((), requires_grad=True) * 2))
    found["a loss without a graph"] = message(lambda: engine.backward(torch.ones(())))
    found["a loss of two elements"] = message(lambda: engine.backward(torch.ones(2, requires_grad=True) * 2))
    found["a released parameter"] = message(lambda: model.blocks[0].up.weight.norm())
    step(engine, 0)
    loss = engine(tokens(1, int(os.environ["RANK"])))
    engine.backward(loss, retain_graph=True)
    engine.step()
    found["a second backward of one forward"] = message(lambda: engine.backward(loss))
    model.blocks[1].up.forward = raise_full
    found["memory that is full in forward"] = message(lambda: engine(tokens(2, int(os.environ["RANK"]))))
    del model.blocks[1].up.forward
    step(engine, 2)
    found["still trains"] = "yes"
    loss = engine(tokens(3, int(os.environ["RANK"])))
    loss.register_hook(raise_full)
    found["memory that is full in backward"] = message(lambda: engine.backward(loss))
    engine.destroy()
    found["an engine that is destroyed"] = message(engine.step)
    if door == "deepspeed":
        found["a forward of a destroyed engine"] = message(lambda: engine(tokens(4, int(os.environ["RANK"]))))
    return found


def check(door: str, world: int) -> None:
    for found in run(__file__, "mistakes", world, door=door):
        assert found.pop("still trains") == "yes"
        for name, text in found.items():
            for part in EXPECTED[name]:
                assert part in text, f"{door}, {name}: {text!r} does not say {part!r}"


def test_mistakes_through_shoal():
    check("shoal", 2)


def test_mistakes_through_deepspeed():
    check("deepspeed", 2)


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
