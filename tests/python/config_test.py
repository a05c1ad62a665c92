"""Configs through the package `deepspeed`: no key of the optimizer is dropped in silence, files are named with their lines,
classes of torch run by their names, fp16.auto_cast and torch_autocast cast, buffers get their dtype, errors are caught by the
names that DeepSpeed's users know, and a config can be read as DeepSpeed's objects."""

from __future__ import annotations

import base64
import importlib.util
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

# What the section holds, and what the message says. Through both doors it is the same.
REFUSED = [
    ({"type": "AdamW", "params": {"amsgrad": True}}, "[optimizer.params.amsgrad] true is not supported"),
    ({"type": "Adam", "params": {"maximize": True}}, "[optimizer.params.maximize] true is not supported"),
    ({"type": "Adam", "params": {"max_grad_norm": 1.0}}, 'Write "gradient_clipping" at the top level'),
    ({"type": "AdamW", "params": {"wieght_decay": 0.1}}, '[optimizer.params.wieght_decay] unknown key. Did you mean "weight_decay"?'),
    ({"type": "AdamW", "parms": {"lr": 1e-3}}, '[optimizer.parms] unknown key. Did you mean "params"?'),
    ({"type": "AdamW", "params": {"momentum": 0.9}}, "[optimizer.params.momentum] AdamW does not take this"),
    ({"type": "AdamW", "params": {"lr": "1e-3"}}, "Write 1e-3 without quotes."),
    ({"type": "AdamW", "params": {"adam_w_mode": False}}, "[optimizer.params.adam_w_mode] false contradicts"),
    ({"type": "Adagrad", "params": {"lr_decay": 0.1}}, "[optimizer.params.lr_decay] 0.1 is not supported"),
    ({"type": "AdamW", "params": []}, "[optimizer.params] [] is not an object"),
    ({"type": "AdamW", "legacy_fusion": True}, "[optimizer.legacy_fusion] true is not supported"),
    ({"type": "Muon"}, "[optimizer.type] Muon is not supported yet"),
    ({"type": "RMSProb"}, '[optimizer.type] "RMSProb" is not known'),
    ("AdamW", '[optimizer] "AdamW" is not an object'),
]

# These come from classes of torch, of which the core knows nothing.
REFUSED_BY_TORCH = [
    ({"type": "RMSprop", "params": {"aplha": 0.9}}, '[config optimizer.params.aplha] torch.optim.RMSprop does not take this. Did you mean "alpha"?'),
    ({"type": "RMSprop", "params": {"max_grad_norm": 1.0}}, "[config optimizer.params.max_grad_norm]"),
    ({"type": "RMSprop", "params": {"lr": -1.0}}, "torch.optim.RMSprop refuses them: Invalid learning rate: -1.0."),
    ({"type": "RMSprop", "parms": {}}, '[optimizer.parms] unknown key. Did you mean "params"?'),
    ({"type": "RMSprop", "legacy_fusion": True}, "[optimizer.legacy_fusion] true is not supported"),
    ({"type": "LBFGS"}, "[optimizer] LBFGS does not take flat parts"),
    ({"type": "Adam", "params": {"torch_adam": True, "bias_correction": False}}, "[config optimizer.params.bias_correction]"),
    ({"type": "Adam", "params": {"torch_adam": True, "wieght_decay": 0.1}}, 'Did you mean "weight_decay"?'),
    ({"params": {"lr": 1e-3}}, "[config optimizer.type] is not given"),
]

