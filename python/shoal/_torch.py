"""The torch that the extension was built for. Imported before the extension, which links torch's own libraries."""

import torch

try:
    from shoal._built_for import TORCH as BUILT_FOR  # written by the build
except ImportError:
    raise ImportError("[shoal] the extension is not built here. Run make build, or pip install . in a checkout.") from None


def check_torch() -> None:
    """Raises ImportError when another torch is installed: its classes would not fit the extension."""
    if torch.__version__.split("+")[0].split(".")[:2] != BUILT_FOR.split("."):
        raise ImportError(
            f"[shoal] torch {torch.__version__} is installed, and this shoal was built for torch {BUILT_FOR}. "
            f"Install torch {BUILT_FOR}, or build shoal again beside this torch."
        )
