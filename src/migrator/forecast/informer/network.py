"""The Informer's network: an encoder that distils a long past, a decoder that answers at once.

After Zhou et al. (AAAI 2021), sections 3.2 to 3.4: a token per slot, ProbSparse attention,
distilling. Nothing is generated step by step: the slots ahead enter the decoder as zeros and leave
it as the forecast. Two things differ: tokens have no time of day, and all queries of a layer are
measured by the same sampled keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from migrator.core.errors import InputError

_EVERY_CALL_ALIKE = 2021
"""Seed of the keys a trained network samples: the same history gives the same forecast."""


@dataclass(frozen=True)
class Shape:
    """How large a network is; lengths in slots."""

    lookback: int = 600
    start: int = 100
    """The latest slots given to the decoder before the placeholders."""
    ahead: int = 200
    width: int = 32
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 1
    factor: float = 5.0
    """Of the logarithm of a length: how many queries are active."""
    dropout: float = 0.05

    def __post_init__(self) -> None:
        """InputError where the parts do not fit together."""
        lengths = (self.lookback, self.start, self.ahead)
        sizes = (*lengths, self.width, self.heads, self.encoder_layers, self.decoder_layers)
        if min(sizes) < 1 or self.start > self.lookback or self.width % self.heads:
            raise InputError(
                "informer: its shape does not fit together; let heads divide width, and start be "
                "no longer than lookback"
            )

    @classmethod
    def for_window(cls, window_slots: int) -> Shape:
        """For windows of another length: it looks back three of them."""
        start = max(1, window_slots // 2)
        return cls(lookback=3 * window_slots, start=start, ahead=window_slots)


class Embedding(nn.Module):
    """Tokens from values: a convolution over neighbours, plus where the token stands."""

    def __init__(self, shape: Shape, length: int) -> None:
        super().__init__()
        self.token = nn.Conv1d(1, shape.width, 3, padding=1, padding_mode="replicate")
        self.register_buffer("position", _positions(length, shape.width), persistent=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, values: Tensor) -> Tensor:
        """(batch, length) to (batch, length, width)."""
        tokens = self.token(values[:, None]).transpose(1, 2)
        embedded: Tensor = self.dropout(tokens + self.get_buffer("position"))
        return embedded


def _positions(length: int, width: int) -> Tensor:
    """Sines and cosines of falling frequency."""
    angle = torch.arange(length)[:, None] * torch.exp(
        torch.arange(0, width, 2) * (-math.log(10_000.0) / width)
    )
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :width]


class FeedForward(nn.Module):
    """What follows attention, token by token, with its norms."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Dropout(shape.dropout),
            nn.Linear(4 * shape.width, shape.width),
        )
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length, width) in and out."""
        out: Tensor = self.norm(tokens + self.inner(tokens))
        return out


class EncoderLayer(nn.Module):
    """ProbSparse self-attention and a feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape.width, shape.heads, shape.factor)
        self.norm = nn.LayerNorm(shape.width)
        self.feed = FeedForward(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length, width) in and out."""
        tokens = self.norm(tokens + self.attention(tokens, tokens))
        out: Tensor = self.feed(tokens)
        return out


class Distilling(nn.Module):
    """Halves a sequence: convolution, ELU, max-pooling with stride 2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, 3, padding=1, padding_mode="replicate")
        self.pool = nn.MaxPool1d(3, stride=2, padding=1)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length, width) to half the length, rounded up."""
        mixed = nn.functional.elu(self.convolution(tokens.transpose(1, 2)))
        out: Tensor = self.pool(mixed).transpose(1, 2)
        return out


class DecoderLayer(nn.Module):
    """Causal ProbSparse self-attention, attention to the encoder, a feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.own = Attention(shape.width, shape.heads, shape.factor, causal=True)
        self.cross = Attention(shape.width, shape.heads, None)
        self.norms = nn.ModuleList([nn.LayerNorm(shape.width) for _ in range(2)])
        self.feed = FeedForward(shape)

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:
        """(batch, length, width) in and out."""
        tokens = self.norms[0](tokens + self.own(tokens, tokens))
        tokens = self.norms[1](tokens + self.cross(tokens, encoded))
        out: Tensor = self.feed(tokens)
        return out


