"""States of the search over allocations and retrainings, one row each, and what may follow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.planning.arrays import Floats, Int8s, Int32s, Ints
from migrator.planning.exact.tables import NEVER

STILL, DONE = -1, -2
"""Retraining status of a tenant that has not started, and of one that has completed in the first
configuration; in configuration c it is DONE - c. One that runs has the number of its way:
configuration x placements + placement."""


class Layer(NamedTuple):
    """States of one slot, one row each."""

    way: Ints
    """[state, tenant]: STILL, DONE - configuration, or the way it retrains"""
    end: Ints
    """[state, tenant]: first slot after a running retraining"""
    owner: Int8s
    """[state, placement]: tenant that holds it for either task, -1 none"""
    age: Int32s
    """[state, placement]: whole slots its holder has had it before, up to the warm age"""
    value: Floats
    """[state]: goodput so far"""


class Choices(NamedTuple):
    """What a slot can hold: every set of retrainings that may start, every share of the rest."""

    starts: Ints
    """[start, tenant]: placement on which its retraining starts, -1 none; none of all first"""
    start_facts: Ints
    """[start, 3]: (slices taken, tenants as bits, fewest slots until all have ended)"""
    shares: Ints
    """[share, tenant] -> placement set; those of a mask together"""
    share_begin: Ints
    """[mask + 1]: where the shares of the mask begin"""
    sets_of: Ints
    """[tenant, n]: placement sets that occur, -1 ends"""
    pattern: Ints
    """[tenant, code]: serving pattern of a sum of size weights"""
    place_size: Ints
    way_option: Ints
    """[way]: configuration x sizes + size index"""
    way_mask: Ints
    """[way]: its slices"""
    durations: Ints
    """[tenant, option]: slots of a retraining, 0 where there is none"""
    lead: Ints
    """[tenant]: whole slots for which a new instance is held before it serves"""
    accuracy: Floats
    """[tenant, stage]: before the retraining, then after one in each configuration"""
    rearrangements: Ints
    """[n, placement]: rearrangements of the placements that change nothing; none first"""


class Candidates(NamedTuple):
    """States that may follow, one entry each."""

    state: Ints
    """the state before"""
    start: Ints
    """start x combinations + combination: the starting tenants' configurations, as digits of a
    number whose base is the number of configurations"""
    share: Ints
    bound: Floats
    value: Floats
    used: Ints
    """[1]: how many entries are used"""
    limits: Floats
    """[2]: (what a bound must exceed, largest bound left out for want of room)"""
    order: Ints
    """[2, n]: see `descending`"""


def empty_candidates(rows: int, incumbent: float) -> Candidates:
    """Room for candidates that may beat the incumbent."""
    state, start, share = np.empty((3, rows), np.int64)
    bound, value = np.empty((2, rows))
    limits = np.array([incumbent, NEVER])
    used, order = np.zeros(1, np.int64), np.empty((2, rows), np.int64)
    return Candidates(state, start, share, bound, value, used, limits, order)
