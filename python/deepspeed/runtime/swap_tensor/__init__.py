"""deepspeed.runtime.swap_tensor: the section aio."""
