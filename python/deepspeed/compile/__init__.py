"""deepspeed.compile: the section compile. engine.compile() compiles the forward of each block."""
