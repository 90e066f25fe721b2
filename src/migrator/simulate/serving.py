"""One tenant's requests against its instances, request by request: the simulator's inner loop.

Requests wait in one line. The router sends the first one where it is answered soonest (or, for
ELSA, to the slowest instance that is still in time), drops it where no instance can meet its
deadline any more, and fills the batch with those that wait behind it as long as the first one
stays in time. The router goes by the times it saw in the slot before: where the neighbours
begin to press, batches take longer than it thinks, which is how a request becomes late.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.plan.compiled import compiled

Floats = NDArray[np.float64]

IN_TIME, GOODPUT, LATE, DROPPED, RECONFIGURING, WAITED_S, KINDS = range(7)
"""What is counted, and in which place. GOODPUT: those in time that are right, or expected to be;
WAITED_S: seconds between arrival and start, summed."""


class Workers(NamedTuple):
    """The worker processes of a tenant in a window, one entry each, slowest first."""

    latency_s: Floats
    """Worker x batch size: seconds of a batch, nobody beside it. Column 0 is unused."""
    ready_s: Floats
    until_s: Floats
    """It begins no batch from here on; what it holds it finishes."""
    free_s: Floats
    """When it is done with what it holds; updated."""


class Conditions(NamedTuple):
    """What holds for the tenant over the window."""

    begin_s: float
    end_s: float
    slo_s: float
    batch: int
    thrifty: bool
    slot_s: float
    slowdown: Floats
    """Per slot: by what factor batches that begin in it take longer."""
    switch_s: Floats
    """When the accuracy becomes the one of the same place; the first is the window's begin."""
    accuracy: Floats
    cold_from_s: Floats
    """Spans in which some instance of the tenant is not yet warm, in order and apart."""
    cold_to_s: Floats


@compiled
def serve(
    arrival_s: Floats, draw: Floats, drawn: bool, workers: Workers, now: Conditions
) -> tuple[Floats, int]:
    """Serve the window. Returns what was counted, and the place of the first that still waits."""
    counted = np.zeros(KINDS)
    latency_s, ready_s, until_s, free_s = workers  # taken out of the tuple once, not per request
    switch_s, cold_from_s, cold_to_s = now.switch_s, now.cold_from_s, now.cold_to_s
    active = np.empty(len(ready_s), dtype=np.int64)
    head, known, slot, version, cold, pace = 0, 0, -1, 0, 0, 1.0
    while head < len(arrival_s):
        came = arrival_s[head]
        deadline = came + now.slo_s
        if max(0, int((came - now.begin_s) / now.slot_s)) > slot:
            slot = max(0, int((came - now.begin_s) / now.slot_s))
            known = _alive(ready_s, until_s, came, deadline + now.slot_s, active)
            pace = now.slowdown[min(len(now.slowdown), max(1, slot)) - 1]
        chosen, start, soonest = -1, 0.0, deadline
        for place in range(known):  # the router; in place, as a call would halve the speed
            each = active[place]
            if now.thrifty and chosen >= 0 and latency_s[each, 1] < latency_s[chosen, 1]:
                break  # the slower ones are in time: among equals the soonest is taken
            begin = max(came, now.begin_s, free_s[each], ready_s[each])
            finish = begin + pace * latency_s[each, 1]
            if finish <= soonest and begin < until_s[each] and (finish < soonest or chosen < 0):
                chosen, start, soonest = each, begin, finish
        if (chosen < 0 and deadline > now.end_s) or (chosen >= 0 and start >= now.end_s):
            break  # it is the next window's to answer
        cold = _reached(cold_to_s, cold, came)
        reconfiguring = cold < len(cold_from_s) and cold_from_s[cold] <= came
        if chosen < 0:
            counted[DROPPED] += 1
            counted[RECONFIGURING] += reconfiguring
            head += 1
            continue
        size = _fill(
            arrival_s, head, start, (deadline - start) / pace, latency_s, chosen, now.batch
        )
        when = min(len(now.slowdown) - 1, max(0, int((start - now.begin_s) / now.slot_s)))
        finish = start + latency_s[chosen, size] * now.slowdown[when]
        free_s[chosen] = finish
        if switch_s[version] > start:
            version = 0  # batches do not begin in the order in which they are sent
        version = _reached(switch_s, version + 1, start) - 1
        for each in range(head, head + size):
            counted[WAITED_S] += start - arrival_s[each]
            if finish > arrival_s[each] + now.slo_s:
                counted[LATE] += 1
                counted[RECONFIGURING] += reconfiguring
            else:
                right = now.accuracy[version]
                if drawn:
                    right = 1.0 if draw[each] < right else 0.0
                counted[IN_TIME] += 1
                counted[GOODPUT] += right
        head += size
    return counted, head


@compiled
def _alive(
    ready_s: Floats, until_s: Floats, came: float, latest: float, active: NDArray[np.int64]
) -> int:
    """The workers that a request of this slot could reach; they keep their order."""
    known = 0
    for each in range(len(ready_s)):
        if until_s[each] > came and ready_s[each] <= latest:
            active[known] = each
            known += 1
    return known


@compiled
def _fill(
    arrival_s: Floats,
    head: int,
    start: float,
    left_s: float,
    latency_s: Floats,
    chosen: int,
    batch: int,
) -> int:
    """How many go together: those that wait at `start`, as long as the first stays in time."""
    size = 1
    while (
        size < batch
        and head + size < len(arrival_s)
        and arrival_s[head + size] <= start
        and latency_s[chosen, size + 1] <= left_s
    ):
        size += 1
    return size


@compiled
def _reached(moments_s: Floats, place: int, now_s: float) -> int:
    """The place of the first moment that is still to come, from `place` on."""
    while place < len(moments_s) and moments_s[place] <= now_s:
        place += 1
    return place