# What is off, or says what holds anyway; and what the optimizer's group then has.
ACCEPTED = [
    ({"type": "AdamW", "params": {"amsgrad": False, "maximize": False, "fused": True, "foreach": None}}, {"weight_decay": 0.0}),
    ({"type": "AdamW", "params": {"fp32_optimizer_states": False}}, {"weight_decay": 0.0}),
    ({"type": "adam", "params": {"fp32_optimizer_states": True, "max_grad_norm": None, "betas": (0.9, 0.95)}}, {"betas": (0.9, 0.95)}),
    ({"type": "AdamW", "legacy_fusion": False, "params": {"lr": "auto", "eps": 1e-6}}, {"lr": 1e-3, "eps": 1e-6}),
    ({"type": "AdamW", "params": "auto"}, {"lr": 1e-3}),
    ({"type": "Lion"}, {"betas": (0.9, 0.999)}),
    ({"type": "AdamW", "params": {"torch_adam": True, "bias_correction": True, "max_grad_norm": None}}, {"weight_decay": 0.01}),
    ({"type": "Adam", "params": {"torch_adam": True, "adam_w_mode": False}}, {"weight_decay": 0}),
    ({"type": "AdamW", "torch_adam": True, "params": {"torch_adam": 1}}, {"weight_decay": 0.01}),
    ({"type": "RMSprop", "params": {"alpha": 0.5, "lr": "auto"}}, {"alpha": 0.5, "lr": 1e-2}),
]


def config(section=None, **others) -> dict:
    return {"train_batch_size": 1, **({} if section is None else {"optimizer": section}), **others}


def through_deepspeed(given, **named):
    import deepspeed

    return deepspeed.initialize(model=nn.Linear(4, 3), config=given, **named)[0]


def test_keys_of_the_optimizer_are_refused_by_name_as_the_native_door_does():
    import shoal

    for section, words in REFUSED:
        told = message(lambda: through_deepspeed(config(section)))
        assert words in told, (section, told)
        assert told == message(lambda: shoal.initialize(nn.Linear(4, 3), config(section))), section
        assert "line 1" not in told, f"a dict has no lines: {told}"


def test_keys_that_a_class_of_torch_does_not_take_are_refused_by_name():
    for section, words in REFUSED_BY_TORCH:
        told = message(lambda: through_deepspeed(config(section)))
        assert words in told, (section, told)


def test_what_changes_nothing_is_accepted():
    for section, expected in ACCEPTED:
        engine = through_deepspeed(config(section))
        group = engine.optimizer.param_groups[0]
        assert {key: group[key] for key in expected} == expected, (section, group)
        engine.destroy()


def three_steps(section: dict, names: list[str], folder: str) -> tuple[list, dict]:
    """Weights and states of these names after two steps, a save, and a third step in an engine that has loaded it."""
    from deepspeed.utils import safe_get_full_optimizer_state

    def trained(steps: int, loads: bool):
        torch.manual_seed(1)
        engine = through_deepspeed(config(section))
        assert not loads or engine.load_checkpoint(folder, tag="two")[0] is not None
        for _ in range(steps):
            engine.backward(engine(torch.ones(1, 4)).square().sum())
            engine.step()
        return engine

    first = trained(2, loads=False)
    first.save_checkpoint(folder, tag="two")
    first.destroy()
    engine = trained(1, loads=True)
    params = list(engine.module.parameters())
    states = {name: [safe_get_full_optimizer_state(param, name).clone() for param in params] for name in names}
    weights = [param.detach().clone() for param in params]
    engine.destroy()
    return weights, states


def test_every_optimizer_of_the_core_trains_and_resumes():
    import deepspeed.runtime.optimizers as optimizers
    from shoal import _core

    rows = _core.optimizers()
    assert {"AdamW", "SGD"} <= {row.name for row in rows}
    for row in rows:
        extra = {"momentum": 0.9} if row.takes("momentum") else {}
        section = {"type": row.name, "params": {"lr": 1e-2} | extra}
        found = []
        for classes in (optimizers._CLASSES, {}):  # DeepSpeed's classes hold the groups, and ours that any optimizer has
            kept, optimizers._CLASSES = optimizers._CLASSES, classes
            with tempfile.TemporaryDirectory() as folder:
                found.append(three_steps(section, row.state_names, folder))
            optimizers._CLASSES = kept
        (weights, states), (others, other_states) = found
        torch.manual_seed(1)
        assert all(not torch.equal(*pair) for pair in zip(weights, nn.Linear(4, 3).parameters())), row.name
        assert all(value.abs().sum() > 0 for values in states.values() for value in values), row.name
        assert all(torch.equal(*pair) for pair in zip(weights, others)), row.name
        assert all(torch.equal(*pair) for name in states for pair in zip(states[name], other_states[name])), row.name


