"""What DeepSpeed's engine saves and loads. DeepSpeedEngine inherits it; the work is done in the checkpoint_ files."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

import shoal
from shoal import durable, state

from deepspeed.runtime import checkpoint_load, checkpoint_plain, checkpoint_save, checkpoint_tag
from deepspeed.utils.arguments import refuse


class CheckpointMethods:
    module: nn.Module
    _shoal: shoal.Engine

    def module_state_dict(
        self, destination: Any = None, prefix: str = "", keep_vars: bool = False, exclude_frozen_parameters: bool = False
    ) -> dict[str, torch.Tensor]:
        values = self.module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if exclude_frozen_parameters:
            for name, param in self.module.named_parameters(remove_duplicate=False):
                if not param.requires_grad:
                    values.pop(prefix + name, None)
        return values

    def load_module_state_dict(self, checkpoint: dict[str, Any], strict: bool = True, custom_load_fn: Any = None) -> None:
        """Takes the weights of rank 0. checkpoint: a state dict under "module", as in DeepSpeed's files, or the dict itself."""
        refuse("load_module_state_dict", "Load them yourself under zero.GatheredParameters.", custom_load_fn=custom_load_fn)
        if not isinstance(checkpoint, Mapping):
            raise shoal.Error(f"[load_module_state_dict] {checkpoint!r:.60} is no state dict. Pass one, or one under \"module\".")
        inner = checkpoint.get("module")
        with shoal.gathered(self.module.parameters(), written_by=0):
            self.module.load_state_dict(inner if isinstance(inner, dict) else checkpoint, strict=strict)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict | None:
        return state.consolidate(self._shoal, exclude_frozen=exclude_frozen_parameters)

    def _consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict | None:
        return state.consolidate(self._shoal, exclude_frozen=exclude_frozen_parameters)

    def save_16bit_model(self, save_dir: str, save_filename: str = "pytorch_model.bin", exclude_frozen_parameters: bool = False) -> bool:
        return checkpoint_save.save_model(self, save_dir, save_filename, exclude_frozen_parameters)

    save_fp16_model = save_16bit_model

    def save_checkpoint(
        self,
        save_dir: str,
        tag: str | None = None,
        client_state: dict[str, Any] | None = None,
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        if client_state is not None and not isinstance(client_state, Mapping):
            raise shoal.Error(f"[save_checkpoint] client_state is {client_state!r:.60}. Pass a dict.")
        taken = sorted(checkpoint_load.OURS & set(client_state or {}))
        if taken:
            raise shoal.Error(f"[save_checkpoint] client_state has {taken[0]!r}, a name under which the engine keeps its own. Give it another name.")
        tag = checkpoint_tag.agree(self, str(tag) if tag is not None else f"global_step{self.global_steps}")
        writer = checkpoint_plain.PlainWriter if self.zero_optimization_stage() == 0 else checkpoint_save.Writer
        return checkpoint_save.save(self, save_dir, tag, client_state or {}, save_latest, exclude_frozen_parameters, writer)

    def load_checkpoint(
        self,
        load_dir: str,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        custom_load_fn: Any = None,
    ) -> tuple[str | None, dict[str, Any] | None]:
        refuse("load_checkpoint", "Load the weights yourself under zero.GatheredParameters.", custom_load_fn=custom_load_fn)
        client = self._shoal.client
        what = checkpoint_load.Wanted(
            strict=load_module_strict,
            optimizer=load_optimizer_states and not load_module_only,
            scheduler=load_lr_scheduler_states and not load_module_only,
            counts=not load_module_only,
        )
        before = client.take_states() if client is not None and what.optimizer else {}
        with durable.undone_on_error(lambda: client.put_states(before) if client is not None else None):
            found = checkpoint_load.load(self, load_dir, tag, what)
        if found[0] is None:
            if client is not None:
                client.put_states(before)
        elif client is not None and what.optimizer:
            client.set_step(self._shoal.core.progress().applied_steps)
        return found
