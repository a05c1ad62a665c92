"""DeepSpeed's names, answered by Shoal. Names and translation only: what happens, happens in the package shoal."""


import shoal as _shoal  # noqa: F401

from deepspeed import absent_names as _absent_names

_absent_names.install()

from deepspeed.version import __version__
from deepspeed import accelerator, checkpoint, checkpointing, comm, launcher, ops, runtime, utils, zero
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.api import add_config_arguments, init_inference, initialize, tp_model_init
from deepspeed.comm import init_distributed
from deepspeed.other_package import explain
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.utils.logging import log_dist, logger

_beside = explain(__path__[0])
if comm.first_rank():
    logger.info("deepspeed %s: Shoal is answering.", __version__)
    if _beside is not None:
        logger.warning(_beside)

__all__ = [
    "DeepSpeedEngine",
    "accelerator",
    "add_config_arguments",
    "checkpoint",
    "checkpointing",
    "comm",
    "dist",
    "get_accelerator",
    "init_distributed",
    "init_inference",
    "initialize",
    "launcher",
    "log_dist",
    "logger",
    "ops",
    "runtime",
    "tp_model_init",
    "utils",
    "zero",
]

__getattr__ = _absent_names.attributes_of(__name__)