def test_sections_that_are_not_in_use_are_warned_of():
    import shoal

    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    flat = lambda basic: torch.optim.lr_scheduler.LambdaLR(basic, lambda step: 1.0)  # noqa: E731
    schedule = {"scheduler": {"type": "WarmupLR", "params": {}}}
    through_deepspeed(config({"type": "AdamW"}), optimizer=torch.optim.SGD).destroy()
    through_deepspeed(config({"type": "AdamW"}, **schedule), lr_scheduler=flat).destroy()
    through_deepspeed(config(**schedule)).destroy()
    logging.getLogger("DeepSpeed").removeHandler(handler)
    for words in ("[config optimizer] has no effect: an optimizer was passed in.",
                  "[config scheduler] has no effect: a schedule was passed in.",
                  "[config scheduler] has no effect: there is no optimizer."):  # fmt: skip
        assert heard.count(words) == 1, (words, heard)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = nn.Linear(4, 3)
        shoal.initialize(model, config({"type": "AdamW"}), optimizer=torch.optim.RMSprop(model.parameters())).destroy()
    assert any("[config optimizer] has no effect" in str(each.message) for each in caught), caught


def test_a_schedule_of_torch_has_no_keys_beside_its_own():
    section = {"type": "StepLR", "params": {"step_size": 1, "gamma": 0.5}}
    engine = through_deepspeed(config({"type": "SGD"}, scheduler=section))
    assert type(engine.lr_scheduler) is torch.optim.lr_scheduler.StepLR and engine.lr_scheduler.gamma == 0.5
    engine.destroy()
    told = message(lambda: through_deepspeed(config({"type": "SGD"}, scheduler={**section, "parms": {}})))
    assert '[scheduler.parms] unknown key. Did you mean "params"?' in told, told


def test_auto_in_our_own_section_is_a_value():
    for word in ("auto", "fit"):
        told = message(lambda word=word: through_deepspeed(config({"type": "AdamW"}, shoal={"placement": word, "host_budget": 8})))
        assert "no placement fits: a rank may take 8 B of the host" in told, told
    budget = {"placement": "fit", "host_budget": 1 << 30}
    through_deepspeed(config({"type": "AdamW"}, shoal=budget)).destroy()


# Text of a file, and what the message says after "[config <path>".
FILES = {
    "a key that is given twice": (
        '{"train_batch_size": 1,\n "optimizer": {"type": "AdamW", "params": {"lr": 1,\n  "lr": 2}}}',
        ' line 3, column 3] the key "optimizer.params.lr" is given twice, first on line 2. Remove one of them.',
    ),
    "mistakes in a file that is not translated": (
        '// mine\n{"train_batch_size": 1,\n "optimizer": {"type": "AdamW", "parms": {}},\n "zero_optimization": {"stage": 4}}',
        '] 2 mistakes:\n  [line 3, optimizer.parms] unknown key. Did you mean "params"?\n  [line 4, zero_optimization.stage] 4 is',
    ),
    "mistakes in a file that is": (
        '{"train_batch_size": "auto",\n "zero_optimization": {"stage": 4}}',
        "] 1 mistake:\n  [zero_optimization.stage] 4 is not a ZeRO stage.",
    ),
    "a class of torch": (
        '{"train_batch_size": 1, "optimizer": {"type": "RMSprop", "params": {"aplha": 1}}}',
        " optimizer.params.aplha] torch.optim.RMSprop does not take this.",
    ),
    "a list": ("[1, 2]", "] the text is not a JSON object."),
}


def test_mistakes_in_a_file_name_it_and_their_lines():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ds.json")
        for name, (text, words) in FILES.items():
            Path(path).write_text(text)
            told = message(lambda: through_deepspeed(path))
            assert told.startswith(f"[config {path}{words}"), (name, told)


