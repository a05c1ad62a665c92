"""No argument of the package `deepspeed` is dropped in silence: each is read, refused by name, or listed here with why."""

from __future__ import annotations

import ast
import logging
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main

# Arguments that a function takes and does not read, and why that is right.
UNREAD = {
    "accelerator.torch_accelerator.pin_memory align_bytes": "pinned memory begins at a page",
    "api.init_inference": "refused as a whole",
    "api.tp_model_init": "refused as a whole",
    "comm.init_distributed verbose": "there is nothing to say",
    "comm.init_distributed config": "it would only switch on comms_logger, which initialize refuses",
    "ops.adam.__init__ set_grad_none": "gradients are the engine's, and gone after a step",
    "ops.lion.__init__ set_grad_none": "gradients are the engine's, and gone after a step",
    "ops.aio.is_compatible verbose": "there is nothing to say",
    "ops.group_holder.step closure": "step is refused as a whole",
    "runtime.base_optimizer.zero_grad set_to_none": "gradients are the engine's, and gone after a step",
    "runtime.base_optimizer.add_param_group": "refused as a whole",
    "runtime.base_optimizer.load_state_dict": "DeepSpeed's further arguments choose between ways of loading states",
    "runtime.checkpoint_universal.inner rank": "one state dict serves all ranks",
    "runtime.engine.zero_grad set_to_none": "gradients are the engine's, and gone after a step",
    "runtime.engine.allreduce_gradients": "gradients are reduced in backward",
    "runtime.engine.offload_states": "refused as a whole",
    "runtime.engine.reload_states": "refused as a whole",
    "runtime.zero.parameter_offload.get_param_coordinator training": "one order serves both",
    "runtime.zero.parameter_offload._register_deepspeed_module": "hooks were never taken off",
    "runtime.zero.partition_parameters.__init__ mem_efficient_linear": "no function of torch is replaced",
    "runtime.zero.partition_parameters.__call__": "a hook of torch, which says more than this one asks",
    "runtime.zero.partition_parameters.__deepcopy__ memo": "a copy has nothing to share",
}


def unread(folder: Path) -> list[str]:
    """Every "module.function argument" that the function's body does not name."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            taken = node.args.args + node.args.kwonlyargs + [each for each in (node.args.vararg, node.args.kwarg) if each]
            names = {inner.id for line in node.body for inner in ast.walk(line) if isinstance(inner, ast.Name)}
            place = ".".join([*parts, node.name])
            found += [f"{place} {each.arg}" for each in taken if each.arg not in names and each.arg not in ("self", "cls")]
    return found


def test_every_argument_is_read_or_listed():
    import deepspeed

    found = unread(Path(deepspeed.__file__).parent)
    unlisted = [each for each in found if each not in UNREAD and each.split()[0] not in UNREAD]
    assert not unlisted, f"read these, refuse them by name, or list them with a reason: {unlisted}"
    gone = [each for each in UNREAD if each not in found and each not in {place.split()[0] for place in found}]
    assert not gone, f"these are read now, or no longer there: {gone}"


def refusal(action) -> str:
    import shoal

    try:
        action()
    except (shoal.Error, TypeError) as error:
        return str(error)
    raise AssertionError("it was accepted")


def test_what_cannot_be_done_is_refused_by_name():
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    params = [nn.Parameter(torch.zeros(2))]
    assert "fp32_optimizer_states" in refusal(lambda: DeepSpeedCPUAdam(params, fp32_optimizer_states=False))
    assert "unheard_of" in refusal(lambda: FusedAdam(params, unheard_of=1))
    assert "remote_device='nvme'" in refusal(lambda: deepspeed.zero.Init(remote_device="nvme"))
    assert "mpu" in refusal(lambda: deepspeed.zero.Init(mpu=object()))
    assert "zero_quantized_weights" in refusal(lambda: deepspeed.zero.Init(zero_quantized_weights=True))
    assert "mpu_" in refusal(lambda: deepspeed.checkpointing.configure(mpu_=object()))
    engine = deepspeed.initialize(model=nn.Linear(2, 2), config={"train_batch_size": 1, "optimizer": {"type": "AdamW"}})[0]
    assert "custom_load_fn" in refusal(lambda: engine.load_checkpoint("nowhere", custom_load_fn=print))
    assert "allreduce_gradients" in refusal(lambda: engine.backward(torch.ones(1), allreduce_gradients=False))
    assert "release" in refusal(lambda: engine.backward(torch.ones(1), release=True))
    assert "closure" in refusal(lambda: engine.optimizer.step(print))
    assert "schedule" in refusal(lambda: engine.compile(schedule=[(0, [])]))
    assert "compiled_autograd_enabled" in refusal(lambda: engine.compile(compiled_autograd_enabled=True))


def test_what_has_no_effect_is_warned_of_by_name():
    import deepspeed

    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    deepspeed.zero.Init(remote_device="cpu", pin_memory=True)
    deepspeed.checkpointing.configure(num_checkpoints=3, deepspeed_config={"activation_checkpointing": {"synchronize_checkpoint_boundary": True}})
    deepspeed.checkpointing.configure(None, partition_activations=False, profile=False)
    logging.getLogger("DeepSpeed").removeHandler(handler)
    for name in ("remote_device", "pin_memory", "num_checkpoints", "synchronize"):
        assert len([line for line in heard if name in line]) == 1, (name, heard)
    assert not [line for line in heard if "partition_activations" in line or "profile" in line]


def test_the_loader_of_deepspeed_io_takes_what_is_given():
    import deepspeed

    config = {"train_batch_size": 2, "optimizer": {"type": "AdamW"}, "dataloader_drop_last": True}
    data = list(range(7))
    engine, _, loader, _ = deepspeed.initialize(model=nn.Linear(2, 2), config=config, training_data=data)
    assert len(loader) == 3 and sorted(set(torch.cat(list(loader)).tolist())) != data
    ordered = engine.deepspeed_io(data, batch_size=3, route="eval", collate_fn=tuple)
    assert list(ordered) == [(0, 1, 2), (3, 4, 5)]
    chosen = engine.deepspeed_io(data, batch_size=1, data_sampler=[5, 6], collate_fn=tuple)
    assert list(chosen) == [(5,), (6,)]


if __name__ == "__main__":
    main(globals())
