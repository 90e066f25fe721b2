"""Serves one tenant's requests on its instances, request by request: the simulator's inner loop.

As in the live router, requests wait in one queue. The router sends the first request to the
instance that answers it soonest (with ELSA, to the slowest of the instances that are free first).
It drops the request if no instance can meet its deadline. It fills the batch with the requests
behind it as long as the first one stays in time. The router expects the durations of the previous
slot. When neighbours start to run, batches take longer than expected, which makes requests late.

The other processes on the GPU slow a batch down. With MIG they do not, because every instance has
its own memory. With MPS the neighbours take bandwidth in proportion to the SMs they keep busy. The
slowdown beside a training on `INTERFERING_PART` of the SMs is measured per model. Unpartitioned,
the busy processes take turns on the GPU: a turn of a training delays a batch by the measured
`contention`, a turn of a process that serves is one batch, or that time if it is shorter. A
training is always busy; a serving process is busy while it has requests. A process is slowed down
by the load of all processes except itself, including those of its own tenant.

A standby answers a full batch on slices that are lent to it, while the worker there has no batch.
What that adds to the load of the GPU is estimated per slot from the surplus of requests.

An estimate of a retraining runs on an instance where a worker serves. With MIG the two take turns;
with MPS the estimate is one more neighbour with the SMs of that share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrator.control.observation import Sharing
from migrator.core.problem import Kind
from migrator.core.profiles import INTERFERING_PART, Service
from migrator.plan.kernels import compiled, compiled_inner
from migrator.simulate.gpu import Worker

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

IN_TIME, GOODPUT, LATE, DROPPED, RECONFIGURING, WAITED_S, KINDS = range(7)
"""Columns of the counts. GOODPUT: requests in time with a correct answer, or their expected number.
WAITED_S: sum of the seconds between arrival and start."""


class Workers(NamedTuple):
    """The worker processes of a tenant in a window, one entry each, slowest first."""

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
    """The first entry of the same process, whose `free_s` counts; empty: each is a process."""


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
    """When each accuracy takes effect; the first entry is the start of the window."""
    accuracy: Floats
    cold_from_s: Floats
    """Disjoint sorted spans in which an instance of the tenant is not warm yet."""
    cold_to_s: Floats


UNKEPT = np.empty((0, 3))


def serve(
    arrival_s: Floats,
    draw: Floats,
    drawn: bool,
    workers: Workers,
    now: Conditions,
    sent: Floats = UNKEPT,
) -> tuple[Floats, int]:
    """Serve the window. Returns the counts and the index of the first request that still waits.

    `sent`: rows for worker, start and end of each batch, filled as far as there are any.
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
    workers: Workers,
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
    head, known, slot, version, cold, pace, room, batches = 0, 0, -1, 0, 0, 1.0, 1, 0
    while head < len(arrival_s):
        came = arrival_s[head]
        deadline = came + now.slo_s
        if max(0, int((came - now.begin_s) / now.slot_s)) > slot:
            slot = max(0, int((came - now.begin_s) / now.slot_s))
            known = _alive(ready_s, until_s, came, deadline + now.slot_s, active)
            pace = now.slowdown[min(len(now.slowdown), max(1, slot)) - 1]
            room = _room(latency_s, full, active, known, own, now.slo_s)
        chosen, start, soonest = -1, 0.0, deadline
        for place in range(known):  # the router, inlined, because a call would halve the speed
            each = active[place]
            begin = max(came, now.begin_s, free_s[process[each]], ready_s[each])
            if each >= own:
                begin = max(begin, _arrival(arrival_s, head + full[each] - 1))
            finish = begin + pace * latency_s[each, 1]
            if finish > deadline or begin >= until_s[each]:
                continue
            # slowest first: the slowest of those that are free first; the slowest come first
            if chosen < 0 or (begin < start if now.slowest_first else finish < soonest):
                chosen, start, soonest = each, begin, finish
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
            spare_s = now.slo_s - pace * latency_s[chosen, full[chosen]]
            passed = _passed_over(arrival_s, head, start, spare_s, full[chosen], room)
            counted[DROPPED] += passed
            counted[RECONFIGURING] += passed * reconfiguring
            head += passed
        left_s = arrival_s[head] + now.slo_s - start
        size = _fill(arrival_s, head, start, left_s / pace, latency_s, chosen, now.batch)
        when = min(len(now.slowdown) - 1, max(0, int((start - now.begin_s) / now.slot_s)))
        finish = start + latency_s[chosen, size] * now.slowdown[when]
        free_s[process[chosen]] = finish
        batches = _keep(sent, batches, chosen, start, finish)
        # batches do not begin in the order in which they are sent
        version = _reached(switch_s, 1 if switch_s[version] > start else version + 1, start) - 1
        batch = (arrival_s[head : head + size], draw[head : head + size])
        _settle(
            counted, batch, drawn, (start, finish), now.slo_s, now.accuracy[version], reconfiguring
        )
        head += size
    return head


