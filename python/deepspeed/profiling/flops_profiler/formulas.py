"""How many floating-point operations a call of torch is: of its forward, and of the backward that it will have.

A multiplication with an addition is two operations. Elementwise functions count one an element, norms five (four without weight),
a batch norm that only applies its averages two, as DeepSpeed counts them. The backward of a product is one product of the same size
for each operand that takes a gradient.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import numpy
import torch


class Counts(NamedTuple):
    flops: int = 0
    macs: int = 0
    backward: int = 0  # operations of the backward


Formula = Callable[..., Counts]  # of the result and the call's arguments
Wants = Callable[[Any], bool]  # whether a tensor takes a gradient


def argument(args: tuple, kwargs: dict, at: int, name: str, default: Any = None) -> Any:
    return args[at] if at < len(args) else kwargs.get(name, default)


def product(macs: int, extra: int, operands: tuple, wants: Wants) -> Counts:
    """Of a sum of products; `extra` additions, of a bias, come on top."""
    return Counts(2 * macs + extra, macs, 2 * macs * sum(wants(operand) for operand in operands))


def each_element(times: int = 1) -> Formula:
    """`times` an element of the first argument."""

    def formula(wants: Wants, result: Any, args: tuple, kwargs: dict) -> Counts:
        value = argument(args, kwargs, 0, "input")
        count = times * value.numel()
        return Counts(count, 0, count if wants(value) else 0)

    return formula


def elementwise(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    operands = (argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "other"))
    return Counts(result.numel(), 0, result.numel() * sum(wants(operand) for operand in operands))


def linear(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    value, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    return product(value.numel() * math.prod(weight.shape[:-1]), 0, (value, weight), wants)


def matmul(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    left = argument(args, kwargs, 0, "input")
    right = argument(args, kwargs, 1, "mat2" if "mat2" in kwargs else "other")
    return product(result.numel() * left.shape[-1], 0, (left, right), wants)


def addmm(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    """Also of baddbmm."""
    added = argument(args, kwargs, 0, "input")
    left = argument(args, kwargs, 1, "batch1" if "batch1" in kwargs else "mat1")
    right = argument(args, kwargs, 2, "batch2" if "batch2" in kwargs else "mat2")
    return product(result.numel() * left.shape[-1], added.numel(), (left, right), wants)


def convolution(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    value, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
    positions = result.numel() // weight.shape[0]
    return product(weight.numel() * positions, result.numel() if bias is not None else 0, (value, weight), wants)


def transposed_convolution(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    value, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
    positions = value.numel() // weight.shape[0]
    return product(weight.numel() * positions, result.numel() if bias is not None else 0, (value, weight), wants)


def attention(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    q, k, v = (argument(args, kwargs, at, name) for at, name in enumerate(("query", "key", "value")))
    scores = math.prod(q.shape[:-1]) * k.shape[-2]
    weighted = scores * q.shape[-1], scores * v.shape[-1]
    softmaxed = wants(q) or wants(k)
    backward = 2 * weighted[0] * (wants(q) + wants(k)) + 2 * weighted[1] * (softmaxed + wants(v))
    return Counts(2 * sum(weighted), sum(weighted), backward)


def normalized(weight_at: int) -> Formula:
    def formula(wants: Wants, result: Any, args: tuple, kwargs: dict) -> Counts:
        times = 5 if argument(args, kwargs, weight_at, "weight") is not None else 4
        return each_element(times)(wants, result, args, kwargs)

    return formula


def batch_norm(wants: Wants, result: Any, args: tuple, kwargs: dict) -> Counts:
    training = argument(args, kwargs, 5, "training", False)
    affine = argument(args, kwargs, 3, "weight") is not None
    return each_element((4 if training else 1) + affine)(wants, result, args, kwargs)


def resized(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    value = argument(args, kwargs, 0, "input")
    return Counts(result.numel(), 0, result.numel() if wants(value) else 0)


def einsum(wants: Wants, result: torch.Tensor, args: tuple, kwargs: dict) -> Counts:
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if not isinstance(equation, str):  # operands and lists of axes in turn
        return Counts()
    shapes = [numpy.broadcast_to(0.0, operand.shape) for operand in operands]  # only their shapes are looked at
    said = numpy.einsum_path(equation.replace(" ", ""), *shapes, optimize="optimal")[1]
    flops = int(float(next(line for line in said.splitlines() if "Optimized FLOP" in line).split(":")[-1]))
    macs = flops // 2 if len(operands) > 1 else 0
    return Counts(flops, macs, flops * sum(wants(operand) for operand in operands))


def recurrent(module: torch.nn.Module, inputs: tuple) -> int:
    """Operations of a forward of RNN, LSTM, GRU and their cells, by the gates' products and elementwise steps."""
    value = inputs[0]
    packed = isinstance(value, torch.nn.utils.rnn.PackedSequence)
    shape = value.data.shape if packed else value.shape
    steps = shape[0] if packed else math.prod(shape[:-1])
    per_hidden = {"RNN": 1, "GRU": 7, "LSTM": 10}[type(module).__name__.removesuffix("Cell")]
    layers = range(getattr(module, "num_layers", 1))
    total = 0
    for layer in layers:
        end = f"_l{layer}" if hasattr(module, "num_layers") else ""
        weights = [getattr(module, f"weight_{part}{end}") for part in ("ih", "hh")]
        total += sum(2 * math.prod(weight.shape) - weight.shape[0] for weight in weights) + per_hidden * module.hidden_size
        if module.bias:
            total += sum(getattr(module, f"bias_{part}{end}").shape[0] for part in ("ih", "hh"))
    return total * steps * (2 if getattr(module, "bidirectional", False) else 1)
