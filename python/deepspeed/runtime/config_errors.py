"""The one error of a config, under the names by which code that runs with DeepSpeed catches it."""

from __future__ import annotations

import contextlib
from typing import Iterator

from shoal import Error


class DeepSpeedConfigError(Error, ValueError, AssertionError):
    """DeepSpeed raises its DeepSpeedConfigError, a ValueError (pydantic's is one) or an AssertionError, by the mistake."""


@contextlib.contextmanager
def config_errors() -> Iterator[None]:
    """Raises what is wrong with a config as DeepSpeedConfigError; other errors pass as they are."""
    try:
        yield
    except Error as error:
        if isinstance(error, DeepSpeedConfigError) or not str(error).startswith("[config"):
            raise
        raise DeepSpeedConfigError(*error.args) from None
