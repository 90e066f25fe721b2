"""Serves one tenant's requests on its instances, request by request: the simulator's inner loop.

As in the live router, requests wait in one queue. The router sends the first request to the
instance that answers it soonest (with ELSA, to the slowest of the instances that are free first).
It drops the request if no instance can meet its deadline. It fills the batch with the requests
behind it as long as the first one stays in time. The router expects the durations of the previous
slot. When neighbours start to run, batches take longer than expected, which makes requests late.

A standby answers a full batch on slices that are lent to it, while the worker there has no batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.planning.kernels import compiled, compiled_inner

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

IN_TIME, GOODPUT, LATE, DROPPED, RECONFIGURING, WAITED_S, KINDS = range(7)
"""Columns of the counts. GOODPUT: requests in time with a correct answer, or their expected number.
WAITED_S: sum of the seconds between arrival and start."""


class WorkerColumns(NamedTuple):
    """The worker processes of a tenant in a window, one entry worker, slowest first."""

    latency_s: Floats
    """Seconds of a batch without neighbours, by worker and batch size. Column 0 is unused."""
    ready_s: Floats
    until_s: Floats
    """From this time on it starts no batch; it finishes the batch it has."""
    free_s: Floats
    """When it finishes its current batch; updated."""
    own: int = -1
    """Entries from this one on serve full batches on slices of other tenants; negative: none do."""
    process: Places = np.empty(0, np.int64)
    """The first entry of the same process, whose `free_s` counts; empty: worker is a process."""


class Conditions(NamedTuple):
    """The tenant's parameters for one window."""

    begin_s: float
    end_s: float
    slo_s: float
    batch: int
    slowest_first: bool
    slot_s: float
    slowdown: Floats
    """Per slot, the factor by which batches that start in it take longer."""
    switch_s: Floats
    """When worker accuracy takes effect; the first entry is the start of the window."""
    accuracy: Floats
    cold_from_s: Floats
    """Disjoint sorted spans in which an instance of the tenant is not warm yet."""
    cold_to_s: Floats
    fixed_s: float = 0.0
    """Seconds of every batch that neighbours do not change."""


PLACE, START, END, ROWS, CAME, ANSWERED, WAITING, BATCH_COLUMNS = range(8)
"""Columns of a batch: its worker, its times, its requests, when the oldest arrived, how many were
in time, how many others waited when it began."""
UNKEPT = np.empty((0, BATCH_COLUMNS))


def serve(
    arrival_s: Floats,
    draw: Floats,
    drawn: bool,
    workers: WorkerColumns,
    now: Conditions,
    sent: Floats = UNKEPT,
) -> tuple[Floats, int]:
    """Serve the window. Returns the counts and the index of the first request that still waits.

    `sent`: rows of BATCH_COLUMNS, filled with batches as far as there are any.
    """
    counted, (active, full) = np.zeros(KINDS), np.ones((2, len(workers.ready_s)), np.int64)
    if not len(workers.process):
        workers = workers._replace(process=np.arange(len(workers.ready_s)))
    if workers.own < 0:
        workers = workers._replace(own=len(workers.ready_s))
    head = _serve(arrival_s, draw, drawn, workers, now, active, full, counted, sent)
    return counted, head


