"""How the forks of a process that has torch loaded end. nursery.py and warm.py call `spare_what_is_loaded()` before they fork.

Python takes every module apart when it ends, and libtorch its registries: half a second of a core in each fork, most of it for
copies of pages that it shared until then. Here a fork ends as any Python program does, with threads joined, exit handlers
called, its own modules and objects taken apart, and the static objects of the libraries that it loaded itself; but what was
loaded before that call stays as it is.
"""

import atexit
import ctypes
import gc
import sys
import weakref

_libc = ctypes.CDLL(None)
_spared: list[str] = []


def _spare() -> None:
    for name in _spared:
        module = sys.modules.pop(name, None)
        if module is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
    if _spared:
        _libc.fflush(None)  # what follows ends without it


atexit.register(_spare)  # what is registered first is called last, so this file is imported before torch


def spare_what_is_loaded() -> None:
    _spared[:] = [name for name in sys.modules if name not in ("__main__", "builtins", "sys")]
    for finalizer in list(weakref.finalize._registry):  # torch's, thousands of them
        finalizer.atexit = False
    _libc.on_exit(_libc._exit, None)  # handlers are called from the last to the first, this one with the exit code
    gc.collect()
    gc.freeze()  # collections in a fork, those at its end too, would look at every object of torch and copy its page
