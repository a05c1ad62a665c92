"""Memory before it is taken: shoal.plan, and DeepSpeed's estimators, which it answers."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net
from ranks import main

CONFIG = {"train_batch_size": 4, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage3_param_persistence_threshold": 0}}


def test_the_plan_of_a_model_is_what_an_engine_holds():
    import shoal

    for precision in ({}, {"bf16": {"enabled": True}}):
        config = CONFIG | precision
        plans = shoal.plan(Net(), config, 1)
        for stage in range(4):
            staged = config | {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
            engine = shoal.initialize(Net(), staged)
            planned = engine.memory().planned
            assert (plans[stage].weights, plans[stage].gradients, plans[stage].states) == (
                planned.weights, planned.gradients, planned.states), (stage, str(plans[stage]), str(planned))  # fmt: skip
            assert plans[stage].gather_arena == planned.gather_arena, stage
            engine.destroy()


def test_more_ranks_hold_less_and_nothing_is_allocated():
    import shoal

    with torch.device("meta"):
        model = Net(width=256)
    one, four = shoal.plan(model, CONFIG, 1), shoal.plan(model, CONFIG, 4)
    assert 1 <= four[0].model_states / one[0].model_states < 1.01  # shards are padded to even size
    assert 0.24 < four[3].states / one[3].states < 0.26 and 0.24 < four[3].weights / one[3].weights < 0.26
    assert one[3].gather_arena == 0 < four[3].gather_arena


def printed(action) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        action()
    return out.getvalue()


def test_estimators_print_deepspeeds_table():
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    with torch.device("meta"):
        model = Net(width=512, depth=6)
    text = printed(lambda: stage_1_and_2.estimate_zero2_model_states_mem_needs_all_live(model, num_gpus_per_node=2))
    assert "per CPU  |  per GPU |   Options" in text and text.count("offload_optimizer=") == 2, text
    text = printed(lambda: stage3.estimate_zero3_model_states_mem_needs_all_live(model, num_gpus_per_node=2, num_nodes=2))
    assert text.count("zero_init=") == 6 and "2 node(s) of 2 GPU(s), 13" in text, text
    text = printed(lambda: stage3.estimate_zero3_model_states_mem_needs_all_cold(3e9, 1e8, num_gpus_per_node=8))
    assert text.count("offload_param=cpu") == 2 and "3000M" in text, text


def test_estimates_of_a_count():
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    # bf16 with Adam: 2 bytes of weight, 2 of master remainder and 8 of moments a parameter.
    host, gpu = stage_1_and_2.estimate_zero2_model_states_mem_needs(10**9, num_gpus_per_node=4)
    assert abs(host - 10 * 10**9) < 10**7, host
    whole = stage_1_and_2.estimate_zero2_model_states_mem_needs(10**9, num_gpus_per_node=4, cpu_offload=False)
    assert whole[0] == 0 and abs(whole[1] - gpu - host / 4) < 10**7, (whole, gpu)
    host, gpu, layer = stage3.estimate_zero3_model_states_mem_needs(10**9, 10**8, num_gpus_per_node=2, num_nodes=2)
    assert abs(host - 12 * 10**9 / 2) < 10**7 and 2 * 10**8 <= layer < gpu, (host, gpu, layer)
    built = stage3.estimate_zero3_model_states_mem_needs(10**9, 10**8, 2, 2, cpu_offload=False, zero_init=False)
    assert built[0] == 8 * 10**9, built
    doubled = stage_1_and_2.estimate_zero2_model_states_mem_needs(10**9, 4, additional_buffer_factor=2)
    assert abs(doubled[0] - 20 * 10**9) < 2 * 10**7


if __name__ == "__main__":
    main(globals())
