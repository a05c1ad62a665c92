"""Whether the real DeepSpeed is installed beside this package: only one of them can answer to the name."""

from __future__ import annotations

import importlib.metadata
import os
import sys

# A file that the real package has and this one has not.
_MARK = "git_version_info.py"


def find_other(own: str, paths: list[str] | None = None) -> tuple[str, str] | None:
    """(version, folder) of the real package, if it is on the path: `own` is the folder of this one."""
    if os.path.exists(os.path.join(own, _MARK)):
        return "of its own", own
    for path in paths if paths is not None else sys.path:
        folder = os.path.join(path or os.getcwd(), "deepspeed")
        if os.path.exists(os.path.join(folder, _MARK)) and not _same(folder, own):
            return _version_in(path or os.getcwd()), folder
    return None


def explain(own: str, paths: list[str] | None = None) -> str | None:
    """What to tell the user. Raises ImportError where the files of both lie in one folder."""
    found = find_other(own, paths)
    if found is None:
        return None
    version, folder = found
    if _same(folder, own):
        raise ImportError(
            f"[deepspeed] {own} holds files of the real DeepSpeed and of Shoal's package of that name. Run `pip uninstall "
            "deepspeed` until it finds nothing, and install the one that you want."
        )
    return (
        f"[deepspeed] the real DeepSpeed {version} is installed in {folder} too. Shoal answers, since {own} comes first on "
        "the path; uninstall the one that you do not want."
    )


def _same(a: str, b: str) -> bool:
    return os.path.realpath(a) == os.path.realpath(b)


def _version_in(path: str) -> str:
    for found in importlib.metadata.distributions(name="deepspeed", path=[path]):
        return found.version
    return "(no version)"
