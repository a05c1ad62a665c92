"""What the profiler has put on modules, summed up."""

from __future__ import annotations

from torch import nn


def module_flops(module: nn.Module) -> int:
    return sum(each.__flops__ for each in module.modules())


def module_macs(module: nn.Module) -> int:
    return sum(each.__macs__ for each in module.modules())


def module_duration(module: nn.Module) -> float:
    """Of a module without a forward of its own, a ModuleList say, that of its children."""
    return module.__duration__ or sum(module_duration(child) for child in module.children())