@compiled
def _serve(
    arrival_s: Floats,
    draw: Floats,
    drawn: bool,
    workers: WorkerColumns,
    now: Conditions,
    active: Places,
    full: Places,
    counted: Floats,
    sent: Floats,
) -> int:
    """Fill `counted`, and `sent` if it has rows. `active` and `full`: room for a number per worker,
    all 1."""
    latency_s, ready_s, until_s, free_s, own, process = workers  # unpacked once, not per request
    switch_s, cold_from_s, cold_to_s = now.switch_s, now.cold_from_s, now.cold_to_s
    _find_full_batches(latency_s, now.slo_s, full)
    head, reachable, slot, version, cold, pace, room, batches = 0, 0, -1, 0, 0, 1.0, 1, 0
    while head < len(arrival_s):
        came = arrival_s[head]
        deadline = came + now.slo_s
        if max(0, int((came - now.begin_s) / now.slot_s)) > slot:
            slot = max(0, int((came - now.begin_s) / now.slot_s))
            reachable = _alive(ready_s, until_s, came, deadline + now.slot_s, active)
            pace = now.slowdown[min(len(now.slowdown), max(1, slot)) - 1]
            room = _room(latency_s, full, active, reachable, own, now.slo_s)
        chosen, start, soonest = -1, 0.0, deadline
        for place in range(reachable):  # the router, inlined, because a call would halve the speed
            worker = active[place]
            begin = max(came, now.begin_s, free_s[process[worker]], ready_s[worker])
            if worker >= own:
                begin = max(begin, _arrival(arrival_s, head + full[worker] - 1))
            finish = begin + now.fixed_s + pace * latency_s[worker, 1]
            if finish > deadline or begin >= until_s[worker]:
                continue
            # slowest first: the slowest of those that are free first; the slowest come first
            if chosen < 0 or (begin < start if now.slowest_first else finish < soonest):
                chosen, start, soonest = worker, begin, finish
        if (chosen < 0 and deadline > now.end_s) or (chosen >= 0 and start >= now.end_s):
            break  # the next window answers it
        cold = _reached(cold_to_s, cold, came)
        reconfiguring = cold < len(cold_from_s) and cold_from_s[cold] <= came
        if chosen < 0:
            counted[DROPPED] += 1
            counted[RECONFIGURING] += reconfiguring
            head += 1
            continue
        crowd = head + full[chosen] - 1
        if now.batch > 1 and crowd < len(arrival_s) and arrival_s[crowd] <= start:
            spare_s = now.slo_s - now.fixed_s - pace * latency_s[chosen, full[chosen]]
            passed = _passed_over(arrival_s, head, start, spare_s, full[chosen], room)
            counted[DROPPED] += passed
            counted[RECONFIGURING] += passed * reconfiguring
            head += passed
        left_s = arrival_s[head] + now.slo_s - start - now.fixed_s
        size = _fill(arrival_s, head, start, left_s / pace, latency_s, chosen, now.batch)
        when = min(len(now.slowdown) - 1, max(0, int((start - now.begin_s) / now.slot_s)))
        finish = start + now.fixed_s + latency_s[chosen, size] * now.slowdown[when]
        free_s[process[chosen]] = finish
        # batches do not begin in the order in which they are sent
        version = _reached(switch_s, 1 if switch_s[version] > start else version + 1, start) - 1
        batch = (arrival_s[head : head + size], draw[head : head + size])
        _settle(
            counted, batch, drawn, (start, finish), now.slo_s, now.accuracy[version], reconfiguring
        )
        batches = _keep(sent, batches, (start, finish), chosen, arrival_s, head, size, now.slo_s)
        head += size
    return head


@compiled_inner
def _arrival(arrival_s: Floats, place: int) -> float:
    """When the request at an index arrives; never if there is none."""
    return arrival_s[place] if place < len(arrival_s) else np.inf


@compiled_inner
def _keep(
    sent: Floats,
    batches: int,
    span_s: tuple[float, float],
    worker: int,
    arrival_s: Floats,
    head: int,
    size: int,
    slo_s: float,
) -> int:
    """Keep a batch if there is a row for it; returns how many are kept. `span_s`: start and end."""
    if batches == len(sent):
        return batches
    row, (start, finish), behind = sent[batches], span_s, head + size
    row[PLACE], row[START], row[END] = worker, start, finish
    row[ROWS], row[ANSWERED] = size, 0
    row[CAME], row[WAITING] = arrival_s[head], _later_than(arrival_s, behind, start) - behind
    for request in range(head, behind):
        row[ANSWERED] += finish <= arrival_s[request] + slo_s
    return batches + 1


