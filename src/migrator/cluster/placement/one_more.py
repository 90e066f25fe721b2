"""What one more GPU would bring: the program over sets, fractional, with and without it."""

from __future__ import annotations

from migrator.cluster.placement.choose import relax
from migrator.cluster.placement.market import Market
from migrator.cluster.placement.solve import left_over_of
from migrator.cluster.placement.worth import Ints

_ROUNDS = 3


def one_more_rps(market: Market, window_s: float) -> dict[str, float]:
    """Board -> requests per second that one more GPU of it would bring, about."""
    base = _fractional(market, market.gpus)
    more = {}
    for b, board in enumerate(market.boards):
        gpus = market.gpus.copy()
        gpus[b] += 1
        more[board.name] = max(0.0, _fractional(market, gpus) - base) / window_s
    return more


def _fractional(market: Market, gpus: Ints) -> float:
    """Goodput where parts of a GPU may be used: steady in the number of GPUs, unlike whole ones."""
    for _ in range(_ROUNDS):
        found = relax(market.sets, gpus, market.units, left_over_of(market, market.units))
        unknown = [key for key in found.used if not market.sets[key[0]].exact[key[1]]]
        if not unknown or market.budget.spent:
            break
        market.settle(unknown)
    return relax(market.sets, gpus, market.units, left_over_of(market, market.units)).goodput
