"""Optimizers of torch that update with Shoal's kernels. With an engine they hold groups, and the engine updates."""

from __future__ import annotations

import itertools
from typing import Any, Callable

import torch

import shoal
from shoal import _core

from deepspeed.ops import foreach_formulas

# torch wraps this method so that the first call imports its compiler, which takes more than a second.
_add_param_group = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", torch.optim.Optimizer.add_param_group)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class KernelOptimizer(torch.optim.Optimizer):
    """Steps on its own over fp32, bf16 and fp16 parameters. What has 16 bits is computed in fp32 and rounded once a step; there
    is no master beside it. In host memory the update is that of Shoal's engine, to the bit; on a GPU it is the same formula by
    torch's foreach functions, which round otherwise."""

    kind = ""  # of the kernel; see _core.LoneUpdates
    state_names: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # attributes that a copy has too
    held_by_engine = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if param_group.get("amsgrad", self.defaults.get("amsgrad")):
            raise RuntimeError(f"[{type(self).__name__}] does not support the AMSGrad variant. Use torch.optim.AdamW.")
        _add_param_group(self, param_group)

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return torch.float32

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates each parameter that has a gradient. Returns what the closure does."""
        name = type(self).__name__
        if self.held_by_engine:
            raise shoal.Error(f"[{name}] is an engine's, which updates by itself. Call engine.step().")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        on_device: dict[tuple, list[torch.Tensor]] = {}
        for number, group in enumerate(self.param_groups):
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self._state_of(param)
                state["step"] += 1
                if param.grad.is_sparse:
                    self._update_rows(param, state, group)
                elif param.device.type == "cpu":
                    self._update(param, param.grad, [state[key] for key in self.state_names], int(state["step"]), group)
                else:
                    on_device.setdefault((number, int(state["step"]), param.device), []).append(param)
        for (number, step, _), params in on_device.items():
            states = [[self.state[param][key] for param in params] for key in self.state_names]
            foreach_formulas.update(self.kind, params, states, step, self.param_groups[number])
        return loss

    def _state_of(self, param: torch.Tensor) -> dict[str, Any]:
        if param.dtype not in _DTYPES:
            raise RuntimeError(f"[{type(self).__name__}] a parameter is {param.dtype}. Only fp32, bf16 and fp16 are supported.")
        state = self.state[param]
        if not state:
            state["step"] = 0
            for key in self.state_names:
                state[key] = torch.zeros_like(param, dtype=self.state_dtype(param), memory_format=torch.contiguous_format)
        return state

    def _update(
        self, weight: torch.Tensor, grad: torch.Tensor, states: list[torch.Tensor], step: int, group: dict[str, Any]
    ) -> None:
        """In host memory. What is not contiguous goes through a copy."""
        if "_updates" not in self.__dict__:
            self._updates = _core.LoneUpdates(torch.get_num_threads())
        dense = [each.detach().contiguous() for each in (weight, grad, *states)]
        options = {"lr": float(group["lr"]), "weight_decay": float(group["weight_decay"])}
        if "betas" in group:
            options |= {"beta1": float(group["betas"][0]), "beta2": float(group["betas"][1])}
        if "eps" in group:
            options["eps"] = float(group["eps"])
        options["bias_correction"] = bool(group.get("bias_correction", True))
        second = dense[3] if len(dense) > 3 else None
        self._updates.update(self.kind, dense[0], dense[1], dense[2], second, step=step, **options)
        for whole, part in zip((weight, *states), (dense[0], *dense[2:])):
            if whole.data_ptr() != part.data_ptr():
                whole.copy_(part)

    def _update_rows(self, param: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise RuntimeError(f"[{type(self).__name__}] does not support sparse gradients. Use torch.optim.SparseAdam.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torch's own casts states to the dtype of the parameter, which would round those of 16-bit parameters."""
        super().load_state_dict(state_dict)
        numbers = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        for number, param in zip(numbers, params):
            saved = state_dict["state"].get(number, {})
            for key in self.state_names:
                if torch.is_tensor(saved.get(key)):
                    self.state[param][key] = saved[key].to(param.device, self.state_dtype(param), copy=True)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {key: getattr(self, key) for key in self.kept}
