"""deepspeed.accelerator: the device that torch sees."""

from deepspeed.accelerator.torch_accelerator import TorchAccelerator, get_accelerator, rank_device

__all__ = ["TorchAccelerator", "get_accelerator", "rank_device"]
