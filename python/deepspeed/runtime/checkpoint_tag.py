"""The tag under which all ranks save: what happens when they pass different ones, by checkpoint.tag_validation."""

from __future__ import annotations

from typing import Any

from shoal import _core, Error

from deepspeed.utils.logging import logger


class TagError(Error, AssertionError):
    """Ranks save under different tags, and the config says that they must not."""


def agree(engine: Any, tag: str) -> str:
    """The tag of rank 0. Where another rank has another one: Warn, the default, says so; Fail raises on every rank; Ignore is
    silent. Every rank calls it. A checkpoint is one folder here, whatever the mode."""
    tags = _core.gather_texts(engine._shoal.world, tag)
    other = next((rank for rank, each in enumerate(tags) if each != tags[0]), None)
    mode = str(engine._section("checkpoint").get("tag_validation", "Warn")).lower()
    if other is None or mode == "ignore":
        return tags[0]
    text = f"[save_checkpoint] rank 0 saves as {tags[0]!r} and rank {other} as {tags[other]!r}"
    if mode == "fail":
        raise TagError(f"{text}, and checkpoint.tag_validation is Fail. Pass one tag.")
    if engine._shoal.world.rank == 0:
        logger.warning("%s: all save as %r. Pass one tag.", text, tags[0])
    return tags[0]
