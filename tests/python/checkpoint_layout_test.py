"""Checkpoints in DeepSpeed's layout: the facts that a real DeepSpeed 0.19.8 reads and writes, and universal ones.

tools/against_deepspeed compares with the real package itself; these are the facts that it showed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, run, whole


class Frozen(Net):
    """Net with a frozen layer and a buffer."""

    def __init__(self) -> None:
        super().__init__(width=6, depth=2)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
        return super().forward(ids) + self.frozen.weight.sum()


def make(stage: int, universal: bool = False, kind: str = "torch", precision: str = "fp32", **zero):
    import deepspeed

    torch.manual_seed(0)
    model = Frozen()
    trained = [param for param in model.parameters() if param.requires_grad]
    groups = [{"params": trained[::2], "weight_decay": 0.1}, {"params": trained[1::2], "weight_decay": 0.0}]
    cls = torch.optim.AdamW if kind == "torch" else deepspeed.ops.adam.FusedAdam
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, **zero},
        "checkpoint": {"load_universal": universal},
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": precision == "fp16", "initial_scale_power": 4},
    }
    return deepspeed.initialize(model=model, optimizer=cls(groups, lr=1e-2), config=config)[0]


def train(engine, steps: int) -> None:
    for step in range(steps):
        engine.backward(engine(tokens(step, engine.global_rank)))
        engine.step()


def states(engine) -> dict[str, float]:
    from deepspeed import utils
    from shoal import state

    found = {}
    for name, param in engine.module.named_parameters():
        found[name] = state.read_param(param, "weight").double().sum().item()
        if param.requires_grad:
            for key in ("exp_avg", "exp_avg_sq"):
                found[f"{name} {key}"] = utils.safe_get_full_optimizer_state(param, key).double().abs().sum().item()
    return found | {"seen": engine.module.seen.tolist()}


def save(folder: str, stage: int, kind: str = "torch", precision: str = "fp32", **others) -> dict:
    zero = {"sub_group_size": 100} if stage == 3 else {}
    engine = make(stage, kind=kind, precision=precision, **zero)
    train(engine, 2)
    engine.save_checkpoint(folder, client_state={"epoch": 7}, **others)
    return states(engine)


def load(folder: str, stage: int, universal: bool = False, tag: str | None = None, **others) -> dict:
    engine = make(stage, universal, **others)
    path, client = engine.load_checkpoint(folder, tag=tag)
    assert path is not None and client["epoch"] == 7 and engine.global_steps == 2, (path, client)
    return states(engine)


def read(folder: str, name: str) -> dict:
    return torch.load(Path(folder, "global_step2", name), weights_only=False)


def test_files_hold_what_deepspeed_reads_back():
    import deepspeed  # noqa: F401  the classes in the files

    for stage in (1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            run(__file__, "save", 2, folder=folder, stage=stage)
            prefix = "zero_pp_rank_0_" if stage == 3 else ""
            model = read(folder, f"{prefix}mp_rank_00_model_states.pt")
            optimizers = [
                read(folder, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")["optimizer_state_dict"] for rank in range(2)
            ]
            check_model(model, stage)
            for rank, optimizer in enumerate(optimizers):
                check_optimizer(optimizer, model["param_shapes"], stage, rank)
            assert Path(folder, "latest").read_text() == "global_step2"
            assert os.access(Path(folder, "zero_to_fp32.py"), os.X_OK)


def check_model(model: dict, stage: int) -> None:
    assert set(model["module"]) == set(Frozen().state_dict()), "tied names and buffers too"
    assert model["module"]["seen"].tolist() == [2, 2, 2] and model["buffer_names"] == ["seen"]
    assert (model["module"]["frozen.weight"].numel() == 0) == (stage == 3)
    assert model["shared_params"] == {"head.weight": "embedding.weight"}
    assert list(model["frozen_param_shapes"]) == ["frozen.weight", "frozen.bias"]
    assert model["frozen_param_fragments"]["frozen.weight"].numel() == (18 if stage == 3 else 36)
    assert len(model["param_shapes"]) > 2 if stage == 3 else len(model["param_shapes"]) == 2
    assert model["dp_world_size"] == 2 and model["optimizer"] is None and model["epoch"] == 7
    assert model["universal_checkpoint_info"]["universal_checkpoint_version"] == 0.4


def check_optimizer(optimizer: dict, shapes: list, stage: int, rank: int) -> None:
    inner = optimizer["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]
    weights = optimizer["fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"]
    steps = [state["step"] for state in inner["state"].values()]
    assert all(torch.is_tensor(step) and step.item() == 2 for step in steps)
    assert len({step.data_ptr() for step in steps}) == len(steps), "a shared count would be raised once for each state"
    listed = [index for group in inner["param_groups"] for index in group["params"]]
    assert listed == list(range(len(shapes))) == list(inner["state"])
    assert [group["weight_decay"] for group in inner["param_groups"]] == [0.1, 0.0]
    for index, group in enumerate(shapes):
        numels = [torch.Size(shape).numel() for shape in group.values()]
        moment = inner["state"][index]["exp_avg"].numel()
        if stage == 3:
            assert weights[index].numel() == moment == sum(-(-numel // 2) for numel in numels)
            continue
        padding = -sum(numels) % 4
        assert optimizer["group_paddings"][index] == (padding if rank == 1 else 0)
        assert moment == (sum(numels) + padding) // 2, "states of the optimizer keep the padding"
        assert weights[index].numel() == moment - optimizer["group_paddings"][index], "weights do not"
        mapped = optimizer["param_slice_mappings"][index]
        assert sum(address.numel for address in mapped.values()) == weights[index].numel()


def test_deepspeeds_own_optimizers_count_in_integers():
    with tempfile.TemporaryDirectory() as folder:
        run(__file__, "save", 1, folder=folder, stage=2, kind="ours")
        inner = read(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt")["optimizer_state_dict"]["base_optimizer_state"]
        assert [state["step"] for state in inner["state"].values()] == [2, 2] == [g["step"] for g in inner["param_groups"]]
        assert all(group["bias_correction"] for group in inner["param_groups"]), "its FusedAdam takes it from the group"


# Kind of the optimizer, precision, and where DeepSpeed's stage 0 keeps fp32 weights.
PLAIN = (("torch", "fp32", None), ("ours", "fp32", None), ("torch", "bf16", "fp32_groups"), ("ours", "fp16", "fp32_groups_flat"))
MODEL_FILE = "mp_rank_00_model_states.pt"


def test_stage_0_has_all_states_in_the_models_file():
    import deepspeed  # noqa: F401  the classes in the file

    for kind, precision, masters in PLAIN:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "global_step2").mkdir()
            Path(folder, "global_step2", "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_text("of an earlier save")
            saved = run(__file__, "save", 2, folder=folder, stage=0, kind=kind, precision=precision)[0]
            assert sorted(os.listdir(Path(folder, "global_step2"))) == [MODEL_FILE, "shoal_files.json"]
            check_plain(read(folder, MODEL_FILE), kind, masters)
            options = {"kind": kind, "precision": precision}
            trips = ((2, 0), (1, 3)) if whole() or masters else ((1, 3),)
            for world, stage in trips:
                found = run(__file__, "load", world, folder=folder, stage=stage, **options)[0]
                assert found == saved, {key: (found[key], saved[key]) for key in saved if found[key] != saved[key]} | options
            if not (masters or whole()):
                continue
            source, target = Path(folder, "global_step2"), Path(folder, "global_step2_universal")
            command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
            subprocess.run([*command, "--input_folder", str(source), "--output_folder", str(target)], check=True, timeout=120)
            assert run(__file__, "load", 1, folder=folder, stage=2, universal=True, **options)[0] == saved


def check_plain(model: dict, kind: str, masters: str | None) -> None:
    optimizer = model["optimizer"]
    inner = optimizer["optimizer_state_dict"] if masters else optimizer
    shapes = [list(group.values()) for group in model["param_shapes"]]
    flat = masters == "fp32_groups_flat"
    numbers = [group["params"] for group in inner["param_groups"]]
    if flat:
        wanted = [[(sum(shape.numel() for shape in group),)] for group in shapes]
    else:
        wanted = [[tuple(shape) for shape in group] for group in shapes]
    assert [number for group in numbers for number in group] == list(range(sum(map(len, wanted)))) == list(inner["state"])
    for key in ("exp_avg", "exp_avg_sq"):
        assert [[tuple(inner["state"][number][key].shape) for number in group] for group in numbers] == wanted
    if masters:
        found = [[flat] for flat in optimizer[masters]] if flat else optimizer[masters]
        assert [[tuple(value.shape) for value in group] for group in found] == wanted
        assert all(value.dtype == torch.float32 for group in found for value in group)
        assert optimizer["cur_scale"] == (16 if flat else 1) and optimizer["dynamic_loss_scale"] == flat
    assert [group["weight_decay"] for group in inner["param_groups"]] == [0.1, 0.0]
    assert all(int(state["step"]) == 2 for state in inner["state"].values())
    assert all(torch.is_tensor(state["step"]) == (kind == "torch") for state in inner["state"].values())


def odd_groups(model: nn.Module, case: str) -> torch.optim.Optimizer:
    """Groups as people make them."""
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import FusedAdam

    every = list(model.parameters())
    trained = [param for param in every if param.requires_grad]
    frozen = [param for param in every if not param.requires_grad]
    if case == "frozen among them":
        return torch.optim.AdamW([{"params": every[::2]}, {"params": every[1::2], "weight_decay": 0.0}], lr=1e-2)
    if case == "all frozen in one":
        return torch.optim.AdamW([{"params": frozen}, {"params": trained}], lr=1e-2)
    if case == "all frozen in one, FusedAdam":
        return FusedAdam([{"params": frozen}, {"params": trained}], lr=1e-2)
    if case == "none in one":
        return torch.optim.AdamW([{"params": [], "lr": 1.0}, {"params": trained}], lr=1e-2)
    if case == "none in one, FusedAdam":
        return FusedAdam([{"params": [], "lr": 1.0}, {"params": trained}], lr=1e-2)
    if case == "outside of all":
        return torch.optim.AdamW(trained[:-2], lr=1e-2)
    if case == "outside of all, FusedAdam":
        return FusedAdam(trained[:-2], lr=1e-2)
    if case == "no states":
        return torch.optim.SGD(every, lr=1e-2)
    if case == "one number for all elements":
        return torch.optim.NAdam(trained[:-1], lr=1e-2)
    return DeepSpeedCPUAdagrad(trained, lr=1e-2)


# With the precisions that differ; "bf16 model" is a model of bf16 under a config that does not say so.
ODD = {
    "frozen among them": ("fp32", "bf16", "bf16 model"),
    "all frozen in one": ("fp32", "bf16"),
    "all frozen in one, FusedAdam": ("fp32", "bf16"),
    "none in one": ("fp32", "bf16"),
    "none in one, FusedAdam": ("fp32", "bf16"),
    "outside of all": ("fp32", "bf16"),
    "outside of all, FusedAdam": ("fp32", "bf16"),
    "no states": ("fp32",),
    "one number for all elements": ("fp32", "bf16"),
    "Adagrad": ("fp32",),
}


TRIPS = ((0, 0), (0, 3), (2, 0))  # the stage that saves, and the one that resumes


def odd_round_trips(folder: str) -> dict:
    """By case: whether runs that resume go on as the one that saved, and the names of states in the file of stage 0."""
    import deepspeed
    from shoal import state

    def begin(case: str, precision: str, stage: int):
        torch.manual_seed(0)
        model = Frozen().bfloat16() if precision == "bf16 model" else Frozen()
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
        config["bf16"] = {"enabled": precision == "bf16"}
        return deepspeed.initialize(model=model, optimizer=odd_groups(model, case), config=config)[0]

    def weights(engine) -> list:
        return [state.read_param(param, "weight").tolist() for param in engine.module.parameters()]

    def goes_on(case: str, precision: str, saved_at: int, resumed_at: int, place: str) -> bool:
        first, second = begin(case, precision, saved_at), begin(case, precision, resumed_at)
        train(first, 2)
        first.save_checkpoint(place)
        second.load_checkpoint(place)
        rates = [[group["lr"] for group in engine.optimizer.param_groups] for engine in (first, second)]
        for engine in (first, second):
            train(engine, 2)
        return weights(first) == weights(second) and rates[0] == rates[1]

    found = {}
    for case, precision in ((case, precision) for case, precisions in ODD.items() for precision in precisions):
        trips = TRIPS if whole() or precision == "fp32" else TRIPS[1:2]
        places = [os.path.join(folder, f"{case} {precision} {number}") for number in range(len(trips))]
        same = [goes_on(case, precision, *stages, place) for stages, place in zip(trips, places)]
        model = torch.load(Path(places[0], "global_step2", MODEL_FILE), weights_only=False)["optimizer"]
        states = model.get("optimizer_state_dict", model)["state"]
        found[f"{case}, {precision}"] = [same, sorted({key for state in states.values() for key in state})]
    return found


def test_stage_0_resumes_with_groups_of_any_kind():
    with tempfile.TemporaryDirectory() as folder:
        found = run(__file__, "odd_round_trips", 2, folder=folder)[0]
    assert all(all(same) for same, _ in found.values()), found
    assert found["no states, fp32"][1] == ["step"] and found["Adagrad, fp32"][1] == ["exp_avg_sq", "step"]
    assert "mu_product" in found["one number for all elements, fp32"][1]


def adagrad_under_another_name(folder: str, stage: int) -> bool:
    """Whether DeepSpeedCPUAdagrad reads what torch's class would have written."""
    import deepspeed
    from deepspeed import utils
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad

    sums = []
    for kind in (torch.optim.Adagrad, DeepSpeedCPUAdagrad):
        torch.manual_seed(0)
        model = Net()
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}}
        engine = deepspeed.initialize(model=model, optimizer=kind(model.parameters(), lr=1e-2), config=config)[0]
        if kind is torch.optim.Adagrad:
            train(engine, 2)
            engine.save_checkpoint(folder)
        else:
            engine.load_checkpoint(folder)
        sums.append([utils.safe_get_full_optimizer_state(param, "sum").tolist() for param in model.parameters()])
    return sums[0] == sums[1]


