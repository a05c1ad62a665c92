"""The torch that the extension was built for. Imported before the extension, which links torch's own libraries."""

import torch

BUILT_FOR = "2.11"


def check_torch() -> None:
    """Raises ImportError when another torch is installed: its classes would not fit the extension."""
    if torch.__version__.split("+")[0].rsplit(".", 1)[0] != BUILT_FOR:
        raise ImportError(
            f"[shoal] torch {torch.__version__} is installed, and this shoal was built for torch {BUILT_FOR}. "
            f"Install torch {BUILT_FOR}, or build shoal again beside this torch."
        )
