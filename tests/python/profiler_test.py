"""The flops profiler: its numbers are those of DeepSpeed 0.19.8 on the same models (written down here as the real one gave them),
its count of the backward is that of torch's FlopCounterMode, and an engine prints the profile of one step."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, message, run


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.ln = nn.LayerNorm(32)

    def forward(self, x):
        x = self.ln(x)
        q, k, v = (part(x).view(2, -1, 4, 8).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return torch.softmax(torch.matmul(q, k.transpose(-1, -2)), -1) @ v + y


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2, groups=2, dilation=2),
        nn.ConvTranspose2d(16, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


def lines() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 5, 3, bias=False), nn.GELU(), nn.GroupNorm(5, 5), nn.Upsample(scale_factor=2))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, 5, bias=False))


# Model, shape of its input, and the flops, MACs and parameters that get_model_profile of DeepSpeed 0.19.8 gave.
REAL = {
    "linear": (perceptron, (3, 7), (975, 468, 169)),
    "convolutions": (convolutions, (2, 3, 17, 19), (333344, 153376, 1422)),
    "one dimension": (lines, (2, 3, 11), (2340, 810, 55)),
    "attention": (Attention, (2, 6, 32), (94080, 46080, 3232)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 5, 32), (173440, 85120, 8544)),
    "lstm": (lambda: nn.LSTM(6, 9, 2, batch_first=True, bidirectional=True), (2, 5, 6), (64080, 0, 3312)),
    "gru": (lambda: nn.GRU(6, 9), (2, 5, 6), (8730, 0, 459)),
    "rnn cell": (lambda: nn.RNNCell(6, 9), (2, 6), (558, 0, 153)),
}
REAL_HF = {"llama": (538416, 268440, 24928), "bert": (425344, 207872, 37824), "bert eager": (425920, 207872, 37824), "gpt2": (694464, 342144, 61408)}


def test_numbers_are_those_of_the_real_one():
    from deepspeed.profiling.flops_profiler import get_model_profile

    for name, (make, shape, expected) in REAL.items():
        model = make()
        linear, matmul = F.linear, torch.Tensor.matmul
        assert get_model_profile(model, shape, print_profile=False, as_string=False) == expected, name
        assert F.linear is linear and torch.Tensor.matmul is matmul and model.training, "all is as before"
        assert not [key for module in model.modules() for key in vars(module) if key.endswith("s__")], "numbers are taken off"
    model = REAL["convolutions"][0]()
    assert get_model_profile(model, (2, 3, 17, 19), print_profile=False) == ("333.34 K", "153.38 KMACs", "1.42 K")


def hf_models() -> dict:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    small = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=99)
    return {
        "llama": LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2)),
        "bert": BertModel(BertConfig(**small)),
        "bert eager": BertModel(BertConfig(**small, attn_implementation="eager")),
        "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99)),
    }


def test_numbers_of_transformers_are_those_of_the_real_one():
    if importlib.util.find_spec("transformers") is None:
        print("SKIPPED: transformers is not installed.")
        return
    from deepspeed.profiling.flops_profiler import get_model_profile

    ids = torch.arange(12).reshape(2, 6)
    for name, model in hf_models().items():
        found = get_model_profile(model, kwargs={"input_ids": ids}, print_profile=False, as_string=False)
        assert found == REAL_HF[name], (name, found)


class Recomputed(nn.Module):
    def __init__(self, reentrant: bool | None):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)), nn.Linear(8, 3)
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        x = self.block(x) if self.reentrant is None else checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.last(x)


def backward_of(model: nn.Module, value: torch.Tensor) -> tuple[int, int]:
    """Operations of products in backward: counted by the profiler, and by torch while it runs."""
    from deepspeed.profiling.flops_profiler import FlopsProfiler

    profiler = FlopsProfiler(model)
    profiler.start_profile()
    loss = model(value).sum()
    profiler.stop_profile()
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    found = profiler.get_total_backward_flops()
    profiler.end_profile()
    return found, counter.get_total_flops()


def test_backward_is_what_torch_counts():
    chain = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 16, bias=False), nn.Conv1d(5, 4, 3))
    ours, real = backward_of(chain, torch.randn(3, 5, 6))
    assert ours == real > 0
    ours, real = backward_of(chain, torch.randn(3, 5, 6, requires_grad=True))
    assert ours == real, "one product more"
    for param in chain[1].parameters():
        param.requires_grad_(False)
    ours, real = backward_of(chain, torch.randn(3, 5, 6))
    assert ours == real, "one product less"
    plain = backward_of(Recomputed(None), torch.randn(4, 6))
    assert plain[0] == plain[1]
    for reentrant, layers_again in ((True, 2), (False, 1)):  # the latter ends with the last input that backward needs
        ours, real = backward_of(Recomputed(reentrant), torch.randn(4, 6))
        forward_again = layers_again * 2 * 4 * 8 * 16
        assert ours == plain[0] and real == plain[1] + forward_again, (reentrant, ours, real, "what is run again is not in it")


def test_the_class_and_its_text():
    from deepspeed.profiling.flops_profiler.profiler import FlopsProfiler

    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    profiler = FlopsProfiler(model)
    assert "[FlopsProfiler] there are no numbers" in message(profiler.get_total_flops)
    with redirect_stdout(io.StringIO()) as nothing:
        profiler.print_model_profile()
    assert nothing.getvalue() == ""
    profiler.start_profile(ignore_list=[nn.ReLU])
    model(torch.ones(3, 4))
    assert profiler.get_total_macs() == 3 * 16 + 3 * 8 and profiler.get_total_macs(as_string=True) == "72 MACs"
    assert profiler.get_total_flops() == 2 * 72 + 12, "the ignored module's are its parent's"
    assert model[1].__flops__ == 12 and model[0].__macs__ == 48 and profiler.get_total_params() == 30
    assert profiler.get_total_duration() > 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a/b.txt")
        profiler.print_model_profile(profile_step=7, module_depth=-1, top_modules=2, output_file=path)
        text = path.read_text()
    assert "Profile Summary at step 7:" in text and "(0): Linear(20 = 66.67% Params, 48 MACs = 66.67% MACs, " in text, text
    assert "fwd MACs per GPU:                                                       72 MACs " in text, text
    assert "depth 1:\n    params      - {'Linear': '20', 'Sequential': '10'}" in text, text
    assert "extra_repr" not in vars(model[0])
    profiler.start_profile()  # begins from zero
    assert profiler.get_total_flops() == 0
    profiler.end_profile()
    profiler.end_profile()
    assert "[get_model_profile input_shape]" in message(lambda: profile(input_shape=[1, 4]))
    assert "there is no input" in message(lambda: profile())


def profile(**arguments):
    from deepspeed.profiling.flops_profiler import get_model_profile

    return get_model_profile(nn.Linear(4, 4), **arguments)


def profiled_engine(folder: str, stage: int, reentrant: bool | None) -> dict:
    """Four micro-steps of two steps; the second is profiled."""
    import deepspeed

    torch.manual_seed(0)
    path = os.path.join(folder, f"{stage}-{reentrant}-{os.environ['RANK']}.txt")
    settings = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "wall_clock_breakdown": True,
        "flops_profiler": {"enabled": True, "profile_step": 1, "output_file": path},
    }  # fmt: skip
    engine = deepspeed.initialize(model=Recomputed(reentrant), config=settings)[0]
    losses = []
    for step in range(4):
        loss = engine(torch.full((4, 6), 0.1 * (step + 1))).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if step == 3:
            times = engine._observer.cache
    hooks = sum(len(module._forward_hooks) for module in engine.module.modules())
    engine.destroy()
    return {"text": Path(path).read_text() if os.path.exists(path) else "", "losses": losses, "hooks": hooks, "times": times}


def test_an_engine_prints_one_step_of_rank_0_with_whole_parameters():
    parameters = sum(param.numel() for param in Recomputed(None).parameters())
    macs = 4 * (6 * 8 + 2 * 8 * 16 + 8 * 3)
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for stage, reentrant in ((0, None), (3, None), (3, False)):
            first, second = run(__file__, "profiled_engine", 2, folder=folder, stage=stage, reentrant=reentrant)
            text = first["text"]
            assert second["text"] == "" and "Profile Summary at step 2:" in text
            assert f"params per GPU:                                                         {parameters} " in text, text
            assert f"fwd MACs per GPU:                                                       {round(macs / 1e3, 2):g} KMACs" in text, text
            assert "FLOPS per GPU = 3 * fwd flops per GPU / iter latency: " in text and "samples/second: " in text
            assert "Counted by Shoal, bwd flops per GPU: " in text
            from deepspeed.profiling.flops_profiler.text import duration_to_string

            latency = duration_to_string(first["times"]["bwd"] / 1e3 / 2)
            assert f"{'bwd latency: ':<70}  {latency}" in text, (text, first["times"])
            losses.append(first["losses"])
    assert losses[0] == losses[1] == losses[2], "a profile changes nothing"
    assert all(math.isfinite(loss) for loss in losses[0])


class TimedEngine:
    """What a report reads of an engine, whose calls of a micro-step take 2, 4 and 2 s."""

    def __init__(self, accumulation: int):
        self.world_size, self.device, self.accumulation = 3, torch.device("cpu"), accumulation

    def wall_clock_breakdown(self):
        return True

    def train_micro_batch_size_per_gpu(self):
        return 4

    def gradient_accumulation_steps(self):
        return self.accumulation

    def timers(self, name: str):
        from deepspeed.utils.timer import SynchronizedWallClockTimer

        timer = SynchronizedWallClockTimer.Timer(name)
        for _ in range(self.accumulation):
            timer.add({"fwd": 2.0, "bwd": 4.0, "step": 2.0}[name])
        return timer


def test_speeds_do_not_change_with_the_accumulation():
    from deepspeed.profiling.flops_profiler.profiler import FlopsProfiler

    for accumulation in (1, 2, 4):
        profiler = FlopsProfiler(nn.Linear(4, 4), TimedEngine(accumulation))
        for _ in range(accumulation):
            profiler.start_profile()
            profiler.model(torch.ones(1000, 4))
            profiler.stop_profile()
        with redirect_stdout(io.StringIO()) as text:
            profiler.print_model_profile(detailed=False)
        found = dict(re.findall(r"^(.+?): +(.+?) *$", text.getvalue(), re.MULTILINE))
        assert found["fwd flops per GPU"] == "32 K" and found["iter latency"] == "8 s", text.getvalue()
        assert found["FLOPS per GPU = 3 * fwd flops per GPU / iter latency"] == "12 KFLOPS", text.getvalue()
        assert found["fwd FLOPS per GPU = fwd flops per GPU / fwd latency"] == "16 KFLOPS", text.getvalue()
        assert found["samples/second"] == "1.5", text.getvalue()
        said = found.get("Counted by Shoal, micro-steps, of which each latency is the mean")
        assert said == (str(accumulation) if accumulation > 1 else None), text.getvalue()


def test_peaks_of_gpus_are_found_by_whole_words_and_are_those_of_shoal_train():
    from deepspeed.profiling.flops_profiler.report import PEAKS, peak_of

    for gpu, peak in (("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA A40", 149.7),
                      ("NVIDIA GB200", 2500), ("NVIDIA GH200 480GB", 989), ("NVIDIA B200", 2250), ("Tesla V100-SXM2-16GB", 125),
                      ("NVIDIA L40S", 362), ("NVIDIA L4", 121), ("NVIDIA A10", 125), ("NVIDIA A10G", 0), ("NVIDIA RTX A4000", 0),
                      ("NVIDIA RTX A1000", 0), ("NVIDIA GeForce RTX 4090", 0)):  # fmt: skip
        assert peak_of(gpu) == peak, gpu
    text = (Path(__file__).parents[2] / "src/train/model_flops.cpp").read_text()
    theirs = [(name, float(peak)) for name, peak in re.findall(r'\{"([^"]+)", ([0-9.]+), [0-9.]+\}', text)]
    assert len(theirs) > 10 and list(PEAKS.items())[: len(theirs)] == theirs, theirs


def test_timers_stand_by_themselves():
    from deepspeed.utils.config import DeepSpeedThroughputTimerConfig
    from deepspeed.utils.timer import NoopTimer, SynchronizedWallClockTimer, ThroughputTimer, trim_mean

    timers = SynchronizedWallClockTimer()
    timer = timers("fwd")
    assert "is not running" in message(timer.stop)
    for _ in range(3):
        timer.start()
        assert "is running already" in message(timer.start)
        timer.stop()
    total = timer.elapsed(reset=False)
    assert total > 0 and math.isclose(timers.get_mean(["fwd", "none"])["fwd"], 1e3 * trim_mean(timer.elapsed_records, 0.1))
    timer.start()
    assert timer.elapsed() >= total and timer.started_
    timer.stop()
    with redirect_stdout(io.StringIO()) as printed:
        timers.log(["fwd", "none"], ranks=[0])
    assert printed.getvalue().startswith("[Rank 0] time (ms) | fwd: ") and "none" not in printed.getvalue()
    assert timer.elapsed() == 0 and "normalizer" in message(lambda: timers.log([], normalizer=0))
    assert NoopTimer()("fwd").elapsed() == 0 and NoopTimer().get_timers() == {}
    assert trim_mean([], 0.1) == 0 and trim_mean([5, 1, 3], 0) == 3 and trim_mean(list(range(10)), 0.1) == 4.5
    assert "no share" in message(lambda: trim_mean([1], 2))
    said: list[str] = []
    throughput = ThroughputTimer(DeepSpeedThroughputTimerConfig(), batch_size=8, steps_per_output=2, logging_fn=said.append)
    assert throughput.avg_samples_per_sec() == float("-inf")
    for step in range(8):
        throughput.start()
        throughput.stop(global_step=step % 2 == 1)
    assert throughput.global_step_count == 4 and throughput.micro_step_count == 8 and throughput.avg_samples_per_sec() > 0
    assert len(said) == 1 and said[0].startswith("epoch=0/micro_step=8/global_step=4, RunningAvgSamplesPerSec="), said
    off = ThroughputTimer(DeepSpeedThroughputTimerConfig(enabled=False), batch_size=8)
    off.start()
    off.stop(global_step=True)
    assert off.global_step_count == 0


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))