def test_adagrad_is_read_under_either_name():
    for stage in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            assert run(__file__, "adagrad_under_another_name", 1, folder=folder, stage=stage)[0]


def as_deepspeed_writes(folder: str, path: Path) -> None:
    """A checkpoint of stage 0 without what DeepSpeed does not write, and with the empty step that it counts in 16 bits (and
    here in fp32); FusedAdam's count is in a group's last parameter alone, and its masters want gradients."""
    model = read(folder, MODEL_FILE)
    for key in ("param_shapes", "frozen_param_shapes", "frozen_param_fragments"):
        del model[key]
    del model["applied_steps"], model["shoal_save"]
    model["shared_params"] = None
    optimizer = model["optimizer"]
    optimizer.pop("loss_scaler", None)
    for master in optimizer.get("fp32_groups_flat", []):
        master.requires_grad_(True)
    inner = optimizer.get("optimizer_state_dict", optimizer)
    for group in inner["param_groups"]:
        for number in group["params"]:
            last = number == group["params"][-1] or torch.is_tensor(inner["state"][number]["step"])
            inner["state"][number]["step"] = inner["state"][number]["step"] + 1 if last else 0
    torch.save(model, path)


def load_nameless(folder: str, **others) -> list:
    """The states, the counts of steps here and in a run that resumes what this one saves, and the loss scale."""
    found = load(folder, **others)
    engine, again = make(**others), make(**others)
    engine.load_checkpoint(folder)
    engine.save_checkpoint(folder, tag="again", save_latest=False)
    again.load_checkpoint(folder, tag="again")
    return [found, [each._shoal.core.progress().applied_steps for each in (engine, again)], engine.cur_scale]


