"""Monitor, the base of them all, and MonitorMaster, which hands events to those that a config switches on."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed import comm
from deepspeed.monitor.base import Event, Monitor
from deepspeed.monitor.comet import CometMonitor
from deepspeed.monitor.csv_monitor import csvMonitor
from deepspeed.monitor.tensorboard import TensorBoardMonitor
from deepspeed.monitor.wandb import WandbMonitor
from deepspeed.utils.logging import logger


class MonitorMaster(Monitor):
    """The monitors of a config, on rank 0; elsewhere none. A monitor that cannot write says so once, and training goes on."""

    def __init__(self, monitor_config: Any):
        super().__init__(monitor_config)
        self.tb_monitor: TensorBoardMonitor | None = None
        self.wandb_monitor: WandbMonitor | None = None
        self.csv_monitor: csvMonitor | None = None
        self.comet_monitor: CometMonitor | None = None
        self.enabled = monitor_config.enabled
        self._failed: set[str] = set()
        if comm.get_rank() != 0:
            return
        if monitor_config.comet.enabled:
            self.comet_monitor = CometMonitor(monitor_config.comet)
        if monitor_config.tensorboard.enabled:
            self.tb_monitor = TensorBoardMonitor(monitor_config.tensorboard)
        if monitor_config.wandb.enabled:
            self.wandb_monitor = WandbMonitor(monitor_config.wandb)
        if monitor_config.csv_monitor.enabled:
            self.csv_monitor = csvMonitor(monitor_config.csv_monitor)

    def write_events(self, event_list: Iterable[Event]) -> None:
        events = list(event_list)
        sinks = {"tensorboard": self.tb_monitor, "wandb": self.wandb_monitor, "csv_monitor": self.csv_monitor}
        for name, sink in sinks.items():
            if sink is None:
                continue
            try:
                sink.write_events(events)
            except Exception as error:  # noqa: BLE001  (of any package's own)
                if name not in self._failed:
                    self._failed.add(name)
                    text = str(error) or type(error).__name__
                    logger.warning(f"[monitor {name}] could not write: {text}. Training goes on; this is said once.")
