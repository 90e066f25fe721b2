"""How evenly goodput is divided between tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fairness:
    """The tenant that gets least of its own requests answered well, and how even all are."""

    worst_tenant: str
    worst_share: float
    """Its goodput over its requests."""
    jain_index: float
    """Of all tenants' goodput shares: 1 if they are equal, 1/n if one of n has everything."""


def fairness(goodput_shares: Mapping[str, float]) -> Fairness:
    """Of at least one tenant's goodput over its requests."""
    worst = min(goodput_shares, key=lambda tenant: goodput_shares[tenant])
    shares = goodput_shares.values()
    squares = len(shares) * sum(share * share for share in shares)
    index = sum(shares) ** 2 / squares if squares else 1.0
    return Fairness(worst, goodput_shares[worst], index)
