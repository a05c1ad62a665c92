"""shoal's engine.save_later and wait_saved: the files of engine.save, written behind training, and what becomes of a save that
nobody waits for."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from beside_test import Normed, buffers_of, steps
from models import Net, train_steps
from ranks import main, message, run


def config(**others) -> dict:
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    optimizer = {"type": "AdamW", "params": {"lr": 1e-2}}
    return {"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero, "optimizer": optimizer, **others}


def begin(model=Net, seed: int = 0, **others):
    import shoal

    torch.manual_seed(seed)
    return shoal.initialize(model(), config(**others))


def bytes_of(folder: str | Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def save_both_ways(folder: str, accumulation: int) -> dict:
    engine = begin(gradient_accumulation_steps=accumulation)
    train_steps(engine, 0, 3)
    at_once = engine.save(os.path.join(folder, "at_once"), step=3)
    engine.save_later(os.path.join(folder, "later"), step=3)
    end = 7 if accumulation == 1 else 8  # of a step: nothing is loaded within one
    facts = {"pictures": engine.memory().held.save_pictures, "straight": train_steps(engine, 3, end)}
    later = engine.wait_saved()
    engine.load(at_once)
    return facts | {"back": train_steps(engine, 3, end), "paths": [at_once, later], "again": engine.wait_saved()}


def test_the_files_are_those_of_save_and_training_shows_nothing_of_it():
    for accumulation in (1, 2):  # 3 micro-steps: in the middle of a step
        with tempfile.TemporaryDirectory() as folder:
            for facts in run(__file__, "save_both_ways", 2, folder=folder, accumulation=accumulation):
                assert facts["pictures"] > 0, facts
                assert accumulation == 2 or facts["straight"] == facts["back"], facts
                assert facts["paths"][1] == os.path.join(folder, "later", "step-00000003") == facts["again"], facts
            written = bytes_of(Path(folder, "later"))
            assert written == bytes_of(Path(folder, "at_once")) and len(written) == 4, list(written)


def with_buffers(folder: str) -> dict:
    engine = begin(Normed)
    steps(engine, 0, 2)
    facts = {"saved": buffers_of(engine.module)}
    engine.save_later(folder, step=2, extra={"mine": "kept"})
    facts["straight"] = steps(engine, 2, 4)
    engine.save_later(folder, step=4)  # waits for the first
    loaded = engine.load(os.path.join(folder, "step-00000002"))  # and this for the second
    facts |= {"loaded": buffers_of(engine.module), "back": steps(engine, 2, 4), "mine": loaded.extra["mine"]}
    facts["names"] = sorted(os.listdir(folder))
    return facts


def test_buffers_come_along_and_a_later_call_waits_for_an_earlier_save():
    with tempfile.TemporaryDirectory() as folder:
        for facts in run(__file__, "with_buffers", 2, folder=folder):
            saved = {name: value for name, value in facts["saved"].items() if name != "scratch"}
            assert saved == {name: value for name, value in facts["loaded"].items() if name != "scratch"}, facts
            assert facts["straight"] == facts["back"] and facts["mine"] == "kept", facts
            assert facts["names"] == ["latest", "step-00000002", "step-00000004"], facts


def without_waiting(folder: str, way: str) -> dict:
    engine = begin()
    train_steps(engine, 0, 1)
    engine.save(folder, step=1)
    with contextlib.suppress(RuntimeError):
        engine.save_later(folder, step=2)
        if way == "steps":
            for step in range(2000):
                train_steps(engine, 2 + step, 3 + step)
                if step % 10 == 9 and not engine.later.under_way:
                    break
            return {"names": sorted(os.listdir(folder)), "under way": engine.later.under_way}
        if way == "destroyed":
            engine.destroy()
        if way == "raises":
            try:
                raise RuntimeError("the run failed")
            finally:
                engine.destroy()
    torch.manual_seed(0)
    return {"names": sorted(name for name in os.listdir(folder) if not name.startswith("."))}


def test_a_save_ends_in_a_step_or_with_its_engine():
    for way in ("steps", "destroyed"):
        with tempfile.TemporaryDirectory() as folder:
            for facts in run(__file__, "without_waiting", 2, folder=folder, way=way):
                assert facts["names"] == ["latest", "step-00000001", "step-00000002"], f"{way}: {facts}"


def test_a_save_whose_run_fails_or_exits_is_lost_and_no_other():
    for way in ("raises", "exits"):
        with tempfile.TemporaryDirectory() as folder:
            run(__file__, "without_waiting", 2, folder=folder, way=way)
            assert Path(folder, "latest").read_text() == "step-00000001\n", way
            left = [name for name in os.listdir(folder) if not name.startswith(".")]
            assert sorted(left) == ["latest", "step-00000001"], f"{way}: {left}"


def failing(folder: str) -> dict:
    engine = begin()
    train_steps(engine, 0, 1)
    facts = {"none": engine.wait_saved()}
    facts["cannot begin"] = message(lambda: engine.save_later("/proc/none", step=1))
    facts["after"] = engine.wait_saved()
    engine.save_later(folder, step=1)
    return facts | {"then": engine.wait_saved(), "no step": message(lambda: engine.save_later(folder, step=-1))}


def test_a_save_that_cannot_begin_is_an_error_on_every_rank():
    with tempfile.TemporaryDirectory() as folder:
        for facts in run(__file__, "failing", 2, folder=folder):
            assert facts["none"] is None and facts["after"] is None, facts
            assert facts["cannot begin"].startswith("[checkpoint save] rank 0: cannot make the folder /proc/none"), facts
            assert facts["then"] == os.path.join(folder, "step-00000001"), facts
            assert facts["no step"] == "[checkpoint save] rank 0: -1 is no step. Use 0 or more.", facts


def failing_behind(folder: str, then: str) -> dict:
    """A save that begins, fails, and is found by a step."""
    engine = begin()
    train_steps(engine, 0, 1)
    engine.save(os.path.join(folder, "good"), step=1)
    lost = os.path.join(folder, "lost")
    engine.save_later(lost, step=1)
    if engine.world.rank == 0:
        shutil.rmtree(lost)  # before it is published
    engine.world.barrier()
    for step in range(2000):
        train_steps(engine, 1 + step, 2 + step)
        if not engine.later.under_way:
            break
    facts: dict = {"under way": engine.later.under_way}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if then == "destroy":
            facts["said"] = message(engine.destroy)
        if then == "raises":
            try:
                raise RuntimeError("the run failed")
            except RuntimeError:
                engine.destroy()
            facts["said"] = ""
        if then == "save":
            facts["done"] = engine.save(os.path.join(folder, "next"), step=2)
        if then == "load":
            facts["done"] = engine.load(os.path.join(folder, "good")).path
        if then == "save_later":
            facts["said"] = message(lambda: engine.save_later(os.path.join(folder, "next"), step=2))
    return facts | {"warned": [str(each.message) for each in warned if "behind training" in str(each.message)]}


def test_a_failure_that_a_step_found_is_raised_or_warned_of():
    failed = "[checkpoint save] step 1, behind training: rank 0: "
    for then in ("destroy", "raises", "save", "load", "save_later"):
        with tempfile.TemporaryDirectory() as folder:
            for rank, facts in enumerate(run(__file__, "failing_behind", 2, folder=folder, then=then)):
                assert not facts["under way"], f"{then}: {facts}"
                if then in ("save", "load"):
                    where = {"save": "next/step-00000002", "load": "good/step-00000001"}[then]
                    assert facts["done"] == os.path.join(folder, where), f"{then}: {facts}"
                    assert len(facts["warned"]) == (1 if rank == 0 else 0), f"{then}: {facts}"
                    assert all(failed in text for text in facts["warned"]), f"{then}: {facts}"
                else:
                    assert facts["said"].startswith("" if then == "raises" else failed), f"{then}: {facts}"


if __name__ == "__main__":
    main(globals(), imports=("shoal",))