def test_a_key_given_twice_is_an_error_through_every_door():
    import deepspeed
    import shoal

    text = '{"train_batch_size": 1,\n "bf16": {"enabled": true},\n "bf16": {"enabled": false}}'
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ds.json")
        Path(path).write_text(text)
        model = nn.Linear(4, 3)
        calls = {
            "deepspeed.initialize, a path": lambda: through_deepspeed(path),
            "deepspeed.initialize, a text": lambda: through_deepspeed(text),
            "zero.Init": lambda: deepspeed.zero.Init(config_dict_or_path=path),
            "shoal.initialize": lambda: shoal.initialize(model, path),
            "shoal.initialize with an optimizer": lambda: shoal.initialize(
                model, path, optimizer=torch.optim.RMSprop(model.parameters())
            ),
        }
        for name, call in calls.items():
            told = message(call)
            assert "bf16" in told and "line 3" in told and "given twice, first on line 2" in told, (name, told)
            assert path in told or name.endswith("a text"), (name, told)


SECTIONS = {
    "RMSprop": {"lr": 1e-3, "momentum": 0.5, "centered": True},
    "NAdam": {"lr": 1e-2, "betas": [0.8, 0.9]},
    "AdamW": {"lr": 1e-2, "amsgrad": True, "torch_adam": True},
}


