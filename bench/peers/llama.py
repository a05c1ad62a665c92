"""The model that all training benchmarks share, in plain PyTorch: a Llama, its first weights and its data.

Everything that decides a number is fixed here, so that each engine trains the same function from the same start:
see "The model" in bench/README.md. bench/train.cpp writes the same model with libtorch.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    hidden: int = 512
    layers: int = 8
    heads: int = 8
    ffn: int = 1376
    vocab: int = 8192
    batch: int = 2  # sequences a rank and step
    time: int = 256  # tokens a sequence
    eps: float = 1e-5
    theta: float = 10000.0


def rope_tables(shape):
    """cos and sin, each [time, head_dim], the second half of the columns equal to the first."""
    half = shape.hidden // shape.heads // 2
    frequency = shape.theta ** (-torch.arange(0, half, dtype=torch.float32) / half)
    angle = torch.arange(shape.time, dtype=torch.float32)[:, None] * frequency[None, :]
    angle = torch.cat([angle, angle], dim=1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotary embedding of x [batch, head, time, dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class RMSNorm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.eps = shape.eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Block(nn.Module):
    """x [batch, time, hidden] -> the same."""

    def __init__(self, shape):
        super().__init__()
        hidden, ffn = shape.hidden, shape.ffn
        self.heads = shape.heads
        self.attention_norm = RMSNorm(shape)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.ffn_norm = RMSNorm(shape)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def split_heads(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, cos, sin):
        h = self.attention_norm(x)
        q = rotate(self.split_heads(self.q(h)), cos, sin)
        k = rotate(self.split_heads(self.k(h)), cos, sin)
        v = self.split_heads(self.v(h))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(-2))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens, targets):
        """tokens, targets [batch, time] -> mean cross-entropy."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_model(shape):
    """The model with its first weights: norms 1, the others normal(0, 0.02), drawn in the order of parameters()."""
    model = Llama(shape)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
    return model


POOL = 8  # different batches; step i takes batch i % POOL


def make_batches(shape, rank):
    """[POOL, batch, time + 1] tokens of this rank; inputs are all but the last, targets all but the first."""
    generator = torch.Generator().manual_seed(1000 + rank)
    return torch.randint(0, shape.vocab, (POOL, shape.batch, shape.time + 1), generator=generator)
