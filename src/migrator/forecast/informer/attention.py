"""Attention as the Informer does it: the few queries that matter look, the others take the mean.

After Zhou et al., "Informer: Beyond Efficient Transformer for Long Sequence Time-Series
Forecasting" (AAAI 2021), section 3 and algorithm 1. Tensors are (batch, heads, length, depth).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_EVERY_CALL_ALIKE = 2021
"""Seed of the keys a trained network samples: the same history gives the same forecast."""


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
        scores = scores.masked_fill(_ahead(queries.shape[-2], keys.shape[-2])[chosen], -math.inf)
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
        ahead = _ahead(queries.shape[-2], keys.shape[-2])[:, sampled]
        seen = (~ahead).sum(dim=-1).clamp(min=1)
        # without a sampled key there is nothing to stand out from
        highest = scores.masked_fill(ahead, -math.inf).amax(dim=-1).nan_to_num(neginf=0.0)
        measure = highest - scores.masked_fill(ahead, 0.0).sum(dim=-1) / seen
    return measure.topk(active, dim=-1, sorted=False).indices


def _lazy(values: Tensor, length: int, causal: bool) -> Tensor:
    """The mean of the values, or of those so far."""
    if not causal:
        return values.mean(dim=-2, keepdim=True).expand(-1, -1, length, -1).contiguous()
    so_far = torch.arange(1, length + 1, dtype=values.dtype)[:, None]
    return values.cumsum(dim=-2) / so_far


def _ahead(queries: int, keys: int) -> Tensor:
    """Per query and key whether the key comes later."""
    return torch.ones(queries, keys, dtype=torch.bool).triu(1)


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
            found = full_attention(queries, keys, values, self.causal)
        else:
            active = _of_length(self.factor, queries.shape[-2])
            sampled = self._sampled(keys.shape[-2], _of_length(self.factor, keys.shape[-2]))
            found = prob_sparse(queries, keys, values, active, sampled, self.causal)
        out: Tensor = self.out(found.transpose(1, 2).flatten(2))
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
