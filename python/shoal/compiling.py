"""Engine.compile: torch.compile on the forwards of units.

Only a forward is compiled, never the call of a module: the engine's hooks, which gather and release, run before and after.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import nn

from shoal import _core

# torch's modes that record CUDA graphs.
_GRAPHS_OF_CUDA = ("reduce-overhead", "max-autotune")


class CompiledForward:
    """Stands in the place of a module's forward. A copy of the module has the plain one."""

    def __init__(self, module: nn.Module, options: dict[str, Any]):
        forward = module.forward
        self.plain: Callable = forward.plain if isinstance(forward, CompiledForward) else forward
        self.compiled = torch.compile(self.plain, **options)
        functools.update_wrapper(self, self.plain)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __reduce__(self) -> tuple:
        return _same, (self.plain,)


def _same(forward: Callable) -> Callable:
    return forward


def _graphs_of_cuda(options: dict[str, Any]) -> str:
    """Which of the options would record them; "" for none."""
    if options.get("mode") in _GRAPHS_OF_CUDA:
        return f"mode {options['mode']!r}"
    if options.get("backend") == "cudagraphs":
        return "backend 'cudagraphs'"
    return "options['triton.cudagraphs']" if (options.get("options") or {}).get("triton.cudagraphs") else ""


def compile_units(modules: list[tuple[str, nn.Module]], device: torch.device, options: dict[str, Any]) -> list[nn.Module]:
    """Compiles the units that have modules inside, in place, and returns them. A model that is one unit is compiled whole."""
    graphs = _graphs_of_cuda(options)
    if device.type == "cuda" and graphs:
        raise _core.Error(
            f"[compile] {graphs} records CUDA graphs, which hold addresses that weights and gradients do not keep. Use the mode "
            "'default' or 'max-autotune-no-cudagraphs'."
        )
    blocks = [module for path, module in modules if path and next(module.children(), None) is not None]
    if not blocks:
        if len(modules) > 1:
            names = ", ".join(path for path, _ in modules[:3] if path)
            raise _core.Error(
                f"[compile] the units are single layers ({names}) and the rest of the model, into which hooks of the engine "
                "fall. Call compile() on modules between them before initialize."
            )
        blocks = [modules[-1][1]]
    for module in blocks:
        module.forward = CompiledForward(module, options)
    return blocks