def losses(stage: int, given, optimizer=None) -> list[float]:
    import deepspeed

    torch.manual_seed(0)
    model = Net()
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    asked = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero}
    asked["scheduler"] = {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 3}}
    if given is not None:
        asked["optimizer"] = given
    engine = deepspeed.initialize(model=model, config=asked, optimizer=optimizer)[0]
    found = []
    for step in range(4):
        loss = engine(tokens(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        found += [loss.item(), engine.get_lr()[0]]
    engine.destroy()
    return found


def by_name_and_passed_in() -> dict:
    found = {}
    for name, params in SECTIONS.items():
        options = {key: value for key, value in params.items() if key != "torch_adam"}
        make = lambda parts: getattr(torch.optim, name)(parts, **options)  # noqa: B023, E731
        section = {"type": name, "params": params}
        found[name] = [losses(0, section), losses(3, section), losses(3, None, make)]
    found["plain"] = losses(0, {"type": "SGD", "params": {"lr": 1e-2}})
    return found


def test_a_class_of_torch_runs_by_its_name_as_one_that_is_passed_in():
    for found in run(__file__, "by_name_and_passed_in", 2):
        plain = found.pop("plain")
        for name, (first, third, passed) in found.items():
            assert first == third == passed, (name, first, third, passed)
            assert first != plain, name


class Regression(nn.Module):
    """Takes floats by position and inside a dict, and remembers the dtypes that came."""

    def __init__(self):
        super().__init__()
        self.up, self.out = nn.Linear(8, 32), nn.Linear(32, 1)
        self.seen: list[str] = []

    def forward(self, x: torch.Tensor, batch: dict) -> torch.Tensor:
        self.seen = [str(value.dtype) for value in (x, batch["pair"][0], batch["index"])]
        wanted = batch["pair"][0][batch["index"]]
        return nn.functional.mse_loss(self.out(torch.relu(self.up(x)))[batch["index"]].float(), wanted.float())


def auto_cast(stage: int, fp16: dict, steps: int) -> dict:
    import deepspeed

    torch.manual_seed(0)
    model = Regression()
    asked = {"train_micro_batch_size_per_gpu": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "fp16": fp16}
    asked["zero_optimization"] = {"stage": stage, "stage3_param_persistence_threshold": 0}
    engine = deepspeed.initialize(model=model, config=asked)[0]
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(int(os.environ["RANK"])))
    batch = {"pair": (x[:, :1].sin(),), "index": torch.arange(15, -1, -1)}
    losses = []
    for _ in range(steps):
        loss = engine(x, batch=batch)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    found = {"losses": losses, "seen": model.seen, "skipped": engine.skipped_steps, "x": str(x.dtype)}
    engine.destroy()
    return found


def auto_casts() -> dict:
    by_accelerate = {"enabled": True, "auto_cast": True}  # what accelerate writes where it finds no section
    return {
        "stages": [auto_cast(stage, by_accelerate, 30) for stage in (0, 3)],
        "off": auto_cast(3, {"enabled": False, "auto_cast": True}, 1)["seen"],
        "without": message(lambda: auto_cast(0, {"enabled": True, "auto_cast": False}, 1)),
    }


def test_auto_cast_casts_what_is_passed_to_forward_and_trains():
    half, whole, integer = "torch.float16", "torch.float32", "torch.int64"
    for found in run(__file__, "auto_casts", 2):
        first, third = found["stages"]
        assert first == third and first["seen"] == [half, half, integer] and first["x"] == whole, found
        assert first["losses"][-1] < 0.5 * first["losses"][0] and first["skipped"] < 5, first
        assert found["off"] == [whole, whole, integer], found
        assert "dtype" in found["without"], f"half weights took float inputs: {found['without']}"


def heard_by_the_logger(call) -> list[str]:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    call()
    logging.getLogger("DeepSpeed").removeHandler(handler)
    return heard


def test_a_typo_at_the_top_level_gets_the_key_that_was_meant():
    heard = heard_by_the_logger(lambda: through_deepspeed(config(gradient_acumulation_steps=1, stage=3)).destroy())
    known = "is not a key that Shoal knows, and is ignored."
    assert f'[config gradient_acumulation_steps] {known} Did you mean "gradient_accumulation_steps"?' in heard, heard
    assert f'[config stage] {known} It belongs to "zero_optimization".' in heard, heard


def test_errors_of_a_config_are_caught_as_existing_code_catches_them():
    import deepspeed
    import shoal
    from deepspeed.runtime.config import DeepSpeedConfigError

    wrong = [
        lambda: through_deepspeed(config(zero_optimization={"stage": 4})),
        lambda: through_deepspeed(config(elasticity={"enabled": True})),
        lambda: through_deepspeed(config({"type": "RMSprop", "params": {"aplha": 1}})),
        lambda: through_deepspeed({"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2}),
        lambda: through_deepspeed("/no/such/file.json"),
        lambda: through_deepspeed('{"train_batch_size": 1,, }'),
        lambda: deepspeed.zero.Init(config_dict_or_path="/no/such/file.json"),
        lambda: through_deepspeed(config(torch_autocast={"enabled": True, "dtype": "float8"})),
        lambda: through_deepspeed(config(data_types={"buffer_dtype": "fp7"})),
    ]
    for number, call in enumerate(wrong):
        for kind in (DeepSpeedConfigError, ValueError, AssertionError, shoal.Error, RuntimeError):
            try:
                call()
            except kind as error:
                assert str(error).startswith("[config"), (number, error)
            else:
                raise AssertionError(f"number {number} was accepted")


# Shapes that people write, and what the engine then has.
SHAPES = [
    ({"zero_optimization": True}, {"stage": 1}),
    ({"zero_optimization": {"stage": 2, "cpu_offload": 1}}, {"stage": 2, "offloads_states": True}),
    ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}, "overlap_comm": 1}}, {"stage": 2}),
    ({"bf16": {"enabled": 1, "check_grad_overflow": False}, "tensorboard": {"enabled": False}, "wandb": {"enabled": 0}}, {}),
    ({"flops_profiler": {"enabled": True, "profile_step": 1}, "comms_logger": {"enabled": True}, "csv_monitor": {}}, {}),
    ({"activation_checkpointing": {"partition_activations": True, "number_checkpoints": 4}, "sparse_gradients": True}, {}),
    ({"compile": {"deepcompile": True, "backend": "inductor"}, "pipeline": {"stages": "auto"}, "dump_state": True}, {}),
    ({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": False}}}, "elasticity": {}}, {}),
    ({"aio": {"thread_count": 1, "use_gds": False}, "zero_optimization": {"elastic_checkpoint": True}}, {}),
    ({"fp16": {"enabled": 0, "auto_cast": 1}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 14745.6}}, {}),
    ({"managed_gradient_accumulation": True, "gradient_allreduce_op": "sum", "prescale_gradients": True}, {}),
    ({"shoal": {"placement": "fit", "host_budget": "1GiB"}, "log_level": "info", "memory_breakdown": True}, {}),
]


