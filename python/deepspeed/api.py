"""deepspeed.initialize and its neighbours."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Iterable

import torch
from torch import nn

from shoal import Error

from deepspeed import comm
from deepspeed.accelerate_count import check_count
from deepspeed.runtime.config_translation import read_config
from deepspeed.runtime.config_errors import DeepSpeedConfigError, config_errors
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.utils.logging import log_dist
from deepspeed.version import __version__


@config_errors()
def initialize(
    args: Any = None,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Callable[[Iterable[Any]], torch.optim.Optimizer] | None = None,
    model_parameters: Iterable[Any] | None = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    distributed_port: int = 29500,
    mpu: Any = None,
    dist_init_required: bool | None = None,
    collate_fn: Callable | None = None,
    config: Any = None,
    mesh_param: Any = None,
    config_params: Any = None,
) -> tuple[DeepSpeedEngine, Any, Any, Any]:
    """The engine of a model, its optimizer, a data loader if there is data, and the schedule of the learning rate."""
    log_dist(f"DeepSpeed info: version={__version__}, answered by Shoal", ranks=[0])
    if model is None:
        raise Error("[initialize] there is no model. Pass model=.")
    if mpu is not None or mesh_param is not None:
        raise Error("[initialize] mpu and mesh_param are not supported: all ranks are data-parallel. Leave them out.")
    if config is None:
        config = config_params
    of_args = {name: getattr(args, name, None) for name in ("deepspeed_config", "deepscale_config")}
    given = [f"args.{name}" for name, value in of_args.items() if value] + (["config"] if config is not None else [])
    if len(given) > 1:
        raise DeepSpeedConfigError(f"[initialize] there are {len(given)} configs: {', '.join(given)}. Give one of them.")
    if config is None:
        config = of_args["deepspeed_config"] or of_args["deepscale_config"]
    if config is None:
        raise Error("[initialize] there is no config. Pass config= with a path or a dict, or --deepspeed_config.")
    config, source = read_config(config)
    comm.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
    check_count(config)
    engine = DeepSpeedEngine(
        module=model,
        config=config,
        optimizer=optimizer,
        model_parameters=model_parameters,
        lr_scheduler=lr_scheduler,
        training_data=training_data,
        collate_fn=collate_fn,
        source=source,
    )
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed and --deepspeed_config to a parser."""
    group = parser.add_argument_group("DeepSpeed", "answered by Shoal")
    group.add_argument("--deepspeed", default=False, action="store_true", help="train with the engine")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the path of the JSON config")
    return parser


def init_inference(*args: Any, **kwargs: Any) -> None:
    raise Error("[init_inference] Shoal trains; it has no inference kernels. Use the model itself, or another server.")


def tp_model_init(*args: Any, **kwargs: Any) -> None:
    raise Error("[tp_model_init] Shoal has no tensor parallelism. Set tensor_parallel.autotp_size to 0.")