@compiled_inner
def _arrival(arrival_s: Floats, place: int) -> float:
    """When the request at an index arrives; never if there is none."""
    return arrival_s[place] if place < len(arrival_s) else np.inf


@compiled_inner
def _keep(sent: Floats, batches: int, worker: int, start: float, finish: float) -> int:
    """Keep a batch if there is a row for it; returns how many are kept."""
    if batches == len(sent):
        return batches
    sent[batches, 0], sent[batches, 1], sent[batches, 2] = worker, start, finish
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


@compiled_inner
def _alive(ready_s: Floats, until_s: Floats, came: float, latest: float, active: Places) -> int:
    """Select the workers that a request of this slot could reach; they keep their order."""
    known = 0
    for each in range(len(ready_s)):
        if until_s[each] > came and ready_s[each] <= latest:
            active[known] = each
            known += 1
    return known


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
    known: int,
    own: int,
    slo_s: float,
) -> int:
    """The queue limit: a full batch per worker, or what all workers can do before the deadline of
    the last request.

    Workers on slices of other tenants count only in that one full batch for them may wait. There is
    no limit if there are no others.
    """
    rows, borrowed, rate_rps, soonest_s = 0, 0, 0.0, float(slo_s)
    for place in range(known):
        each = active[place]
        if each >= own:
            borrowed = min(borrowed, full[each]) if borrowed else full[each]
            continue
        full_s = latency_s[each, full[each]]
        rows += full[each]
        rate_rps += full[each] / full_s
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
    than they save. See router/queue.py.
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


TRAINING_INTERFERENCE = 0.145
"""Measured slowdown of a training beside serving on `INTERFERING_PART` of the SMs, as a
fraction."""
TURNS_OF_SERVING = 0.65
"""Turns per turn of a training that a neighbour takes if it always serves; measured without MPS."""
_ROUNDS = 30
"""Repetitions until the turns of an unpartitioned GPU have settled."""


def training_speed(
    sharing: Sharing,
    board_sms: int,
    worker: Worker,
    alive: Sequence[Worker],
    active: Mapping[str, float],
    *,
    limited: bool = True,
) -> float:
    """The share of its full speed at which a training runs. `active`: busy share of each tenant.

    `limited`: MPS processes have no more SMs together than the GPU has.
    """
    if sharing is Sharing.MIG and worker.estimating:
        return 1 / (1 + TURNS_OF_SERVING * active[worker.task.tenant])
    if sharing is Sharing.MIG:
        return worker.duty
    if sharing is Sharing.UNPARTITIONED:
        others = sum(each.task.kind is Kind.RETRAINING for each in alive if each is not worker)
        serving = sum(
            active[each.task.tenant] for each in alive if each.task.kind is Kind.INFERENCE
        )
        return 1 / (1 + others + TURNS_OF_SERVING * serving)
    busy = sum(_pressure(board_sms, alive, active).values())
    beside = max(0.0, busy - worker.sms / board_sms * worker.duty)
    slower = 1 + TRAINING_INTERFERENCE * beside / INTERFERING_PART
    return worker.duty / slower / (max(1.0, busy) if limited else 1.0)


def activities(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    alive: Sequence[Worker],
    rates_rps: Mapping[str, float],
) -> dict[str, float]:
    """Per tenant, the share of the time for which its serving processes are busy."""
    if sharing is Sharing.UNPARTITIONED:
        return _turns(board_sms, services, alive, rates_rps)[0]
    return {each.tenant: _activity(each, alive, rates_rps[each.tenant]) for each in services}


