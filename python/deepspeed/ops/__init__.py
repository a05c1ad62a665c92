"""deepspeed.ops."""

from deepspeed.ops import adagrad, adam, aio, lion  # noqa: F401

__compatible_ops__ = {"async_io": False, "cpu_adam": True, "cpu_adagrad": True, "cpu_lion": True, "fused_adam": True}
