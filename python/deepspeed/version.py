"""The version of DeepSpeed whose names and meanings this package answers with, and whose they are."""

__version__ = "0.18.9+shoal"
