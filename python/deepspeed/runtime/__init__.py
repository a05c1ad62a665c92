"""deepspeed.runtime."""

from deepspeed.runtime import lr_schedules, zero  # noqa: F401
