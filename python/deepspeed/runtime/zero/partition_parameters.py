"""zero.Init and zero.GatheredParameters on shoal.init and shoal.gathered."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import torch
from torch import nn

import shoal
from shoal import _core, demand, gathering
from shoal.owners import owner_of

from deepspeed import comm
from deepspeed.accelerator import rank_device
from deepspeed.runtime.config_translation import load_config
from deepspeed.runtime.zero.local_part import LocalPart, PartitionedParamStatus  # noqa: F401
from deepspeed.runtime.zero.watch import Watch
from deepspeed.utils.arguments import refuse, without_effect


class ZeroParamType(enum.Enum):
    NORMAL = 1
    PARTITIONED = 2
    REMOTE = 3


class ZeroParamStatus(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


_ids = itertools.count()


def mark_sharded(param: nn.Parameter, persists: bool = False) -> None:
    """The attributes by which others know a parameter of ZeRO-3. persists: an engine keeps it whole on every rank."""
    if not hasattr(param, "ds_id"):
        param.ds_id = next(_ids)
    param.ds_numel = param.numel()
    param.ds_shape = param.shape
    param.ds_status = ZeroParamStatus.NOT_AVAILABLE
    param.ds_active_sub_modules = set()  # always empty: the engine counts uses by units
    param.ds_persist = persists
    param.ds_tensor = LocalPart(param)
    param.partition_numel = param.ds_tensor.numel


_MARKS = ("ds_id", "ds_numel", "ds_shape", "ds_status", "ds_active_sub_modules", "ds_persist", "ds_tensor", "partition_numel")


def unmark(param: nn.Parameter) -> None:
    for name in _MARKS:
        if hasattr(param, name):
            delattr(param, name)


_PRECISIONS = {
    torch.float16: _core.Precision.fp16,
    torch.bfloat16: _core.Precision.bf16,
    torch.float32: _core.Precision.fp32,
}


class Init:
    """Shards each parameter as it is made."""

    def __init__(
        self,
        module: nn.Module | None = None,
        data_parallel_group: Any = None,
        mem_efficient_linear: bool = True,
        remote_device: str | None = None,
        pin_memory: bool = False,
        config_dict_or_path: Any = None,
        config: Any = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        mpu: Any = None,
        zero_param_parallel_group: Any = None,
        zero_quantized_weights: bool = False,
        zero_quantized_nontrainable_weights: bool = False,
        sequence_data_parallel_group: Any = None,
        param_swapper: Any = None,
    ):
        if enabled:
            refuse(
                "zero.Init",
                "Parameters are sharded over all ranks, in host memory, in one dtype; leave it out.",
                mpu=mpu,
                data_parallel_group=None if comm.is_whole_world(data_parallel_group) else data_parallel_group,
                zero_param_parallel_group=zero_param_parallel_group,
                sequence_data_parallel_group=sequence_data_parallel_group,
                param_swapper=param_swapper,
            )
            refuse(
                "zero.Init",
                "Weights are sharded exact, and quantized when they are gathered: set the key in the config, and leave it out here.",
                zero_quantized_weights=zero_quantized_weights,
                zero_quantized_nontrainable_weights=zero_quantized_nontrainable_weights,
            )
            if remote_device not in (None, "none", "cpu"):
                raise shoal.Error(f"[zero.Init] remote_device={remote_device!r} is not supported. Use None or cpu.")
            without_effect("zero.Init", "shards are in host memory already", remote_device=None if remote_device == "none" else remote_device)
            without_effect("zero.Init", "the engine copies shards to a GPU once", pin_memory=pin_memory)
        given = config_dict_or_path if config_dict_or_path is not None else config
        precision = _PRECISIONS[dtype] if dtype is not None else None
        self._init = shoal.init(
            None if given is None else load_config(given),
            precision=precision,
            enabled=enabled,
            before=mark_sharded,
            empty=True,
            device=_where_to_build() if enabled else None,
        )
        if enabled:
            comm.init_distributed()
        if module is not None and enabled:
            self._init.shard(module)

    def __enter__(self) -> "Init":
        self._init.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._init.__exit__(kind, error, trace)


def _where_to_build() -> torch.device | None:
    """On this rank's GPU, as DeepSpeed does; None: wherever torch would."""
    device = rank_device()
    return device if device.type == "cuda" else None


