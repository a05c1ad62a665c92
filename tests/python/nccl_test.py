"""The packages on ranks that share one GPU over NCCL: losses, norms and weights have the bits of the same ranks whose bytes go
through the hosts, in a plain loop, for a model made under zero.Init, in Hugging Face's and TRL's Trainers, and after a checkpoint; and
torch.distributed is NCCL's by the same rule. Prints a table."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

sys.path.insert(0, str(Path(__file__).parent))
from gpu_test import STEPS, batch, be_deterministic, config, make_net
from hf_runs import ds_config, main_with_models, make_trainer, numbers_of
from models import Net
from ranks import main, run

WORLDS = (2, 4)


def begin(transport: str) -> None:
    """On a rank, before anything else: what `shoal launch --share-gpu` sets, or nothing of it."""
    be_deterministic()
    if transport == "nccl":
        from deepspeed.launcher.with_local_rank import share_gpu

        os.environ["SHOAL_TRANSPORT"] = "nccl"
        share_gpu()


def digest(model: torch.nn.Module) -> str:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        parts = [param.detach().float().cpu().numpy().tobytes() for param in model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def steps_of(engine, first: int = 0, last: int = STEPS) -> list[float]:
    numbers = []
    for step in range(first, last):
        loss = engine(batch(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        numbers += [loss.item(), engine.get_global_grad_norm()]
    return numbers


def loops(transport: str) -> dict:
    """Every stage, a model made under zero.Init, states on the host, a checkpoint, two engines at once."""
    import deepspeed

    begin(transport)
    found = {}
    for stage in range(4):
        engine = deepspeed.initialize(model=make_net(), config=config(stage, "bf16", gradient_accumulation_steps=2))[0]
        found[f"stage {stage}, bf16"] = [steps_of(engine, 0, 2 * STEPS), digest(engine.module)]
        engine.destroy()
    torch.manual_seed(1)
    with deepspeed.zero.Init(config_dict_or_path=config(3)):
        model = Net(width=64, depth=4)
    engine = deepspeed.initialize(model=model, config=config(3))[0]
    found["zero.Init"] = [steps_of(engine), digest(engine.module)]
    engine.destroy()
    offload = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    engine = deepspeed.initialize(model=make_net(), config=config(3, "bf16", zero=offload))[0]
    found["weights and states on the host"] = [steps_of(engine), digest(engine.module)]
    folder = os.environ["TEST_FOLDER"] + "/" + transport
    engine.save_checkpoint(folder)
    engine.destroy()
    engine = deepspeed.initialize(model=make_net(), config=config(3, "bf16", zero=offload))[0]
    engine.load_checkpoint(folder)
    other = deepspeed.initialize(model=make_net(), config=config(2))[0]
    found["after a checkpoint, two engines"] = [steps_of(engine, STEPS, STEPS + 2), steps_of(other), digest(engine.module)]
    engine.destroy()
    other.destroy()
    return found


def trainer(transport: str) -> dict:
    begin(transport)
    found = {}
    for lora in (False, True) if importlib.util.find_spec("peft") else (False,):
        for stage in (2, 3):
            with tempfile.TemporaryDirectory() as folder:
                made = make_trainer("llama", folder, ds_config(stage), lora=lora, use_cpu=False, max_steps=4)
                made.train()
                name = f"Trainer{', LoRA' if lora else ''}, stage {stage}"
                found[name] = [numbers_of(made), digest(made.model)]
    return found


def trl(transport: str) -> dict:
    """SFT, and DPO with its two engines. Where the engines go through the hosts, torch.distributed is NCCL's all the same: accelerate
    cannot gather metrics on GPUs over Gloo."""
    begin("nccl")
    if transport == "hosts":
        os.environ["SHOAL_TRANSPORT"] = "shm"
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    import trl_test

    found = {f"TRL's SFT, stage {stage}": trl_test.sft(stage, on_gpu=True) for stage in (2, 3)}
    return found | {"TRL's DPO, stage 3": trl_test.dpo(3, on_gpu=True)["numbers"]}


def backend(transport: str) -> list:
    from deepspeed import comm

    begin(transport)
    comm.init_distributed()
    torch.cuda.set_device(0)
    value = torch.full((3,), float(comm.get_rank() + 1), device="cuda")
    comm.all_reduce(value)
    name = torch.distributed.get_backend()
    torch.distributed.destroy_process_group()
    return [name, value.tolist()]


def refusal() -> str:
    os.environ["SHOAL_TRANSPORT"] = "nccl"
    from deepspeed import comm

    try:
        comm.init_distributed(dist_backend="nccl")
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def compare(name: str, world: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEST_FOLDER"] = folder
        nccl = run(__file__, name, world, transport="nccl")
        hosts = run(__file__, name, world, transport="hosts")
    cases = nccl[0] if isinstance(nccl[0], dict) else {name: nccl[0]}
    for case in cases:
        ours, theirs = ([each[case] if isinstance(each, dict) else each for each in ranks] for ranks in (nccl, hosts))
        print(f"{world} ranks, {case:<34} NCCL {ours[0][-1]}  through hosts {theirs[0][-1]}", flush=True)
        assert ours == theirs, f"{world} ranks, {case}:\n{ours}\n{theirs}"


def test_loops_have_the_bits_of_the_hosts():
    for world in WORLDS:
        compare("loops", world)


def test_the_trainer_has_the_bits_of_the_hosts():
    if importlib.util.find_spec("accelerate") is None:
        print("not tried: accelerate is not installed")
        return
    for world in WORLDS:
        compare("trainer", world)


def test_trl_has_the_bits_of_the_hosts():
    if importlib.util.find_spec("trl") is None:
        print("not tried: trl is not installed")
        return
    for world in WORLDS:
        compare("trl", world)


def test_torch_distributed_is_nccl_by_the_same_rule():
    for world in WORLDS:
        total = float(sum(range(1, world + 1)))
        assert run(__file__, "backend", world, transport="nccl") == [["nccl", [total] * 3]] * world
        assert run(__file__, "backend", world, transport="hosts") == [["gloo", [total] * 3]] * world
    for said in run(__file__, "refusal", 2):
        assert "shoal launch --share-gpu" in said, said


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: ranks over NCCL need a GPU, and torch sees none")
        sys.exit(77)
    if importlib.util.find_spec("accelerate") is None:
        main(globals())
    main_with_models(globals(), "llama")
