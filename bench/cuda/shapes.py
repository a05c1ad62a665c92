"""The Llama shapes of the GPU benchmarks: those of Shoal's built-in names."""

SHAPES = {  # hidden, layers, heads, kv heads, ffn, vocabulary
    "llama-1b": (2048, 16, 32, 8, 8192, 32000),
    "llama-3b": (3072, 28, 24, 8, 8192, 32000),
    "llama-8b": (4096, 32, 32, 8, 14336, 128256),
}
