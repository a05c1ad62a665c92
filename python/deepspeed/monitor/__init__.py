"""deepspeed.monitor: the sections of the monitors. Nothing is written to them yet."""