def load_otherwise(folder: str) -> dict:
    """What becomes of a checkpoint without names in an optimizer whose groups are in another order."""
    import deepspeed
    import shoal

    torch.manual_seed(0)
    model = Frozen()
    trained = [param for param in model.parameters() if param.requires_grad]
    groups = [{"params": trained[1::2], "weight_decay": 0.0}, {"params": trained[::2], "weight_decay": 0.1}]
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)[0]
    try:
        engine.load_checkpoint(folder)
    except shoal.Error as error:
        return {"error": str(error)}
    return states(engine)


def load_into_one_group(folder: str) -> str:
    import deepspeed
    import shoal

    model = Frozen()
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}}
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
    try:
        engine.load_checkpoint(folder)
    except shoal.Error as error:
        engine.load_checkpoint(folder, load_optimizer_states=False)
        return str(error)
    return ""


def test_a_deepspeeds_stage_0_is_read_by_the_order_of_groups():
    import deepspeed  # noqa: F401  the classes in the file

    for kind, precision, _ in PLAIN:
        with tempfile.TemporaryDirectory() as folder:
            options = {"kind": kind, "precision": precision}
            saved = run(__file__, "save", 1, folder=folder, stage=0, **options)[0]
            as_deepspeed_writes(folder, Path(folder, "global_step2", MODEL_FILE))
            found, steps, scale = run(__file__, "load_nameless", 3, folder=folder, stage=3, **options)[0]
            assert found == saved and steps == [3, 3] and scale == (16 if precision == "fp16" else 1), (options, steps, scale)
            if kind == "ours":
                message = run(__file__, "load_into_one_group", 1, folder=folder)[0]
                assert "writes no names" in message and "load_optimizer_states=False" in message, message
            elif precision == "fp32":
                assert "writes no names" in run(__file__, "load_otherwise", 1, folder=folder)[0]["error"]
                command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
                ends = ["--input_folder", str(Path(folder, "global_step2")), "--output_folder", str(Path(folder, "universal"))]
                done = subprocess.run([*command, *ends], capture_output=True, text=True, timeout=120)
                assert done.returncode != 0 and "have no names" in done.stderr, done.stderr


