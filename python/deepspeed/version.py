"""The version of DeepSpeed whose names and meanings this package answers with, and whose they are."""

__version__ = "0.19.8+shoal"
