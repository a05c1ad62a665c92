"""deepspeed.runtime.dataloader: a loader that begins again when it is through."""

from deepspeed.utils.repeating_loader import RepeatingLoader

__all__ = ["RepeatingLoader"]
