"""deepspeed.profiling: the section of the profiler. Operations are not counted."""
