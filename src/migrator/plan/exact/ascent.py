"""Finding prices: the board and every tenant answer to them, and the surplus moves them.

The sum of all answers is a bound on any plan, convex in the prices; what is offered and not
used of a size in a slot is its slope there. Steps are scaled per price (Adam) and shrink
geometrically: with one length for all prices the bound stalls several percent too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from migrator.plan.compiled import compiled
from migrator.plan.exact.space import Floats

Answer = Callable[[Floats, Floats, Floats], float]
"""(prices [slot, size], their sums before each slot [size, slot], surplus) -> what the tenant
earns at these prices; what it uses is subtracted from the surplus [slot, size]."""

MEMORY, SCALE_MEMORY = 0.9, 0.999
"""How much of the slope, and of its square, a step remembers."""
LAST_STEP = 0.003
"""Length of the last step relative to the first."""
_FIRST_STEP = 2.0
"""Length of the first step, in mean prices of the smallest instance."""


def ascend(
    prices: Floats, configurations: Floats, answers: Sequence[Answer], steps: int
) -> tuple[Floats, float]:
    """The best prices per size met in `steps` steps from `prices`, and their bound.

    `configurations` [configuration, size]: what the board can rent out in a slot.
    """
    prices = prices.copy()
    first = _FIRST_STEP * max(float(prices[:, 0].mean()), 1e-9)
    mean, square = np.zeros_like(prices), np.zeros_like(prices)
    surplus, rents = np.zeros_like(prices), np.zeros((prices.shape[1], len(prices) + 1))
    best, best_bound = prices.copy(), np.inf
    for step in range(steps):
        bound = _offer(prices, configurations, surplus, rents)
        for answer in answers:
            bound += answer(prices, rents, surplus)
        if bound < best_bound:
            best_bound, best = bound, prices.copy()
        move(prices, surplus, mean, square, step, first * LAST_STEP ** (step / steps), 0.0)
    return best, float(best_bound)


@compiled
def _offer(prices: Floats, configurations: Floats, surplus: Floats, rents: Floats) -> float:
    """The board rents out, in every slot, the configuration that earns most."""
    slots, sizes = prices.shape
    total = 0.0
    for t in range(slots):
        top, chosen = -1.0, 0
        for c in range(configurations.shape[0]):
            earned = 0.0
            for k in range(sizes):
                earned += configurations[c, k] * prices[t, k]
            if earned > top:
                top, chosen = earned, c
        for k in range(sizes):
            surplus[t, k] = configurations[chosen, k]
            rents[k, t + 1] = rents[k, t] + prices[t, k]
        total += top
    return total


@compiled
def move(
    prices: Floats,
    surplus: Floats,
    mean: Floats,
    square: Floats,
    step: int,
    length: float,
    least: float,
) -> None:
    """One step against the surplus, scaled per price; no price falls below `least`."""
    # both memories start empty: weigh their first entries up
    weight = 1.0 / (1.0 - MEMORY ** (step + 1))
    scale_weight = 1.0 / (1.0 - SCALE_MEMORY ** (step + 1))
    for t in range(prices.shape[0]):
        for k in range(prices.shape[1]):
            slope = surplus[t, k]
            if slope == 0.0 and mean[t, k] == 0.0:
                continue
            mean[t, k] = MEMORY * mean[t, k] + (1 - MEMORY) * slope
            square[t, k] = SCALE_MEMORY * square[t, k] + (1 - SCALE_MEMORY) * slope * slope
            scale = np.sqrt(square[t, k] * scale_weight) + 0.1
            prices[t, k] = max(least, prices[t, k] - length * weight * mean[t, k] / scale)
