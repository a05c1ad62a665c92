"""A loader that begins again when it is through."""

from __future__ import annotations

from typing import Any, Iterable, Iterator


class RepeatingLoader:
    __module__ = "deepspeed.runtime.dataloader"  # where DeepSpeed has it: pickles name it

    def __init__(self, loader: Iterable[Any]):
        self.loader = loader
        self._items = iter(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for item in self._items:
            return item
        self._items = iter(self.loader)
        return next(self._items)
