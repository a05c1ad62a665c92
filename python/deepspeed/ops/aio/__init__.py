"""Only the name that others ask about: Shoal compiles nothing at run time."""


class AsyncIOBuilder:
    NAME = "async_io"

    def is_compatible(self, verbose: bool = False) -> bool:
        return False


__all__ = ["AsyncIOBuilder"]
