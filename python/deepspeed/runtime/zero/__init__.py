"""deepspeed.runtime.zero."""

from deepspeed.runtime.zero import partition_parameters  # noqa: F401
