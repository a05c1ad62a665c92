"""deepspeed.runtime.config: the names that DeepSpeed has there. They are made in config_object and config_translation."""

from deepspeed.runtime.config_errors import DeepSpeedConfigError
from deepspeed.runtime.config_object import DeepSpeedConfig
from deepspeed.runtime.config_translation import Source, check, load_config, read_config, translate, without_auto

__all__ = [
    "DeepSpeedConfig",
    "DeepSpeedConfigError",
    "Source",
    "check",
    "load_config",
    "read_config",
    "translate",
    "without_auto",
]
