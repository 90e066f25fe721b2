"""Several point forecasts as one: shares of each by what they foretold before.

The shares are never negative and sum to one, so what is said lies between the lowest and the
highest, and forecasts that are right on average stay so together. Whatever is taken from the
simple forecast has its price: it keeps everything where the others gain less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEPS = 200
"""Shares have settled to about a thousandth after as many."""


def shares(
    products: NDArray[np.float64], simple: int, price: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Per matrix of summed products of errors the shares that leave the least squared error.

    `price`, of the mean squared error, is paid for taking everything from the simple forecast.
    Projected gradients with momentum (Nesterov), for all matrices at once.
    """
    rivals = products.shape[-1]
    start = np.zeros(products.shape[:-1])
    start[:, simple] = 1.0
    mean = np.trace(products, axis1=1, axis2=2) / rivals
    curved = products / np.where(mean > 0, mean, 1.0)[:, None, None]
    reach = np.linalg.eigvalsh(curved)[:, -1:]
    pace = 1 / np.where(reach > 0, reach, 1.0)
    kept = price[:, None] / 2 * start
    found, ahead, speed = start, start, 1.0
    for _ in range(_STEPS):
        slope = (curved @ ahead[:, :, None])[:, :, 0] - kept
        step = _nearest(ahead - pace * slope)
        faster = (1 + (1 + 4 * speed**2) ** 0.5) / 2
        ahead = step + (speed - 1) / faster * (step - found)
        found, speed = step, faster
    return found


def _nearest(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per row the shares nearest to it: the same taken off each, none below zero."""
    ordered = np.sort(wanted, axis=1)[:, ::-1]
    # what is to be taken off so that just the k largest stay and sum to one
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, wanted.shape[1] + 1)
    nearest: NDArray[np.float64] = np.maximum(wanted - excess.max(axis=1, keepdims=True), 0.0)
    return nearest
