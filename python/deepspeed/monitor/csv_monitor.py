"""One CSV file a name, in <output_path>/<job_name>: "Train/Samples/lr" is Train_Samples_lr.csv, with a header and a row a step."""

from __future__ import annotations

import csv
import os
from typing import Any, Iterable

import shoal

from deepspeed import comm
from deepspeed.monitor.base import Monitor


class csvMonitor(Monitor):  # noqa: N801  (DeepSpeed's name)
    def __init__(self, csv_config: Any):
        super().__init__(csv_config)
        self.filenames: list[str] = []
        self.enabled = csv_config.enabled
        self.output_path = csv_config.output_path
        self.job_name = csv_config.job_name
        self.log_dir = self.setup_log_dir()

    def setup_log_dir(self, base: str | None = None) -> str | None:
        """Makes the folder. base: where it is made if there is no output_path at all; "" is the folder of now."""
        if not self.enabled or comm.get_rank() != 0:
            return None
        return make_folder("csv_monitor", self.output_path, base, self.job_name)

    def write_events(self, event_list: Iterable[tuple[str, Any, int]]) -> None:
        if not self.enabled or comm.get_rank() != 0:
            return
        for name, value, step in (event[:3] for event in event_list):
            filename = name.replace("/", "_").replace(" ", "_")
            with open(os.path.join(self.log_dir, f"{filename}.csv"), "a+", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                if os.fstat(file.fileno()).st_size == 0:  # a run that resumes finds its header there
                    rows.writerow(["step", name.split("/")[-1]])
                rows.writerow([step, value])
            if filename not in self.filenames:
                self.filenames.append(filename)


def make_folder(monitor: str, output_path: str | None, base: str | None, job_name: str) -> str:
    """<output_path>/<job_name>, made."""
    if output_path is None:
        output_path = base or os.path.join(os.path.expanduser("~"), monitor)
    folder = os.path.join(output_path, job_name)
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise shoal.Error(f"[config {monitor}] {folder} cannot be written: {error.strerror}. Give another output_path.") from None
    return folder