def save_scaler(folder: str, fp16: dict) -> None:
    import deepspeed

    torch.manual_seed(0)
    fp16 = {"enabled": True, **fp16}
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}, "fp16": fp16, "zero_optimization": {"stage": 2}}
    engine = deepspeed.initialize(model=Net(), config=config)[0]
    train(engine, 2)
    engine.save_checkpoint(folder)


def test_the_loss_scaler_is_saved_with_its_settings():
    import deepspeed  # noqa: F401  the classes in the file

    dynamic = {"initial_scale_power": 4, "loss_scale_window": 7, "hysteresis": 3, "min_loss_scale": 0.5, "consecutive_hysteresis": True}
    for fp16, wanted in (
        (dynamic, {"cur_scale": 16, "scale_window": 7, "delayed_shift": 3, "min_scale": 0.5, "consecutive_hysteresis": True}),
        ({"loss_scale": 8}, {"cur_scale": 8, "dynamic": False}),
    ):
        with tempfile.TemporaryDirectory() as folder:
            run(__file__, "save_scaler", 1, folder=folder, fp16=fp16)
            saved = read(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt")["optimizer_state_dict"]
            scaler = vars(saved["loss_scaler"])
            assert {key: scaler[key] for key in wanted} == wanted, scaler
            assert saved["dynamic_loss_scale"] == scaler["dynamic"] == ("loss_scale" not in fp16)


def test_universal_checkpoints_are_written_and_read_at_any_stage():
    for stage, other in ((2, 3), (3, 1)):
        with tempfile.TemporaryDirectory() as folder:
            saved = run(__file__, "save", 2, folder=folder, stage=stage)[0]
            source, target = Path(folder, "global_step2"), Path(folder, "global_step2_universal")
            command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
            subprocess.run([*command, "--input_folder", str(source), "--output_folder", str(target)], check=True, timeout=120)
            assert Path(folder, "latest_universal").read_text() == "global_step2_universal"
            part = torch.load(target / "zero" / "blocks.0.up.weight" / "exp_avg.pt", weights_only=False)
            assert part["param"].shape == (24, 6) and part["cat_dim"] == 0
            assert torch.load(target / "zero" / "scale" / "step.pt", weights_only=False).item() == 2
            common = torch.load(target / "zero" / "optimizer_state.pt", weights_only=False)
            assert common["optimizer_state_dict"]["state"][0]["step"].item() == 2 and len(common["param_groups"]) == 2
            assert "loss_scaler" in common and "base_optimizer_state" not in common
            for name in ("blocks.0.up.weight", "norm.bias"):  # as DeepSpeed's converter writes them for stage 3
                path = target / "zero" / name / "exp_avg_sq.pt"
                torch.save(torch.load(path, weights_only=False)["param"].flatten(), path)
            (target / "shoal_files.json").unlink()
            found = run(__file__, "load", 1, folder=folder, stage=other, universal=True)[0]
            assert found == saved, {key: (found[key], saved[key]) for key in saved if found[key] != saved[key]}
            assert run(__file__, "load", 1, folder=folder, stage=other, tag="global_step2_universal")[0] == saved


def test_slices_are_read_by_their_own_lists():
    """round_robin_gradients and parameter_alignment of a real DeepSpeed move parameters within a slice."""
    from deepspeed.runtime.checkpoint_saved import Saved
    from deepspeed.utils.tensor_fragment import fragment_address as at

    with tempfile.TemporaryDirectory() as folder:
        shapes = {"a": torch.Size([3]), "b": torch.Size([2, 2])}
        torch.save({"module": {}, "param_shapes": [shapes]}, Path(folder, "mp_rank_00_model_states.pt"))
        slices = [(torch.tensor([10.0, 11, 12, 0, 20]), {"a": at(3, 0), "b": at(1, 4)}), (torch.tensor([0, 21.0, 22, 23]), {"b": at(3, 1)})]
        for rank, (values, mapping) in enumerate(slices):
            inner = {"zero_stage": 2, "single_partition_of_fp32_groups": [values], "param_slice_mappings": [mapping]}
            torch.save({"optimizer_state_dict": inner}, Path(folder, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
        wholes = Saved(folder).wholes(None)
        assert wholes["a"].tolist() == [10, 11, 12] and wholes["b"].tolist() == [[20, 21], [22, 23]], wholes


def save_without_frozen(folder: str) -> list:
    import shoal

    engine = make(3)
    train(engine, 1)
    engine.save_checkpoint(folder, client_state={"epoch": 7}, exclude_frozen_parameters=True)
    names = sorted(engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=True) or [])
    try:
        engine.load_checkpoint(folder)
        message = ""
    except shoal.Error as error:
        message = str(error)
    return [message, engine.load_checkpoint(folder, load_module_strict=False)[1]["epoch"], names]


def test_frozen_parameters_can_be_left_out():
    with tempfile.TemporaryDirectory() as folder:
        message, epoch, names = run(__file__, "save_without_frozen", 1, folder=folder)[0]
        assert "frozen.bias" in message and "load_module_strict=False" in message and epoch == 7, message
        assert names and not [name for name in names if name.startswith("frozen")], names
        model = torch.load(Path(folder, "global_step1", "zero_pp_rank_0_mp_rank_00_model_states.pt"), weights_only=False)
        assert not model["frozen_param_shapes"] and "frozen.weight" not in model["module"]


def test_zero_to_fp32_cuts_large_weights_into_files():
    from deepspeed.utils import zero_to_fp32

    assert [zero_to_fp32.nbytes_of(size) for size in ("5GB", "2 MiB", "10kb", 7)] == [5 * 10**9, 2 * 2**20, 10**4, 7]
    with tempfile.TemporaryDirectory() as folder:
        run(__file__, "save", 2, folder=folder, stage=3)
        whole = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder)
        assert whole["head.weight"] is whole["embedding.weight"] and set(whole) == set(Frozen().state_dict())
        for safe, stem, suffix in ((False, "pytorch_model", ".bin"), (True, "model", ".safetensors")):
            out = Path(folder, "out", suffix[1:])
            command = [sys.executable, str(Path(folder, "zero_to_fp32.py")), folder, str(out), "--max_shard_size", "1KB"]
            subprocess.run([*command, *(["--safe_serialization"] if safe else [])], check=True, timeout=120)
            index = json.loads(Path(out, f"{stem}{suffix}.index.json").read_text())["weight_map"]
            assert len(set(index.values())) > 2 and ("head.weight" in index) == (not safe), index
            for name, file in index.items():
                assert torch.equal(_read_one(Path(out, file), name), whole[name]), name


def _read_one(path: Path, name: str) -> torch.Tensor:
    if path.suffix == ".bin":
        return torch.load(path)[name]
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.get_tensor(name)


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