def _turns(
    board_sms: int,
    services: Sequence[Service],
    alive: Sequence[Worker],
    rates_rps: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """How busy the serving processes of each tenant are without partitions, and their slowdown.

    Slower batches keep processes busy for longer, which makes batches slower: repeated until that
    settles.
    """
    trainings = sum(each.task.kind is Kind.RETRAINING for each in alive)
    many = {each.tenant: sum(_serves(e, each.tenant) for e in alive) for each in services}
    alone_s = {each.tenant: each.latency_s(1, board_sms) for each in services}
    delay_s = {each.tenant: each.profile.contention * alone_s[each.tenant] for each in services}
    batch = {each.tenant: max(1, each.full_batch(board_sms)) for each in services}
    batch_s = {each.tenant: each.latency_s(batch[each.tenant], board_sms) for each in services}
    busy = {each.tenant: 0.0 for each in services}
    took_s = dict(batch_s)
    for _ in range(_ROUNDS):
        for name, alone in batch_s.items():
            beside_s = trainings * delay_s[name]
            for other, number in many.items():
                others = number - (other == name)
                beside_s += max(0, others) * busy[other] * min(batch_s[other], delay_s[name])
            took_s[name] = alone + beside_s
            able_rps = many[name] * batch[name] / took_s[name]
            busy[name] = min(1.0, rates_rps[name] / able_rps) if able_rps else 0.0
    return busy, {name: seconds / batch_s[name] for name, seconds in took_s.items()}


def _activity(service: Service, workers: Sequence[Worker], rate_rps: float) -> float:
    mine = [each for each in workers if _serves(each, service.tenant)]
    able = sum(service.capability_rps(each.sms) * each.duty for each in mine)
    return min(1.0, rate_rps / able) if able else 0.0


def slowdowns(
    sharing: Sharing,
    board_sms: int,
    services: Sequence[Service],
    workers: Sequence[Sequence[Worker]],
    received_rps: Mapping[str, NDArray[np.float64]],
    *,
    limited: bool = True,
    lends: bool = False,
) -> dict[str, NDArray[np.float64]]:
    """Per tenant, the factor per slot by which its batches take longer. `workers` are per slot.

    `limited`: MPS processes have no more SMs together than the GPU has. `lends`: standbys serve on
    idle slices.
    """
    found = {each.tenant: np.ones(len(workers)) for each in services}
    if sharing is Sharing.MIG:
        return found
    for slot, alive in enumerate(workers):
        rates_rps = {name: float(rates[slot]) for name, rates in received_rps.items()}
        if sharing is Sharing.UNPARTITIONED:
            for name, slower in _turns(board_sms, services, alive, rates_rps)[1].items():
                found[name][slot] = slower
            continue
        active = activities(sharing, board_sms, services, alive, rates_rps)
        pressure = _pressure(board_sms, alive, active)
        busy = sum(pressure.values())
        if lends:
            busy += _borrowed(board_sms, services, alive, rates_rps, active)
        for service in services:
            own = pressure[service.tenant, Kind.INFERENCE]
            own /= max(1, sum(_serves(each, service.tenant) for each in alive))
            beside = (busy - own) * service.profile.interference / INTERFERING_PART
            found[service.tenant][slot] += beside
            if limited:
                found[service.tenant][slot] *= max(1.0, busy)
    return found


def _borrowed(
    board_sms: int,
    services: Sequence[Service],
    alive: Sequence[Worker],
    rates_rps: Mapping[str, float],
    active: Mapping[str, float],
) -> float:
    """The share of the GPU that standbys keep busy: the surplus of requests, on idle slices."""
    wanted = idle = 0.0
    for service in services:
        mine = [each for each in alive if _serves(each, service.tenant)]
        part = sum(each.sms * each.duty for each in mine) / board_sms
        able_rps = sum(service.capability_rps(each.sms) * each.duty for each in mine)
        idle += part * (1 - active[service.tenant])
        if able_rps:
            wanted += part * max(0.0, rates_rps[service.tenant] / able_rps - 1)
    return min(wanted, idle)


def slowdown_by_estimate(service: Service, sms: float, board_sms: int) -> float:
    """The factor by which batches take longer on a MIG instance that an estimate shares.

    A turn of the estimate delays a batch by the seconds that were measured on a whole GPU, and
    turns take at least the part of the time that they took there.
    """
    delay_s = service.profile.contention * service.latency_s(1, board_sms)
    turn = delay_s / service.latency_s(service.batch, sms)
    return 1 + max(turn, 1 / TURNS_OF_SERVING)


def _pressure(
    board_sms: int, alive: Sequence[Worker], active: Mapping[str, float]
) -> dict[tuple[str, Kind], float]:
    """The load of each task on the others: the share of the GPU it keeps busy."""
    pressure = {(tenant, kind): 0.0 for tenant in active for kind in Kind}
    for worker in alive:
        busy = 1.0 if worker.task.kind is Kind.RETRAINING else active[worker.task.tenant]
        part = worker.sms / board_sms * worker.duty
        pressure[worker.task.tenant, worker.task.kind] += part * busy
    return pressure


def _serves(worker: Worker, tenant: str) -> bool:
    return worker.task.tenant == tenant and worker.task.kind is Kind.INFERENCE