class Informer(nn.Module):
    """The whole network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.past = Embedding(shape, shape.lookback)
        self.future = Embedding(shape, shape.start + shape.ahead)
        self.encoder = nn.ModuleList([EncoderLayer(shape) for _ in range(shape.encoder_layers)])
        self.distilling = nn.ModuleList(
            [Distilling(shape.width) for _ in range(shape.encoder_layers - 1)]
        )
        self.decoder = nn.ModuleList([DecoderLayer(shape) for _ in range(shape.decoder_layers)])
        self.out = nn.Linear(shape.width, 1)

    def forward(self, past: Tensor) -> Tensor:
        """(batch, lookback) to (batch, ahead): all slots in one pass."""
        return self.decoded(past, self.encoded(past))

    def encoded(self, past: Tensor) -> Tensor:
        """What the encoder makes of the past: half as long after every layer but the last."""
        tokens: Tensor = self.past(past)
        for number, layer in enumerate(self.encoder):
            tokens = layer(tokens)
            if number < len(self.distilling):
                tokens = self.distilling[number](tokens)
        return tokens

    def decoded(self, past: Tensor, encoded: Tensor) -> Tensor:
        """The slots ahead, from the start token, placeholders and what was encoded."""
        blank = past.new_zeros(past.shape[0], self.shape.ahead)
        started = torch.cat((past[:, -self.shape.start :], blank), dim=1)
        tokens: Tensor = self.future(started)
        for layer in self.decoder:
            tokens = layer(tokens, encoded)
        out: Tensor = self.out(tokens[:, -self.shape.ahead :]).squeeze(-1)
        return out


def full_attention(queries: Tensor, keys: Tensor, values: Tensor, causal: bool = False) -> Tensor:
    """Every query looks at every key, or at those not after it."""
    return nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)


def prob_sparse(
    queries: Tensor, keys: Tensor, values: Tensor, active: int, sampled: Tensor, causal: bool
) -> Tensor:
    """The `active` queries that stand out look at every key; the lazy rest takes the mean value.

    `sampled` are the positions of the keys by which queries are measured. Causal: a query uses
    keys and values up to its own position alone, and the mean is of those; which queries are
    active is settled over all of them.
    """
    chosen = _standing_out(queries, keys, active, sampled, causal)
    depth = chosen[..., None].expand(-1, -1, -1, queries.shape[-1])
    scores = queries.gather(-2, depth) @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        scores = scores.masked_fill(_ahead(queries, keys)[chosen], -math.inf)
    looked = scores.softmax(dim=-1) @ values
    return _lazy(values, queries.shape[-2], causal).scatter(-2, depth, looked)


def _standing_out(
    queries: Tensor, keys: Tensor, active: int, sampled: Tensor, causal: bool
) -> Tensor:
    """Positions of the queries whose highest score is furthest above their mean score."""
    scores = queries.detach() @ keys.detach()[:, :, sampled].transpose(-2, -1)
    if not causal:
        measure = scores.amax(dim=-1) - scores.mean(dim=-1)
    else:
        ahead = _ahead(queries, keys)[:, sampled]
        seen = (~ahead).sum(dim=-1).clamp(min=1)
        # without a sampled key there is nothing to stand out from
        highest = scores.masked_fill(ahead, -math.inf).amax(dim=-1).nan_to_num(neginf=0.0)
        measure = highest - scores.masked_fill(ahead, 0.0).sum(dim=-1) / seen
    return measure.topk(active, dim=-1, sorted=False).indices


def _lazy(values: Tensor, length: int, causal: bool) -> Tensor:
    """The mean of the values, or of those so far."""
    if not causal:
        return values.mean(dim=-2, keepdim=True).expand(-1, -1, length, -1).contiguous()
    so_far = torch.arange(1, length + 1, dtype=values.dtype, device=values.device)[:, None]
    return values.cumsum(dim=-2) / so_far


def _ahead(queries: Tensor, keys: Tensor) -> Tensor:
    """Per query and key whether the key comes later."""
    size = queries.shape[-2], keys.shape[-2]
    return torch.ones(*size, dtype=torch.bool, device=queries.device).triu(1)


class Attention(nn.Module):
    """Several heads of attention between two sequences, sparse or full."""

    def __init__(self, width: int, heads: int, factor: float | None, causal: bool = False) -> None:
        """`factor` times the logarithm of a length is how many stand out; None: all of them."""
        super().__init__()
        self.heads, self.factor, self.causal = heads, factor, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, asking: Tensor, asked: Tensor) -> Tensor:
        """(batch, length, width) in and out."""
        queries, keys = self._parted(self.query(asking)), self._parted(self.key(asked))
        values = self._parted(self.value(asked))
        if self.factor is None:
            attended = full_attention(queries, keys, values, self.causal)
        else:
            active = _of_length(self.factor, queries.shape[-2])
            sampled = self._sampled(keys.shape[-2], _of_length(self.factor, keys.shape[-2]))
            attended = prob_sparse(queries, keys, values, active, sampled, self.causal)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out

    def _parted(self, sequence: Tensor) -> Tensor:
        batch, length, width = sequence.shape
        return sequence.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def _sampled(self, length: int, number: int) -> Tensor:
        """Positions of sampled keys: new ones at each training step, else always the same."""
        if self.training:
            return torch.randperm(length)[:number]
        always = torch.Generator().manual_seed(_EVERY_CALL_ALIKE)
        return torch.randperm(length, generator=always)[:number]


def _of_length(factor: float, length: int) -> int:
    return min(length, max(1, math.ceil(factor * math.log(length))) if length > 1 else 1)
