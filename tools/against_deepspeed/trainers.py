"""The scripts of the tests (Trainer, PEFT, TRL, accelerate, a plain loop, the launchers) under both packages. For developers.

    python tools/against_deepspeed/trainers.py --deepspeed-python PATH [--only t5] [--keep FOLDER]

The functions that tests/python calls in its ranks, each stage of each, on CPU ranks. Prints one line a run: the largest
difference of the numbers of both, relative where they are above 1, or how a side failed. Nothing here is held to a limit:
docs/from_deepspeed.md says what differs, and why. A folder that is kept is read again, so that a run can go on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from sides import ROOT, Sides

RANK = Path(__file__).with_name("trainer_rank.py")
TESTS = ROOT / "tests" / "python"
MODELS = ("gpt2", "llama", "llama-bf16", "llama-fp16", "t5", "vit", "mixtral", "qwen")


@dataclass
class Script:
    what: str
    file: str  # of tests/python, or trainer_rank itself
    name: str  # its function
    stages: tuple[int, ...] = (0, 1, 2, 3)
    arguments: dict = field(default_factory=dict)
    world: int = 2  # 0: not as ranks; the function starts its own


def trainer(what: str, kind: str, **options: object) -> Script:
    return Script(f"Trainer, {what}", "hf_runs", "train", arguments={"kind": kind, **options})


SCRIPTS = [
    trainer("GPT-2", "gpt2"),
    trainer("GPT-2, optimizer and schedule of the config", "gpt2", config_optimizer=True),
    trainer("Llama", "llama"),
    trainer("Llama, accumulation", "llama", gradient_accumulation_steps=3, max_steps=5),
    trainer("Llama, gradient checkpointing", "llama", gradient_checkpointing=True),
    trainer("Llama, bf16", "llama-bf16", bf16=True),
    trainer("Llama, fp16", "llama-fp16", fp16=True, max_steps=4),
    trainer("Llama, torch.compile", "llama", torch_compile=True, torch_compile_backend="aot_eager", max_steps=3),
    trainer("T5", "t5"),
    trainer("ViT", "vit"),
    trainer("Mixtral", "mixtral", max_steps=4),
    trainer("Qwen2-MoE", "qwen", max_steps=4),
    Script("Trainer, Llama with LoRA", "hf_trainer_test", "train_lora"),
    Script("Trainer, save and resume", "hf_trainer_test", "resume", (2, 3)),
    Script("Trainer, best model at the end", "hf_saving_test", "best_model", (2, 3)),
    Script("Trainer, saved by 2 ranks", "hf_saving_test", "save_half", (2, 3), {"folder": "OWN"}),
    Script("Trainer, resumed on 1 rank", "hf_saving_test", "resume_half", (2, 3), {"folder": "OWN"}, world=1),
    Script("Trainer, the other's resumed on 1 rank", "hf_saving_test", "resume_half", (2, 3), {"folder": "OTHERS"}, world=1),
    Script("Trainer, the other package's checkpoint resumed", "trainer_rank", "resume_same", (2, 3), {"folder": "OTHERS"}),
    Script("Trainer, generate", "hf_trainer_test", "generate", (1, 3)),
    Script("TRL, SFT", "trl_test", "sft", (1, 3)),
    Script("TRL, DPO", "trl_test", "dpo", (1, 3)),
    Script("accelerate launch", "trainer_rank", "accelerate_launch", (2, 3), world=0),
    Script("experts as modules", "trainer_rank", "an_expert_a_rank"),
    Script("plain loop", "trainer_rank", "of_the_loop", arguments={"name": "loop", "boundary_from_outside": False}),
    Script("plain loop, save and resume", "trainer_rank", "of_the_loop", arguments={"name": "save_and_resume", "folder": "OWN"}),
]
TESTS_AS_THEY_ARE = [
    ("deepspeed_loop_test", "test_the_launcher_starts_ranks_with_local_rank"),
    ("launcher_test", "test_ranks_get_cores_a_pid_file_and_modules"),
]


def launch(sides: Sides, side: str, script: Script, stages: list[int], out: Path) -> None:
    """One process a rank for several stages. What came of each is in the files that the ranks write."""
    own, others = (str(sides.folder / f"{name}_saved_{{stage}}") for name in (side, "ours" if side == "real" else "real"))
    arguments = {key: {"OWN": own, "OTHERS": others}.get(str(value), value) for key, value in script.arguments.items()}
    job = {"file": script.file, "name": script.name, "stages": stages, "arguments": arguments, "out": str(out)}
    ranks = ["-m", "torch.distributed.run", f"--nproc_per_node={script.world}", "--standalone"] if script.world else []
    try:
        sides.call(side, *ranks, str(RANK), json.dumps(job))
    except RuntimeError as error:
        Path(f"{out}.log").write_text(str(error))


def outcomes(sides: Sides, side: str, script: Script) -> dict[int, dict]:
    """By stage: a value or how it failed. After a failure the stages that are left get processes of their own."""
    kept = sides.folder / f"{side}, {script.what}.json"
    if kept.exists():
        return {int(stage): outcome for stage, outcome in json.loads(kept.read_text()).items()}
    found: dict[int, dict] = {}
    while left := [stage for stage in script.stages if stage not in found]:
        out = sides.folder / f"{side}, {script.what}, {left[0]}"
        launch(sides, side, script, left, out)
        said = [path.read_text().splitlines() for path in sorted(sides.folder.glob(f"{out.name}.rank*"))]
        for index, stage in enumerate(left):
            of_ranks = [json.loads(lines[index]) for lines in said if len(lines) > index]
            failed = [outcome for outcome in of_ranks if "failed" in outcome]
            failed.sort(key=lambda outcome: "Connection closed" in outcome["failed"])  # that one only saw another rank end
            if failed or len(of_ranks) < max(script.world, 1):
                found[stage] = failed[0] if failed else {"failed": "no answer in time"}
                break
            found[stage] = of_ranks[0]
    kept.write_text(json.dumps(found))
    return found


def flat(value: object) -> tuple[list[float | None], list[str]]:
    """The numbers of a value, None among them, and its texts."""
    if value is None:
        return [None], []
    if isinstance(value, str):
        return [], [value]
    if isinstance(value, (int, float)):
        return [float(value)], []
    parts = [flat(part) for part in (value.values() if isinstance(value, dict) else value)]
    return [number for numbers, _ in parts for number in numbers], [text for _, texts in parts for text in texts]


def apart(ours: float | None, real: float) -> float:
    """Relative for numbers above 1; infinite where one of them is no number."""
    if ours is None or math.isnan(ours) != math.isnan(real):
        return math.inf
    return 0.0 if math.isnan(real) else abs(ours - real) / max(1.0, abs(real))


def difference(real: dict, ours: dict) -> str:
    failures = [f"{side}: {outcome['failed']}" for side, outcome in (("real", real), ("ours", ours)) if "failed" in outcome]
    if failures:
        return "; ".join(failures)
    (a, a_texts), (b, b_texts) = flat(ours["value"]), flat(real["value"])
    norms = len(a) - len(b)  # the real package has none in fp32 at stage 0: ours are a loss, a norm, a loss, ...
    a = [*a[: 2 * norms : 2], *a[2 * norms :]] if norms > 0 else a
    if len(a) != len(b):
        return f"{len(a)} numbers of ours, {len(b)} of real"
    pairs = [(x, y) for x, y in zip(a, b) if y is not None]  # where the real one has none, there is nothing to compare
    away = max((apart(x, y) for x, y in pairs), default=0.0)
    texts = [f"{side} only: {sorted(set(some) - set(other))}"
             for side, some, other in (("ours", a_texts, b_texts), ("real", b_texts, a_texts)) if set(some) - set(other)]
    outcome = f"largest difference {away:.1e}" if away else "equal to the bit" if pairs else "nothing to compare"
    return "; ".join([f"{len(pairs)} numbers, {outcome}", *texts])


def as_they_are(sides: Sides, side: str, file: str, name: str) -> str:
    try:
        sides.call(side, str(TESTS / f"{file}.py"), name)
    except RuntimeError as error:
        return f"{side}: {str(error)[-600:]}"
    return f"{side}: passed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deepspeed-python", required=True, help="a Python that has the real package")
    parser.add_argument("--only", default="", help="scripts whose names hold this")
    parser.add_argument("--side", choices=("ours", "real"), help="runs this one alone and prints its numbers")
    parser.add_argument("--keep", default=None, help="a folder for results; without it they are removed")
    options = parser.parse_args()
    chosen = [options.side] if options.side else ["real", "ours"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.keep or made).resolve()
        os.environ |= {"SHOAL_TEST_MODELS": str(folder / "models"), "HF_HUB_OFFLINE": "1"}
        if not (folder / "models").exists():
            sys.path.insert(0, str(TESTS))
            from hf_runs import save_models

            save_models(str(folder / "models"), *MODELS)
        sides = Sides(options.deepspeed_python, folder)
        for script in SCRIPTS:
            if options.only not in script.what:
                continue
            of_sides = {side: outcomes(sides, side, script) for side in chosen}
            for stage in script.stages:
                found = [of_sides[side][stage] for side in chosen]
                print(f"{script.what}, stage {stage}: {difference(*found) if len(found) == 2 else found[0]}", flush=True)
        for file, name in TESTS_AS_THEY_ARE:
            if options.only in name:
                print(f"{name}: {'; '.join(as_they_are(sides, side, file, name) for side in chosen)}", flush=True)


if __name__ == "__main__":
    main()
