"""What is installed: type stubs against the extension, the names that others take from `deepspeed`, and the examples as their
first lines say to run them."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ranks import free_port, main

ROOT = Path(__file__).parents[2]


def names_of_stub() -> dict[str, set[str] | None]:
    """Classes with their members, and functions with None."""
    found: dict[str, set[str] | None] = {}
    for node in ast.parse((ROOT / "python/shoal/_core.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = None
        elif isinstance(node, ast.ClassDef):
            members = set()
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    members.add(inner.name)
                elif isinstance(inner, ast.AnnAssign):
                    members.add(inner.target.id)
                elif isinstance(inner, ast.Assign):
                    members.add(inner.targets[0].id)
            found[node.name] = {name for name in members if not name.startswith("_")}
    return found


def names_of_module() -> dict[str, set[str] | None]:
    from shoal import _core

    found: dict[str, set[str] | None] = {}
    for name, value in vars(_core).items():
        if name.startswith("_"):
            continue
        if isinstance(value, type):
            members = {member for member in vars(value) if not member.startswith("_")}
            if "__members__" in vars(value):  # an enumeration
                members = set(value.__members__)
            found[name] = members
        else:
            found[name] = None
    return found


def test_stubs_have_the_names_of_the_extension():
    stub, module = names_of_stub(), names_of_module()
    assert stub.keys() == module.keys(), f"only in one of the two: {sorted(stub.keys() ^ module.keys())}"
    for name, members in module.items():
        assert stub[name] == members, f"{name}: only in one of the two: {sorted((stub[name] or set()) ^ (members or set()))}"
    assert (ROOT / "python/shoal/py.typed").exists()


UNTOUCHED = """
import subprocess, sys
import torch
import torch.distributed, torch.nn.functional, torch.optim, torch.utils.checkpoint
spaces = {"torch": torch, "Tensor": torch.Tensor, "Module": torch.nn.Module, "Parameter": torch.nn.Parameter,
          "functional": torch.nn.functional, "Linear": torch.nn.Linear, "Optimizer": torch.optim.Optimizer,
          "distributed": torch.distributed, "checkpoint": torch.utils.checkpoint}
before = {name: dict(vars(space)) for name, space in spaces.items()}
def forbidden(*words, **named):
    raise AssertionError(f"a program was started: {words}")
subprocess.Popen = forbidden
import shoal, deepspeed
assert not torch.cuda.is_initialized(), "the GPU was touched"
assert not torch.distributed.is_initialized(), "ranks were joined"
for name, space in spaces.items():
    for key, value in before[name].items():
        assert vars(space).get(key) is value, f"{name}.{key} was replaced"
print("untouched")
"""


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, cwd="/")


def test_importing_touches_no_gpu_starts_nothing_and_patches_nothing():
    done = run_code(UNTOUCHED)
    assert done.returncode == 0 and "untouched" in done.stdout, done.stderr[-3000:]
    assert (done.stdout + done.stderr).count("Shoal is answering") == 1, done.stderr


def test_another_torch_is_refused_by_its_version():
    import torch

    def run_code(code: str) -> subprocess.CompletedProcess:
        """In a process that has torch already: its version is what counts, and what the code says."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.py")
            script.write_text(code)
            command = [sys.executable, str(Path(__file__).resolve().with_name("warm.py")), "run", str(script)]
            return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/")

    here = ".".join(torch.__version__.split(".")[:2])
    for other in ("1.13.1", f"{here}1.0", "3.11.0+cpu"):
        done = run_code(f"import torch; torch.__version__ = '{other}'; import shoal")
        assert done.returncode != 0 and f"ImportError: [shoal] torch {other} is installed" in done.stderr, done.stderr[-2000:]
        assert f"Install torch {here}, or" in done.stderr
    assert run_code(f"import torch; torch.__version__ = '{here}.99+cpu'; import shoal").returncode == 0


def test_the_environment_is_told():
    done = subprocess.run([sys.executable, "-m", "shoal.env"], capture_output=True, text=True, timeout=300, cwd="/")
    found = dict(words for line in done.stdout.splitlines() if len(words := line.split(maxsplit=1)) == 2)
    assert done.returncode == 0 and {"shoal", "python", "torch", "GPUs", "transformers"} <= found.keys(), done
    assert "_core" in found["shoal"] and found["torch"] == __import__("torch").__version__