class GatheredParameters:
    """Has parameters whole inside. What is not sharded, None too, is passed over. Without modifier_rank what is written inside is
    dropped, and warned of. With it an engine's parameters are that rank's on every rank afterwards, at every stage."""

    def __init__(self, params: Any, modifier_rank: int | None = None, fwd_module: Any = None, enabled: bool = True):
        if isinstance(params, torch.Tensor):
            params = [params]
        params = [param for param in params if isinstance(param, torch.Tensor)] if enabled else []
        self.params = [param for param in params if hasattr(param, "ds_id")]
        written = [param for param in params if owner_of(param)] if modifier_rank is not None else []
        self._gathered = gathering.gathered([*self.params, *written], written_by=modifier_rank)
        self._watch: Watch | None = None
        if fwd_module is not None:
            for param in self.params:
                register_external_parameter(fwd_module, param)

    def __enter__(self) -> None:
        self._gathered.__enter__()
        for param in self.params:
            param.ds_status = ZeroParamStatus.AVAILABLE
        if self._gathered.written_by is None:
            self._watch = Watch(self._gathered.opened)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._watch is not None and kind is None:
            self._watch.drop_writes()
        self._watch = None
        self._gathered.__exit__(kind, error, trace)
        for param in self.params:
            if not gathering.is_gathered(param):
                param.ds_status = ZeroParamStatus.NOT_AVAILABLE


def register_external_parameter(module: nn.Module, parameter: nn.Parameter) -> None:
    """Has a parameter of another module whole in the module's forward. A parameter that is read as an attribute of its
    module needs no registration."""
    if not isinstance(parameter, nn.Parameter):
        raise RuntimeError("[register_external_parameter] the parameter is not a torch.nn.Parameter. Pass one.")
    externals = external_parameters(module)
    if id(parameter) not in externals.params:
        externals.params[id(parameter)] = parameter
        externals.hooks[id(parameter)] = module.register_forward_pre_hook(_HaveWhole(parameter))


def unregister_external_parameter(module: nn.Module, parameter: nn.Parameter) -> None:
    externals = external_parameters(module)
    if externals.params.pop(id(parameter), None) is not None:
        externals.hooks.pop(id(parameter)).remove()


def external_parameters(module: nn.Module) -> "ExternalParameters":
    """Of the module, which has none at first."""
    return module.__dict__.setdefault("ds_external_parameters", ExternalParameters())


class ExternalParameters:
    """A module's ds_external_parameters: parameters of others that its forward reads, as pairs of an id and a parameter. A
    copy of the module has none."""

    def __init__(self) -> None:
        self.params: dict[int, nn.Parameter] = {}
        self.hooks: dict[int, Any] = {}

    def __call__(self) -> Any:
        return self.params.items()

    def __deepcopy__(self, memo: dict) -> "ExternalParameters":
        return ExternalParameters()

    def __reduce__(self) -> tuple:
        return ExternalParameters, ()


class _HaveWhole:
    """Before a module's forward. In a copy of the module it is dead: the copy has parameters of its own."""

    def __init__(self, parameter: nn.Parameter | None):
        self.parameter = parameter

    def __call__(self, module: nn.Module, args: tuple) -> None:
        if self.parameter is not None:
            demand.have_whole(self.parameter)

    def __deepcopy__(self, memo: dict) -> "_HaveWhole":
        return _HaveWhole(None)

    def __reduce__(self) -> tuple:
        return _HaveWhole, (None,)