def test_shapes_that_people_write_are_taken():
    for given, expected in SHAPES:
        engine = through_deepspeed(config({"type": "AdamW"}, **given))
        assert engine._config.zero_config.stage == engine.zero_optimization_stage(), given
        assert {key: getattr(engine.core_config, key) for key in expected} == expected, given
        engine.destroy()


def test_hjson_is_read_from_files_and_base64():
    text = "train_batch_size: 2\n# sharded\nzero_optimization: {\n  stage: 3\n}\noptimizer: {type: 'SGD', params: {lr: 0.5}}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ds.hjson")
        Path(path).write_text(text)
        for given in (path, base64.urlsafe_b64encode(text.encode()).decode(), "{" + text + "}"):
            engine = through_deepspeed(given)
            assert engine.zero_optimization_stage() == 3 and engine.get_lr() == [0.5] and engine.train_batch_size() == 2
            engine.destroy()
        Path(path).write_text(text.replace("stage: 3", "stage: three"))
        told = message(lambda: through_deepspeed(path))
        assert told.startswith(f"[config {path}] 1 mistake:\n  [line 4, zero_optimization.stage] \"three\" has"), told


def test_a_config_can_be_read_as_deepspeeds_objects():
    from deepspeed.monitor.config import get_monitor_config
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig, ZeroStageEnum
    from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig, OffloadDeviceEnum

    read = DeepSpeedConfig({
        "train_batch_size": 8, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "gradient_clipping": "auto",
        "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e6, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "wandb": {"enabled": True, "project": "x"},
    })  # fmt: skip
    assert (read.train_batch_size, read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps) == (8, 4, 2)
    zero = read.zero_config
    assert zero.stage == ZeroStageEnum.weights and zero.prefetch_bucket_size == 5_000_000 and zero.overlap_comm is True
    assert zero.offload_optimizer.device == OffloadDeviceEnum.cpu and zero.offload_param is None
    assert zero.model_persistence_threshold == sys.maxsize and zero.leaf_module.names == []
    assert read.bfloat16_config == DeepSpeedBF16Config(enabled=True) and not read.float16_config.enabled
    assert read.gradient_clipping == 1.0 and read.optimizer_name == "adamw" and read.optimizer_params == {"lr": 0.1}
    assert read.monitor_config.enabled and read.monitor_config.wandb.project == "x"
    assert not get_monitor_config({}).enabled
    assert DeepSpeedFP16Config().dynamic_loss_scale_args()["init_scale"] == 2**16
    assert DeepSpeedZeroConfig(cpu_offload=True).offload_optimizer == DeepSpeedZeroOffloadOptimizerConfig(device="cpu")
    for wrong in ({"stage": 4}, {"stge": 1}, {"reduce_bucket_size": 0}, {"overlap_comm": "perhaps"}):
        assert "[config DeepSpeedZeroConfig." in message(lambda wrong=wrong: DeepSpeedZeroConfig(**wrong)), wrong
    assert "needs to be provided" in message(lambda: DeepSpeedConfig({}))
    engine = through_deepspeed({"optimizer": {"type": "SGD"}})
    assert engine._config.train_micro_batch_size_per_gpu == 1 and engine._config.zero_config.stage == 0
    engine.destroy()


def test_the_tool_says_of_a_config_whether_it_is_taken():
    path = Path(__file__).parents[2] / "tools" / "check_configs" / "__main__.py"
    spec = importlib.util.spec_from_file_location("check_configs", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    schedule = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}
    assert tool.mistakes_of(config({"type": "AdamW", "params": "auto"}, scheduler=schedule)) == []
    assert tool.mistakes_of({"train_batch_size": 96, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4}) == []
    (told,) = tool.mistakes_of(config(autotuning={"enabled": True}))
    assert told.startswith("[autotuning] not supported yet. `shoal plan`"), told


class Buffered(nn.Module):
    _keep_in_fp32_modules_strict = ["bias_*"]

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        for name in ("table", "bias_of_router"):
            self.register_buffer(name, torch.ones(3, dtype=torch.bfloat16 if name != "table" else torch.float32))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sum()


