"""Runs a script as `python script --local_rank=N ...`, which scripts for DeepSpeed's launcher expect."""

import os
import runpy
import sys


def main() -> None:
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    script, *rest = arguments[1:] if as_module else arguments
    sys.argv = [script, f"--local_rank={os.environ['LOCAL_RANK']}", *rest]
    if as_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
