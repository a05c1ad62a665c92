"""load_checkpoint: DeepSpeed's layout, saved by any number of ranks, into any number. Files are mapped, not read whole."""

from __future__ import annotations

import os
from typing import Any

import shoal
from shoal import _core, durable

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime import checkpoint_list as lists
from deepspeed.runtime.checkpoint_check import naming
from deepspeed.runtime.checkpoint_fit import Fit, Wanted
from deepspeed.runtime.checkpoint_universal import is_universal, open_checked
from deepspeed.utils.logging import logger, warning_once

# What the engine writes at the top level of the model's file; the rest is the client's.
OURS = {
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "frozen_param_fragments",
    "shared_params", "lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names", "applied_steps", "skipped_steps",
    "global_steps", "global_samples", "micro_steps", "dp_world_size", "mp_world_size", "ds_config", "ds_version",
    "universal_checkpoint_info", "zero_stage", "autoep_layers", lists.SAVE_KEY,
}  # fmt: skip

_PLACE = "load_checkpoint"


def load(engine: Any, load_dir: str, tag: str | None, wanted: Wanted) -> tuple:
    """Raises before anything of the engine is changed; or, if a write fails, the engine refuses every call that follows."""
    world, found = engine._shoal.world, []
    durable.act_together(world, _PLACE, lambda: found.append(_folder_of(engine, load_dir, tag)))
    folder = found[0]
    names = _core.gather_texts(world, "" if folder is None else os.path.basename(folder))
    for rank, name in enumerate(names):
        if name != names[0]:
            raise shoal.Error(f"[load_checkpoint] rank 0 loads {names[0]!r} and rank {rank} {name!r} from {load_dir}. Pass one tag, "
                              "from a disk that all hosts share.")
    if folder is None:
        if world.rank == 0:
            logger.warning("[load_checkpoint] %s has no file named latest: nothing was loaded. Give the folder of checkpoints, or a tag.",
                           load_dir)
        return None, None
    takes_states = wanted.optimizer and engine.basic_optimizer is not None
    saved = open_checked(folder, world, _PLACE, needs_states=takes_states)
    fits: list[Fit] = []

    def fit() -> None:
        with naming(folder, _PLACE):
            model = saved.models[0]
            if takes_states and not saved.has_states and model.get("param_shapes") and model.get("zero_stage") != 0:
                raise shoal.Error(f"[load_checkpoint] {folder} has no {os.path.basename(files.optimizer_file(folder, False, 0))}, and was saved "
                                  "with such files: the copy is not whole. Copy it again, or load the weights alone by load_module_only=True.")
            fits.append(Fit(engine, saved, wanted, takes_states and saved.has_states))

    durable.act_together(world, _PLACE, fit)
    fits[0].try_schedule()
    with durable.undone_on_error(lambda: _refuse_to_go_on(engine, folder)):
        fits[0].write()
    model = saved.models[0]
    if saved.accumulated > 0 and wanted.optimizer:
        warning_once(f"[load_checkpoint] {saved.accumulated} micro-steps of the next step had been accumulated when {folder} was "
                     f"saved and are not in it: training goes on from step {engine.global_steps}.")
    if len(saved.models) == world.size:
        model = saved.models[world.rank]  # each rank's own, as DeepSpeed's stage 3 keeps it
    client = {key: value for key, value in model.items() if key not in OURS}
    return folder, client


def _folder_of(engine: Any, load_dir: str, tag: str | None) -> str | None:
    """The folder to load; None: there is nothing yet."""
    core = engine._shoal._live(_PLACE)
    core.check_readable(_PLACE)
    if core.accumulated > 0:
        raise shoal.Error(f"[load_checkpoint] {core.accumulated} micro-steps are accumulated and wait for their update: they are "
                          "of the weights of now. Load after the step() that ends a step.")
    universal = bool((engine.config.get("checkpoint") or {}).get("load_universal"))
    files.check_path(load_dir, _PLACE)
    if os.path.exists(load_dir) and not os.path.isdir(load_dir):
        raise shoal.Error(f"[load_checkpoint] {load_dir} is no folder. Give the folder that has the checkpoints.")
    tag = str(tag) if tag is not None else files.read_latest(load_dir, universal)
    if tag is None and universal:
        raise shoal.Error(f"[load_checkpoint] {load_dir} has no file named latest_universal, and the config has "
                          "checkpoint.load_universal. Run deepspeed.checkpoint.ds_to_universal, or leave the key out: any "
                          "checkpoint loads on any number of ranks without it.")
    if tag is None:
        return None
    folder = os.path.join(load_dir, tag)
    if universal and not is_universal(folder):
        raise shoal.Error(f"[load_checkpoint] {folder} is not a universal checkpoint, and the config has "
                          "checkpoint.load_universal. Give the tag of a universal one, or leave the key out.")
    return folder


def _refuse_to_go_on(engine: Any, folder: str) -> None:
    """After a write that failed: the states are of two runs, and all checks that can be made were made before."""
    engine._shoal.core.abandon_backward(f"load_checkpoint failed while it wrote the states of {folder}. Begin a new process.")
