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

from migrator.plan.kernels import compiled

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

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
    full = _full_batches(latency_s, now.slo_s)
    head, known, slot, version, cold, pace, room = 0, 0, -1, 0, 0, 1.0, 1
    while head < len(arrival_s):
        came = arrival_s[head]
        deadline = came + now.slo_s
        if max(0, int((came - now.begin_s) / now.slot_s)) > slot:
            slot = max(0, int((came - now.begin_s) / now.slot_s))
            known = _alive(ready_s, until_s, came, deadline + now.slot_s, active)
            pace = now.slowdown[min(len(now.slowdown), max(1, slot)) - 1]
            room = _room(latency_s, full, active, known, now.slo_s)
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
        crowd = head + full[chosen] - 1
        if now.batch > 1 and crowd < len(arrival_s) and arrival_s[crowd] <= start:
            spare_s = now.slo_s - pace * latency_s[chosen, full[chosen]]
            passed = _passed_over(arrival_s, head, start, spare_s, full[chosen], room)
            counted[DROPPED] += passed
            counted[RECONFIGURING] += passed * reconfiguring
            head += passed
        left_s = arrival_s[head] + now.slo_s - start
        size = _fill(arrival_s, head, start, left_s / pace, latency_s, chosen, now.batch)
        when = min(len(now.slowdown) - 1, max(0, int((start - now.begin_s) / now.slot_s)))
        finish = start + latency_s[chosen, size] * now.slowdown[when]
        free_s[chosen] = finish
        if switch_s[version] > start:
            version = 0  # batches do not begin in the order in which they are sent
        version = _reached(switch_s, version + 1, start) - 1
        batch = (arrival_s[head : head + size], draw[head : head + size])
        _settle(
            counted, batch, drawn, (start, finish), now.slo_s, now.accuracy[version], reconfiguring
        )
        head += size
    return counted, head


@compiled
def _settle(
    counted: Floats,
    batch: tuple[Floats, Floats],
    drawn: bool,
    span_s: tuple[float, float],
    slo_s: float,
    accuracy: float,
    reconfiguring: bool,
) -> None:
    """Count a batch; `batch`: arrivals and draws, `span_s`: when it began and ended."""
    (arrival_s, draw), (start, finish) = batch, span_s
    for each in range(len(arrival_s)):
        counted[WAITED_S] += start - arrival_s[each]
        if finish > arrival_s[each] + slo_s:
            counted[LATE] += 1
            counted[RECONFIGURING] += reconfiguring
            continue
        right = accuracy
        if drawn:
            right = 1.0 if draw[each] < accuracy else 0.0
        counted[IN_TIME] += 1
        counted[GOODPUT] += right


@compiled
def _alive(ready_s: Floats, until_s: Floats, came: float, latest: float, active: Places) -> int:
    """The workers that a request of this slot could reach; they keep their order."""
    known = 0
    for each in range(len(ready_s)):
        if until_s[each] > came and ready_s[each] <= latest:
            active[known] = each
            known += 1
    return known


@compiled
def _full_batches(latency_s: Floats, slo_s: float) -> Places:
    """Per worker, the largest batch with room in the objective to wait for the one before it."""
    full = np.ones(len(latency_s), dtype=np.int64)
    for worker in range(len(latency_s)):
        for batch in range(2, latency_s.shape[1]):
            if 2 * latency_s[worker, batch] <= slo_s:
                full[worker] = batch
    return full


@compiled
def _room(latency_s: Floats, full: Places, active: Places, known: int, slo_s: float) -> int:
    """How many may wait: a full batch each, or what all can do before the last one's deadline."""
    rows, rate_rps, soonest_s = 0, 0.0, slo_s
    for place in range(known):
        each = active[place]
        full_s = latency_s[each, full[each]]
        rows += full[each]
        rate_rps += full[each] / full_s
        soonest_s = min(soonest_s, full_s)
    return max(rows, int((slo_s - soonest_s) * rate_rps))


@compiled
def _passed_over(
    arrival_s: Floats, head: int, start: float, spare_s: float, full: int, room: int
) -> int:
    """How many of the oldest are given up in a crowd, as the live router does (serve/line.py).

    Those beyond the room there is, and those who leave no time for a full batch where one waits
    behind them: small batches of the most urgent would cost more requests than they save.
    """
    behind = _later_than(arrival_s, head, start)
    oldest = max(head, behind - room)
    in_time = _later_than(arrival_s, oldest, start - spare_s)
    return (in_time if in_time <= behind - full else oldest) - head


@compiled
def _later_than(arrival_s: Floats, place: int, moment_s: float) -> int:
    """The place of the first that comes after a moment, from `place` on; it is seldom far."""
    step = 1
    while place + step <= len(arrival_s) and arrival_s[place + step - 1] <= moment_s:
        place += step
        step *= 2
    while step > 0:
        if place + step <= len(arrival_s) and arrival_s[place + step - 1] <= moment_s:
            place += step
        step //= 2
    return place


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
