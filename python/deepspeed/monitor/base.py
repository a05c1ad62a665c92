"""Monitor, the base of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Iterable

Event = tuple[str, Any, int]  # name, value, step


class Monitor(ABC):
    """Writes events somewhere."""

    @abstractmethod
    def __init__(self, monitor_config: Any):
        self.monitor_config = monitor_config

    @abstractmethod
    def write_events(self, event_list: Iterable[Event]) -> None: ...