@compiled_inner
def _settle(
    counted: Floats,
    batch: tuple[Floats, Floats],
    drawn: bool,
    span_s: tuple[float, float],
    slo_s: float,
    accuracy: float,
    reconfiguring: bool,
) -> None:
    """Count the requests of a batch. `batch`: arrivals and draws; `span_s`: start and end."""
    (arrival_s, draw), (start, finish) = batch, span_s
    for request in range(len(arrival_s)):
        counted[WAITED_S] += start - arrival_s[request]
        if finish > arrival_s[request] + slo_s:
            counted[LATE] += 1
            counted[RECONFIGURING] += reconfiguring
            continue
        right = accuracy
        if drawn:
            right = 1.0 if draw[request] < accuracy else 0.0
        counted[IN_TIME] += 1
        counted[GOODPUT] += right


@compiled_inner
def _alive(ready_s: Floats, until_s: Floats, came: float, latest: float, active: Places) -> int:
    """Select the workers that a request of this slot could reach; they keep their order."""
    reachable = 0
    for worker in range(len(ready_s)):
        if until_s[worker] > came and ready_s[worker] <= latest:
            active[reachable] = worker
            reachable += 1
    return reachable


@compiled_inner
def _find_full_batches(latency_s: Floats, slo_s: float, full: Places) -> None:
    """Per worker, the largest batch that meets the objective after waiting for another such
    batch; `full` is 1 before."""
    for worker in range(len(latency_s)):
        for batch in range(2, latency_s.shape[1]):
            if 2 * latency_s[worker, batch] <= slo_s:
                full[worker] = batch


@compiled_inner
def _room(
    latency_s: Floats,
    full: Places,
    active: Places,
    reachable: int,
    own: int,
    slo_s: float,
) -> int:
    """The queue limit: a full batch per worker, or what all workers can do before the deadline of
    the last request.

    Workers on slices of other tenants count only in that one full batch for them may wait. There is
    no limit if there are no others.
    """
    rows, borrowed, rate_rps, soonest_s = 0, 0, 0.0, float(slo_s)
    for place in range(reachable):
        worker = active[place]
        if worker >= own:
            borrowed = min(borrowed, full[worker]) if borrowed else full[worker]
            continue
        full_s = latency_s[worker, full[worker]]
        rows += full[worker]
        rate_rps += full[worker] / full_s
        soonest_s = min(soonest_s, full_s)
    if rows == 0 and borrowed:
        return 1 << 62
    return max(rows, borrowed, int((slo_s - soonest_s) * rate_rps))


@compiled_inner
def _passed_over(
    arrival_s: Floats, head: int, start: float, spare_s: float, full: int, room: int
) -> int:
    """The number of oldest requests to drop under overload, as the live router does.

    These are the requests beyond the queue limit, and those that leave no time for a full batch
    while one waits behind them: small batches of the most urgent requests would lose more requests
    than they save. See serving/router.py.
    """
    behind = _later_than(arrival_s, head, start)
    oldest = max(head, behind - room)
    in_time = _later_than(arrival_s, oldest, start - spare_s)
    return (in_time if in_time <= behind - full else oldest) - head


@compiled_inner
def _later_than(arrival_s: Floats, place: int, moment_s: float) -> int:
    """The index of the first arrival after a time, from `place` on. It is usually close."""
    step = 1
    while place + step <= len(arrival_s) and arrival_s[place + step - 1] <= moment_s:
        place += step
        step *= 2
    while step > 0:
        if place + step <= len(arrival_s) and arrival_s[place + step - 1] <= moment_s:
            place += step
        step //= 2
    return place


@compiled_inner
def _fill(
    arrival_s: Floats,
    head: int,
    start: float,
    left_s: float,
    latency_s: Floats,
    chosen: int,
    batch: int,
) -> int:
    """The batch size: the requests waiting at `start`, as long as the first one stays in time."""
    size = 1
    while (
        size < batch
        and head + size < len(arrival_s)
        and arrival_s[head + size] <= start
        and latency_s[chosen, size + 1] <= left_s
    ):
        size += 1
    return size


@compiled_inner
def _reached(moments_s: Floats, place: int, now_s: float) -> int:
    """The index of the first moment after `now_s`, from `place` on."""
    while place < len(moments_s) and moments_s[place] <= now_s:
        place += 1
    return place
