"""Every module and name of DeepSpeed can be imported; what Shoal has not is refused when it is used, with what to use."""

from __future__ import annotations

import abc
import importlib
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main


def refusal(action) -> str:
    try:
        action()
    except NotImplementedError as error:
        return str(error)
    raise AssertionError("it was accepted")


def test_every_module_and_name_of_the_list_can_be_imported():
    from deepspeed import absent_names

    names = 0
    for module, listed in absent_names.table().items():
        imported = importlib.import_module(module)
        for name in (*listed.plain, *listed.constants, *listed.sources):
            getattr(imported, name)
            names += 1
    assert names > 4000 and len(absent_names.table()) > 700, (names, len(absent_names.table()))


def test_what_is_absent_is_refused_when_it_is_used_and_not_before():
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.pipe import LayerSpec, PipelineModule
    from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

    class Mine(PipelineModule, nn.Module, abc.ABC):
        pass

    assert not PipelineModule and not isinstance(nn.Linear(1, 1), PipelineModule) and issubclass(Mine, PipelineModule)
    for action, name in (
        (lambda: PipelineModule(layers=[]), "[deepspeed.pipe.PipelineModule]"),
        (lambda: Mine(), "[deepspeed.pipe.PipelineModule]"),
        (lambda: LayerSpec(nn.Linear, 1, 1), "[deepspeed.pipe.LayerSpec]"),
        (lambda: MoE.from_pretrained, "[deepspeed.moe.layer.MoE]"),
        (lambda: PipeDataParallelTopology(1, 2), "[deepspeed.runtime.pipe.topology.PipeDataParallelTopology]"),
        (lambda: deepspeed.InferenceEngine(None), "[deepspeed.InferenceEngine]"),
        (lambda: deepspeed.runtime.eigenvalue.Eigenvalue(), "Eigenvalue]"),
        (lambda: list(deepspeed.ops.adam.multi_tensor_apply.MultiTensorApply), "MultiTensorApply]"),
        (lambda: pickle.loads(b"cdeepspeed.pipe\nPipelineModule\n)\x81."), "[deepspeed.pipe.PipelineModule]"),
    ):
        message = refusal(action)
        assert name in message and "Shoal has not. " in message and message.endswith("."), message
    try:
        raise ValueError("caught by the next one")
    except deepspeed.elasticity.config.ElasticityError:
        raise AssertionError("it is another one") from None
    except ValueError:
        pass
    assert "torch.func.hessian" in refusal(deepspeed.runtime.eigenvalue.Eigenvalue)


def test_what_shoal_has_under_another_module_is_that():
    import deepspeed
    from deepspeed.comm.comm import all_reduce
    from deepspeed.ops.adam.cpu_adam import DeepSpeedCPUAdam
    from deepspeed.ops.op_builder.cpu import CPUAdamBuilder
    from deepspeed.runtime.constants import GRADIENT_ACCUMULATION_STEPS
    from deepspeed.runtime.lr_schedules import WARMUP_MIN_LR, WARMUP_TYPE

    assert DeepSpeedCPUAdam is deepspeed.ops.adam.DeepSpeedCPUAdam and all_reduce is deepspeed.comm.all_reduce
    assert (WARMUP_MIN_LR, WARMUP_TYPE, GRADIENT_ACCUMULATION_STEPS) == ("warmup_min_lr", "warmup_type", "gradient_accumulation_steps")
    assert CPUAdamBuilder.NAME == "cpu_adam" and CPUAdamBuilder().is_compatible() and deepspeed.ops.__compatible_ops__["cpu_adam"]
    assert not deepspeed.ops.op_builder.AsyncIOBuilder().is_compatible()
    assert "deepspeed.ops" in refusal(CPUAdamBuilder().load)


def test_nobody_is_told_of_what_deepspeed_has_not_or_of_what_is_probed_for():
    import deepspeed

    for module in ("deepspeed.nonsense", "deepspeed.pipe.nonsense", "deepspeed.ops.deepspeed4science"):
        assert importlib.util.find_spec(module) is None, module
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        raise AssertionError(f"{module} was imported")
    for module in (deepspeed, deepspeed.pipe, deepspeed.runtime.engine):
        assert not hasattr(module, "nonsense") and not hasattr(module, "__nonsense__")
    try:
        from deepspeed.pipe import nonsense  # noqa: F401
    except ImportError:
        return
    raise AssertionError("a name that DeepSpeed has not was imported")


def test_the_list_is_not_read_by_an_import_of_the_package():
    code = "import deepspeed, deepspeed.absent_names as names; print(names.table.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.split()[-1] == "0", done


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
