"""Comet, which Shoal does not log to."""

from __future__ import annotations

from typing import Any

import shoal

from deepspeed.monitor.base import Monitor


class CometMonitor(Monitor):
    """Refuses. One that is off may be made."""

    def __init__(self, comet_config: Any):
        super().__init__(comet_config)
        self.enabled = comet_config.enabled
        if self.enabled:
            raise shoal.Error(
                "[config comet] Shoal does not log to Comet. Use wandb, tensorboard or csv_monitor, or an experiment of your own: "
                "comet_ml.start(), with engine.get_lr() and engine.get_global_grad_norm() beside the loss."
            )

    def write_events(self, event_list: Any) -> None:
        """Nothing: it is off."""
