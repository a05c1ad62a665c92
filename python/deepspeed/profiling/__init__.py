"""deepspeed.profiling: the flops profiler."""
