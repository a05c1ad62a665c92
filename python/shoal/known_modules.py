"""Parameters that came into the model after initialize: a module replaced or added, load_state_dict(assign=True). The engine has
not heard of them, and says so when a step begins in which they got gradients. If it holds no parameter of the model any more, that
step is an error."""

from __future__ import annotations

import operator
import warnings
from typing import Container

import torch
from torch import nn

from shoal import _core


class KnownModules:
    def __init__(self, model: nn.Module, known: Container[int]):
        """known: ids of the engine's parameters."""
        self._model, self._known = model, known
        self._late: list[tuple[str, torch.Tensor]] = []
        self._look()

    def _look(self) -> None:
        """Through each module's __dict__: what is in it may be another dict later."""
        kinds = ("_parameters", "_modules")
        self._seen = [(vars(each), kind, list(vars(each)[kind].values())) for each in self._model.modules() for kind in kinds if vars(each)[kind]]

    def _is_as_seen(self) -> bool:
        for own, kind, before in self._seen:
            now = own[kind]
            if len(now) != len(before) or not all(map(operator.is_, now.values(), before)):
                return False
        return True

    def check(self) -> None:
        """Warns once for all that there are."""
        if not self._is_as_seen():
            self._look()
            params = list(self._model.named_parameters())
            self._late = [(name, param) for name, param in params if id(param) not in self._known]
            if params and len(self._late) == len(params):
                raise _core.Error(
                    "[step] the model has none of the parameters that the engine trains any more: all were replaced after initialize. Load "
                    "weights without assign=True, and change the model before initialize."
                )
        for name, param in self._late:
            if param.grad is not None:
                self._late = []
                warnings.warn(
                    f"[step] {name} came into the model after initialize, and the engine does not train it, though it gets gradients: it "
                    "stays as it is unless another optimizer has it. Change the model before initialize."
                )
                return
