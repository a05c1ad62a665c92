"""Shoal trains models that do not fit: a ZeRO engine in C++ for torch modules.

    engine = shoal.initialize(model, "ds_config.json")
    for batch in data:
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
"""

from shoal._torch import check_torch

check_torch()

from shoal._core import Error, MemoryPlan, MemoryReport, StepResult  # noqa: E402
from shoal.construction import init  # noqa: E402
from shoal.engine import Engine, initialize  # noqa: E402
from shoal.gathering import gathered  # noqa: E402
from shoal.planning import plan  # noqa: E402
from shoal.units import find_units  # noqa: E402
from shoal.world import world  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Error",
    "MemoryPlan",
    "MemoryReport",
    "StepResult",
    "find_units",
    "gathered",
    "init",
    "initialize",
    "plan",
    "world",
]