def test_buffers_get_the_dtype_that_the_config_names():
    import deepspeed

    def dtypes(**given) -> list[str]:
        engine = deepspeed.initialize(model=Buffered(), config=config({"type": "SGD"}, **given))[0]
        found = [str(buffer.dtype).removeprefix("torch.") for buffer in engine.module.buffers()]
        engine.destroy()
        return found

    bf16 = {"bf16": {"enabled": True}}
    assert dtypes() == ["float32", "bfloat16", "int64"]
    assert dtypes(**bf16) == ["float32", "float32", "int64"]  # the model's own list
    assert dtypes(data_types={"buffer_dtype": "bf16"}, **bf16) == ["bfloat16", "float32", "int64"]
    assert dtypes(data_types={"buffer_dtype": "fp16", "keep_in_fp32_modules": []}, **bf16) == ["float16", "float16", "int64"]
    assert dtypes(data_types={"buffer_dtype": "bf16", "keep_in_fp32_modules": ["tab*"]}, **bf16) == ["float32", "bfloat16", "int64"]


def autocast_losses(stage: int) -> dict:
    import deepspeed

    torch.manual_seed(0)
    model = Net()
    seen: set[str] = set()
    model.blocks[0].up.register_forward_hook(lambda module, args, out: seen.add(f"{module.weight.dtype} {out.dtype}"))
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    asked = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero, "gradient_clipping": 0}
    asked["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
    engine = deepspeed.initialize(model=model, config=asked, optimizer=lambda parts: torch.optim.SGD(parts, lr=0.1))[0]
    losses = []
    for step in range(3):
        loss = engine(tokens(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    found = {"losses": losses, "seen": sorted(seen), "on": engine.torch_autocast_enabled()}
    engine.destroy()
    return found


def autocast_runs() -> list:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = []
    for step in range(3):
        losses = []
        for rank in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
                loss = model(tokens(step, rank))
            (loss / 2).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        plain.append(losses[int(os.environ["RANK"])])
    return [plain, *(autocast_losses(stage) for stage in (0, 2, 3))]


def test_torch_autocast_casts_in_forward_and_keeps_fp32_weights():
    for plain, *stages in run(__file__, "autocast_runs", 2):
        for found in stages:
            assert found["seen"] == ["torch.float32 torch.bfloat16"] and found["on"], found
            assert found["losses"] == stages[0]["losses"], stages
        # One process sums the gradients of both ranks in another order, in fp32: one place of bf16 (2^-8) of a loss of about 4
        # may round otherwise.
        assert max(abs(a - b) for a, b in zip(plain, stages[0]["losses"])) < 0.02, (plain, stages[0])


class Poison(nn.Module):
    """Adds a gradient of infinity to one weight when told to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, poison: bool) -> torch.Tensor:
        loss = self.linear(x).float().sum()
        return loss + self.linear.weight[0, 0].float() * float("inf") if poison else loss


def steps_with_poison(stage: int, check: bool) -> list:
    import deepspeed

    torch.manual_seed(0)
    asked = config({"type": "SGD", "params": {"lr": 0.5}}, bf16={"enabled": True, "check_grad_overflow": check})
    asked["train_batch_size"] = 2
    asked["zero_optimization"] = {"stage": stage}
    engine = deepspeed.initialize(model=Poison(), config=asked)[0]
    x = torch.ones(1, 4, dtype=torch.bfloat16)
    engine.backward(engine(x, True))
    engine.step()
    weight = deepspeed.utils.safe_get_full_fp32_param(engine.module.linear.weight)
    found = [engine.skipped_steps, int(torch.isfinite(weight).sum()), bool(engine.optimizer.overflow)]
    engine.destroy()
    return found


def poisoned() -> dict:
    return {f"{stage} {check}": steps_with_poison(stage, check) for stage in (0, 1, 3) for check in (True, False)}


def test_check_grad_overflow_false_takes_a_step_in_bf16_whatever_its_gradients_are():
    for found in run(__file__, "poisoned", 2):
        for name, (skipped, finite, overflow) in found.items():
            if name.endswith("True"):
                assert (skipped, finite, overflow) == (1, 12, True), found
            else:
                assert skipped == 0 and finite < 12 and not overflow, found


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
