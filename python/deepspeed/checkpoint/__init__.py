"""deepspeed.checkpoint."""

from deepspeed.checkpoint import constants, utils  # noqa: F401