# What transformers, accelerate, PEFT, TRL, Lightning, axolotl and LLaMA-Factory take from the package, after `import deepspeed`.
NAMES = """
__version__ initialize DeepSpeedEngine init_distributed checkpointing.configure comm.init_distributed comm.is_initialized comm.get_rank
zero.Init zero.GatheredParameters zero.register_external_parameter zero.unwrap_model_for_generation utils.logger utils.logging.logger
utils.groups utils.set_z3_leaf_modules utils.safe_get_full_grad ops.__compatible_ops__ runtime.engine.DeepSpeedEngine
runtime.lr_schedules.VALID_LR_SCHEDULES runtime.lr_schedules.WarmupLR runtime.lr_schedules.WarmupDecayLR
runtime.lr_schedules.WarmupCosineLR runtime.lr_schedules.OneCycle runtime.lr_schedules.LRRangeTest
"""
# The same where the module is imported by its name.
IMPORTED = """
checkpoint.utils.clone_tensors_for_torch_save launcher.runner.DEEPSPEED_ENVIRONMENT_NAME ops.adam.DeepSpeedCPUAdam ops.adam.FusedAdam
ops.adagrad.DeepSpeedCPUAdagrad ops.lion.DeepSpeedCPULion ops.aio.AsyncIOBuilder utils.zero_to_fp32.get_optim_files
utils.zero_to_fp32.get_model_state_file utils.zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint
utils.zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict utils.zero_to_fp32.load_state_dict_from_zero_checkpoint
checkpoint.constants.DS_VERSION checkpoint.constants.UNIVERSAL_CHECKPOINT_INFO runtime.fp16.loss_scaler.LossScaler
runtime.fp16.loss_scaler.DynamicLossScaler utils.tensor_fragment.fragment_address runtime.zero.config.ZeroStageEnum
runtime.zero.partition_parameters.ZeroParamStatus runtime.zero.partition_parameters.PartitionedParamStatus
runtime.zero.parameter_offload.DeepSpeedZeRoOffload runtime.base_optimizer.DeepSpeedOptimizer
runtime.zero.stage_1_and_2.DeepSpeedZeroOptimizer runtime.zero.stage3.DeepSpeedZeroOptimizer_Stage3
"""
OF_ENGINE = """
module config forward train eval zero_grad set_gradient_accumulation_boundary backward step get_global_grad_norm save_checkpoint
load_checkpoint zero_gather_16bit_weights_on_model_save _zero3_consolidated_16bit_state_dict destroy lr_scheduler device no_sync compile
optimizer.param_groups optimizer.state optimizer.defaults optimizer.state_dict optimizer.load_state_dict optimizer.overflow
optimizer.optimizer optimizer.parameter_offload.module optimizer.parameter_offload.param_coordinator.is_invalid_trace
"""


def has(root, path: str) -> bool:
    from deepspeed.absent_names import is_absent

    try:
        return not is_absent(functools.reduce(getattr, path.split("."), root))
    except AttributeError:
        return False


def test_every_name_that_others_take_is_there():
    import deepspeed
    from torch import nn

    missing = [path for path in NAMES.split() if not has(deepspeed, path)]
    for path in IMPORTED.split():
        module, _, name = path.rpartition(".")
        if not has(importlib.import_module(f"deepspeed.{module}"), name):
            missing.append(path)
    config = {"train_batch_size": 1, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}
    engine = deepspeed.initialize(model=nn.Linear(2, 2), config=config)[0]
    missing += [path for path in OF_ENGINE.split() if not has(engine, path)]
    engine.destroy()
    assert not missing, missing


def run_ranks(*command: str, **environment: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def run_example(name: str, *arguments: str) -> str:
    return run_ranks("-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", f"examples/{name}", *arguments)


def run_example_by_deepspeed(name: str, *arguments: str) -> str:
    launcher = ("-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(free_port()))
    return run_ranks(*launcher, f"examples/{name}", *arguments)


def losses_of(output: str) -> list[float]:
    """What the Trainer has printed."""
    return [float(value) for value in re.findall(r"'loss': '?([0-9.]+)", output)]


def test_the_example_of_the_trainer_learns():
    if importlib.util.find_spec("accelerate") is None:
        print("skipped test_the_example_of_the_trainer_learns: accelerate is not installed")
        return
    losses = losses_of(run_example("hf_trainer.py", "--max_steps", "15"))
    assert len(losses) == 3 and losses[-1] < 0.9 * losses[0], losses


# In one write: torchrun's ranks do not buffer, and lines of two ranks would mix.
AND_SAY_HOW = """
import os, runpy
runpy.run_path("examples/deepspeed_loop.py", run_name="__main__")
import shoal
world = shoal.world()
os.write(1, f"rank {world.rank} of {world.size} over {world.transport}\\n".encode())
"""


def test_the_example_of_the_loop_learns_under_the_deepspeed_command_over_gloo():
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "loop.py")
        script.write_text(AND_SAY_HOW)
        command = ("-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(free_port()), str(script))
        output = run_ranks(*command, SHOAL_TRANSPORT="gloo")
    assert "rank 0 of 2 over gloo" in output and "rank 1 of 2 over gloo" in output, output
    epochs = re.findall(r"epoch (\d): loss ([0-9.]+), step (\d+), lr 1.00e-03", output)
    assert [(epoch, step) for epoch, _, step in epochs] == [("0", "16"), ("1", "32"), ("2", "48")], output
    losses = [float(loss) for _, loss, _ in epochs]
    assert losses[2] < losses[1] < losses[0], output


def test_the_example_of_lora_learns_and_saves_adapters_alone():
    if importlib.util.find_spec("peft") is None:
        print("skipped test_the_example_of_lora_learns_and_saves_adapters_alone: peft is not installed")
        return
    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        output = run_example_by_deepspeed("peft_lora.py", "--max_steps", "20", "--save", folder)
        losses = losses_of(output)
        assert len(losses) == 4 and losses[-1] < losses[0], output
        with safe_open(os.path.join(folder, "adapter_model.safetensors"), "pt") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}
        assert len(shapes) == 4 * 4 * 2 and all("lora_" in key for key in shapes), shapes
        assert all(0 not in shape for shape in shapes.values()), f"an adapter was saved empty: {shapes}"


if __name__ == "__main__":
    main(globals())
