"""Shoal's package `deepspeed` against the real one: checkpoints both ways, and losses side by side. For developers.

    python tools/against_deepspeed --deepspeed-python PATH [--stages 0,1,2,3] [--precisions fp32,bf16,fp16]
                                   [--optimizers torch,fused]

The real package lives in an environment of its own; docs/from_deepspeed.md says how it is made. Prints one line a
check; the exit code says whether all held.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from sides import Sides

SAVED_AT, LAST = 3, 6


class Report:
    def __init__(self) -> None:
        self.failed = 0

    def check(self, what: str, holds: bool, figure: str = "") -> None:
        self.failed += not holds
        print(f"{'holds ' if holds else 'FAILS '} {what}{'  ' + figure if figure else ''}", flush=True)

    def note(self, what: str, figure: str) -> None:
        """A difference that is the real package's own."""
        print(f"note   {what}  {figure}", flush=True)

    def equal(self, what: str, found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
        names = set(found) == set(wanted)
        away = max((largest(found[name], wanted[name]) for name in wanted if name in found), default=0.0)
        missing = sorted(set(wanted) ^ set(found))[:3]
        self.check(what, names and away == 0.0, f"largest difference {away:g}" + (f", names {missing}" if missing else ""))

    def near(self, what: str, found: list[float], wanted: list[float], limit: float | None) -> None:
        away = max((abs(a - b) for a, b in zip(found, wanted)), default=0.0)
        if limit is None:
            return self.note(what, f"largest difference {away:.2e}")
        self.check(what, len(found) == len(wanted) and away <= limit, f"largest difference {away:.2e}, allowed {limit:g}")


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.numel() != b.numel():
        return float("inf")
    return (a.float().flatten() - b.float().flatten()).abs().max().item() if a.numel() else 0.0


def whole_weights(sides: Sides, side: str, checkpoint: Path) -> dict[str, torch.Tensor]:
    """What a side's zero_to_fp32 makes of a checkpoint."""
    out = sides.folder / f"whole{sides.count}"
    sides.count += 1
    sides.call(side, "-m", "deepspeed.utils.zero_to_fp32", str(checkpoint), str(out))
    return torch.load(out / "pytorch_model.bin", weights_only=False)


def compare(sides: Sides, report: Report, stage: int, precision: str, fused: bool, with_universal: bool) -> None:
    name = f"stage {stage} {precision}" + (" FusedAdam" if fused else "")
    limit = 1e-5 if precision == "fp32" else 3e-2
    job = {"stage": stage, "precision": precision, "fused": fused, "zero": {"sub_group_size": 800} if stage == 3 else {}}
    straight, folders = {}, {}
    for side in ("ours", "real"):
        folders[side] = sides.folder / f"{side}_{name.replace(' ', '_')}"
        straight[side] = sides.train(side, 2, first=0, last=SAVED_AT, save=str(folders[side]), **job)
        whole = sides.train(side, 2, first=0, last=LAST, **job)
        straight[side] |= {"after": whole["losses"][SAVED_AT:], "scales after": whole["scales"][SAVED_AT:]}
    unscaled = stage == 0 and precision == "fp16"  # the real one does not scale its loss there: docs/from_deepspeed.md
    limit = None if unscaled else limit
    report.near(f"{name}: losses of both", straight["ours"]["losses"], straight["real"]["losses"], limit)
    no_norm = stage == 0 and precision == "fp32"  # of the real one
    report.near(f"{name}: norms of both", straight["ours"]["norms"], straight["real"]["norms"], None if no_norm else limit)
    if not unscaled:
        report.check(f"{name}: scales of both", straight["ours"]["scales"] == straight["real"]["scales"],
                     f"{straight['ours']['scales']} {straight['real']['scales']}")
    for saver in ("ours", "real"):
        wanted = straight[saver]
        trained = {key: value for key, value in wanted["states"].items() if " " not in key}
        for reader in ("real", "ours") if stage > 0 else ("ours",):  # the real one reads no stage 0
            found = whole_weights(sides, reader, folders[saver])
            what = f"{name}: saved by {saver}, zero_to_fp32 of {reader}"
            if stage == 0 and saver == "real" and precision != "fp32":  # its fp32 weights have no names
                dtype = torch.bfloat16 if precision == "bf16" else torch.half
                trained = {key: value.to(dtype) for key, value in trained.items()}
                what += ", weights of 16 bits"
            report.equal(what, {key: found[key] for key in trained}, trained)
            missing = sorted({"head.weight", "frozen.weight", "frozen.bias", "seen"} - set(found))
            if saver == reader == "real" and missing:
                report.note(f"{name}: zero_to_fp32 of real leaves out", ", ".join(missing))
            else:
                report.check(f"{name}: names of zero_to_fp32 of {reader}", not missing, ", ".join(missing))
    for saver, reader, world in (("ours", "real", 2), ("real", "ours", 2), ("real", "ours", 1), ("real", "ours", 3)):
        resume(report, f"{name}: saved by {saver}, resumed by {reader} on {world}", straight[saver],
               sides.train(reader, world, first=SAVED_AT, last=LAST, load=str(folders[saver]), **job),
               world == 2, limit)
    if with_universal and stage > 0 and not fused:
        universal(sides, report, name, job, straight, folders, limit)


def resume(report: Report, what: str, wanted: dict, found: dict, same_data: bool, limit: float | None) -> None:
    report.equal(f"{what}: states", found["loaded"], wanted["states"])
    report.check(f"{what}: client state, counters and scale",
                 found["client"] == "from the script" and found["counters"][0] == SAVED_AT and found["loaded scale"] == wanted["scale"],
                 f"{found['client']!r} {found['counters']} {found['loaded scale']}")
    if "universal" in what and "resumed by real" in what:  # it loads no buffers there, and one group's decay for all
        away = max(abs(a - b) for a, b in zip(found["losses"], wanted["after"]))
        report.note(f"{what}: buffers, losses after", f"{found['seen']}, largest difference {away:.2e}")
        return
    report.check(f"{what}: buffers", found["seen"] == [SAVED_AT] * 3, str(found["seen"]))
    if not same_data:
        return
    report.near(f"{what}: losses after", found["losses"], wanted["after"], limit)
    if limit is not None:
        report.check(f"{what}: scales after", found["scales"] == wanted["scales after"], str(found["scales"]))


def universal(sides: Sides, report: Report, name: str, job: dict, straight: dict, folders: dict, limit: float) -> None:
    tag = f"global_step{SAVED_AT}"
    for saver in ("ours", "real"):
        for converter in ("real", "ours"):
            what = f"{name}: universal, saved by {saver}, converted by {converter}"
            target = f"{tag}_universal_{converter}"
            inject = ["--inject_missing_state"] if saver == "real" and job["stage"] != 3 else []
            sides.call(converter, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", str(folders[saver] / tag),
                       "--output_folder", str(folders[saver] / target), *inject)
            for reader, world in (("real", 2), ("ours", 3)):
                found = sides.train(reader, world, first=SAVED_AT, last=LAST, load=str(folders[saver]), tag=target,
                                    universal=True, **job)
                resume(report, f"{what}, resumed by {reader} on {world}", straight[saver], found,
                       world == 2, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deepspeed-python", required=True, help="a Python that has the real package")
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--precisions", default="fp32,bf16,fp16")
    parser.add_argument("--optimizers", default="torch,fused", help="torch's AdamW, and DeepSpeed's FusedAdam")
    parser.add_argument("--without-universal", dest="universal", action="store_false", help="half of the time")
    parser.add_argument("--keep", default=None, help="a folder for checkpoints and results; without it they are removed")
    options = parser.parse_args()
    optimizers = options.optimizers.split(",")
    if not set(optimizers) <= {"torch", "fused"}:
        parser.error("--optimizers: torch, fused or both")
    begin = time.monotonic()
    report = Report()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        sides = Sides(options.deepspeed_python, folder)
        print("real package:", sides.call("real", "-c", "import deepspeed; print(deepspeed.__version__)").split()[-1])
        for stage in (int(stage) for stage in options.stages.split(",")):
            for precision in options.precisions.split(","):
                for fused in (name == "fused" for name in optimizers):
                    try:
                        compare(sides, report, stage, precision, fused, options.universal)
                    except RuntimeError as error:
                        report.check(f"stage {stage} {precision}{' FusedAdam' * fused}", False, str(error))
    print(f"{report.failed} checks failed, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
