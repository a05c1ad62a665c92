"""TensorBoard's event files in <output_path>/<job_name>, by torch's SummaryWriter, which needs the package tensorboard."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed import comm
from deepspeed.monitor.csv_monitor import make_folder
from deepspeed.monitor.base import Monitor
from deepspeed.monitor.utils import check_tb_availability


class TensorBoardMonitor(Monitor):
    def __init__(self, tensorboard_config: Any):
        super().__init__(tensorboard_config)
        self.summary_writer: Any = None
        self.enabled = tensorboard_config.enabled
        self.output_path = tensorboard_config.output_path
        self.job_name = tensorboard_config.job_name
        if self.enabled and comm.get_rank() == 0:
            check_tb_availability()
            self.get_summary_writer()

    def get_summary_writer(self, base: str | None = None) -> Any:
        """Of a new event file: files of earlier runs stay in the folder, and readers take all of them as one."""
        if self.enabled and comm.get_rank() == 0:
            from torch.utils.tensorboard import SummaryWriter

            self.summary_writer = SummaryWriter(log_dir=make_folder("tensorboard", self.output_path, base, self.job_name))
        return self.summary_writer

    def write_events(self, event_list: Iterable[tuple[str, Any, int]], flush: bool = True) -> None:
        if self.summary_writer is None:
            return
        for event in event_list:
            self.summary_writer.add_scalar(*event)
        if flush:
            self.flush()

    def flush(self) -> None:
        if self.summary_writer is not None:
            self.summary_writer.flush()
