"""Weights & Biases, by the package wandb."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed import comm
from deepspeed.monitor.base import Monitor
from deepspeed.monitor.utils import check_wandb_availability


class WandbMonitor(Monitor):
    """A run that is open already, a script's or a Trainer's own, is logged to; else one is begun."""

    def __init__(self, wandb_config: Any):
        super().__init__(wandb_config)
        self.enabled = wandb_config.enabled
        self.group = wandb_config.group
        self.team = wandb_config.team
        self.project = wandb_config.project
        if self.enabled and comm.get_rank() == 0:
            check_wandb_availability()
            import wandb

            wandb.init(project=self.project, group=self.group, entity=self.team)

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> Any:
        if not self.enabled or comm.get_rank() != 0:
            return None
        import wandb

        return wandb.log(data, step=step, commit=commit)

    def write_events(self, event_list: Iterable[tuple[str, Any, int]]) -> None:
        for name, value, step in (event[:3] for event in event_list):
            self.log({name: value}, step=step)
