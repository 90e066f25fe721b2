"""Prices under the `survivors` charge: a certified bound on every plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from migrator.core.instance import Kind, Task
from migrator.core.placement import Multiset
from migrator.core.problem import Problem, Tenant
from migrator.plan.exact.prices import MOST_STEPS, Answer, ascend, first_prices
from migrator.plan.exact.space import Floats, Ints, Schedule, Space, Start
from migrator.plan.exact.tables import NEVER, Tables, expected_throughput
from migrator.plan.kernels import compiled


def bound_any_plan(
    space: Space, tables: Tables, leads: Sequence[LeadTable], running: Schedule
) -> float:
    """A bound on every plan, whatever schedule it adds to what is `running`."""
    first = first_prices(space, tables)
    answers = []
    for lead, durations, start in zip(leads, tables.durations, running, strict=True):
        end, size = _ending(space, start, len(first) if not durations.any() else -1)
        answers.append(_answers_of(lead, durations, end, size))
    offered = space.geometry.configuration_counts
    _, bound = ascend(first, offered, answers, MOST_STEPS)
    return bound


def _ending(space: Space, start: Start | None, otherwise: int) -> tuple[int, int]:
    """When a retraining ends and on which size index; `otherwise` and -1 where there is none."""
    if start is None:
        return otherwise, -1
    return start.end, int(space.geometry.place_size[start.place])


def _answers_of(lead: LeadTable, durations: Ints, end: int, size: int) -> Answer:
    def answer(prices: Floats, rents: Floats, surplus: Floats) -> float:
        return float(_answer(lead, durations, end, size, prices, rents, surplus))

    return answer


@compiled
def _answer(
    table: LeadTable,
    durations: Ints,
    fixed_end: int,
    fixed_size: int,
    prices: Floats,
    rents: Floats,
    surplus: Floats,
) -> float:
    """One tenant's best priced life; what it uses is taken off the surplus.

    `fixed_end` >= 0: its retraining ends there and costs nothing more, on size index
    `fixed_size` (-1: there is none and it leaves no instance behind).
    """
    slots, patterns = prices.shape[0], table.counts.shape[0]
    cost, waited = _costs(table, prices, rents)
    forward, came, held = _forward(table, cost, waited)
    backward = np.empty((slots + 1, patterns))
    follow, kept = np.zeros((slots, patterns), np.int64), np.zeros((slots, patterns), np.int64)
    backward[slots] = 0.0
    for t in range(slots - 1, -1, -1):
        _back(t, table, cost, waited, backward[t + 1], backward[t], follow[t], kept[t])
    value, end, size, before, after = _completion(
        table, durations, fixed_end, fixed_size, rents, forward, backward
    )
    if fixed_end < 0 and size >= 0:
        for t in range(end - durations[size], end):
            surplus[t, size] -= 1.0
    p = before
    for t in range(end - 1, -1, -1):
        s = came[t, p]
        _use(t, s, table, surplus)
        p = held[t, table.steps[s, 0]]
    p = after
    for t in range(end, slots):
        s = follow[t, kept[t, p]]
        _use(t, s, table, surplus)
        p = table.steps[s, 1]
    return value


@compiled
def _costs(table: LeadTable, prices: Floats, rents: Floats) -> tuple[Floats, Floats]:
    """Price of serving a pattern in a slot; price of having held what begins to serve then."""
    slots, sizes = prices.shape
    cost = np.zeros((slots, table.counts.shape[0]))
    waited = np.zeros((slots, table.added.shape[0]))
    for t in range(slots):
        for k in range(sizes):
            ahead = rents[k, t] - rents[k, max(0, t - table.lead)]
            for p in range(cost.shape[1]):
                cost[t, p] += table.counts[p, k] * prices[t, k]
            for s in range(waited.shape[1]):
                waited[t, s] += table.added[s, k] * ahead
    return cost, waited


@compiled
def _forward(table: LeadTable, cost: Floats, waited: Floats) -> tuple[Floats, Ints, Ints]:
    """(best of slots 0..t-1 ending in p, the step that led there, what was dropped before)."""
    slots, patterns = cost.shape
    forward = np.full((slots + 1, patterns), NEVER)
    came, held = np.zeros((slots, patterns), np.int64), np.zeros((slots, patterns), np.int64)
    rest = np.empty(patterns)
    for t in range(slots):
        for p in range(patterns):
            rest[p] = forward[t, p] if t > 0 else (0.0 if table.before[p] else NEVER)
            held[t, p] = p
        for i in range(table.fewer.shape[0] - 1, -1, -1):  # dropping instances costs nothing
            p, less = table.fewer[i, 0], table.fewer[i, 1]
            if rest[p] > rest[less]:
                rest[less], held[t, less] = rest[p], held[t, p]
        for s in range(table.steps.shape[0]):
            u, w = table.steps[s, 0], table.steps[s, 1]
            if u != w and t < table.first_new:
                continue
            worth = rest[u] + table.accuracy[0] * table.served[t, s] - cost[t, w] - waited[t, s]
            if worth > forward[t + 1, w]:
                forward[t + 1, w], came[t, w] = worth, s
    return forward, came, held


@compiled
def _back(
    t: int,
    table: LeadTable,
    cost: Floats,
    waited: Floats,
    later: Floats,
    now: Floats,
    follow: Ints,
    kept: Ints,
) -> None:
    """now[p]: best from slot t on, retrained, when p served before; `kept`, `follow`: how."""
    for p in range(now.shape[0]):
        now[p], kept[p] = NEVER, p
    for s in range(table.steps.shape[0]):
        u, w = table.steps[s, 0], table.steps[s, 1]
        if u != w and t < table.first_new:
            continue
        worth = table.accuracy[1] * table.served[t, s] - cost[t, w] - waited[t, s] + later[w]
        if worth > now[u]:
            now[u], follow[u] = worth, s
    for i in range(table.fewer.shape[0]):
        p, less = table.fewer[i, 0], table.fewer[i, 1]
        if now[less] > now[p]:
            now[p], kept[p] = now[less], kept[less]


@compiled
def _completion(
    table: LeadTable,
    durations: Ints,
    fixed_end: int,
    fixed_size: int,
    rents: Floats,
    forward: Floats,
    backward: Floats,
) -> tuple[float, int, int, int, int]:
    """The best (value, end, size, serving before it, serving on after it).

    Where an optional retraining is left out, the end is the window's and the size is -1.
    """
    value, at, on, before, after = NEVER, forward.shape[0] - 1, -1, 0, 0
    if table.optional and fixed_end < 0:
        for p in range(forward.shape[1]):
            if forward[at, p] > value:
                value, before, after = forward[at, p], p, p
    first, last = (1, forward.shape[0] - 1) if fixed_end < 0 else (fixed_end, fixed_end)
    for end in range(first, last + 1):
        for k in range(durations.shape[0]):
            paid = 0.0
            if fixed_end < 0:
                if durations[k] == 0 or durations[k] > end:
                    continue
                paid = rents[k, end] - rents[k, end - durations[k]]
            elif k != max(fixed_size, 0):
                continue
            for p in range(forward.shape[1]):
                # the instance it was retrained on may serve at once
                then = p if fixed_end >= 0 and fixed_size < 0 else table.with_size[p, k]
                worth = forward[end, p] + backward[end, then] - paid + table.later
                if worth > value:
                    value, at, on, before, after = worth, end, k, p, then
    return value, at, on, before, after


@compiled
def _use(t: int, s: int, table: LeadTable, surplus: Floats) -> None:
    for k in range(table.counts.shape[1]):
        surplus[t, k] -= table.counts[table.steps[s, 1], k]
        for earlier in range(max(0, t - table.lead), t):
            surplus[earlier, k] -= table.added[s, k]


class LeadTable(NamedTuple):
    """A tenant's serving patterns, how one follows another, and what a slot is then worth.

    Patterns ascend by number of instances; the first is empty: everything may still be cold.
    """

    counts: Floats
    """[pattern, size]"""
    fewer: Ints
    """[n, 2]: (pattern, the same less one instance)"""
    steps: Ints
    """[n, 2]: (what of the slot before serves on, what serves now); equal where nothing is new"""
    added: Floats
    """[step, size]: instances that begin to serve"""
    served: Floats
    """[slot, step]: expected throughput"""
    accuracy: Floats
    """[done]"""
    with_size: Ints
    """[pattern, size]: the pattern plus one instance that was retrained on; itself if it can't"""
    lead: int
    """whole slots for which a new instance is held before it serves"""
    first_new: int
    """first slot in which an instance that is new to the tenant can serve"""
    before: Ints
    """patterns that can serve on from before slot 0, as 0/1"""
    optional: bool
    """whether the retraining may be left out"""
    later: float
    """goodput after the window that a completed retraining adds"""


def build_lead_table(problem: Problem, space: Space, m: int) -> LeadTable:
    """Tabulate tenant `m`."""
    tenant, sizes = problem.tenants[m], space.geometry.sizes
    patterns = _serving_patterns(space, m)
    index = {each: i for i, each in enumerate(patterns)}
    steps = np.array(
        [(index[u], index[w]) for w in patterns for u in _sub_multisets(w) if u in index], np.int64
    )
    counts = np.array([[p.count(size) for size in sizes] for p in patterns], np.float64)
    total = np.array([sum(tenant.capability[size] for size in p) for p in patterns])
    slots_over = min(tenant.overhead_s / problem.slot_s, problem.slots + 1.0)
    lead = int(slots_over + 1e-9)
    fresh = min(1.0, lead + 1.0 - slots_over)
    kept = total[steps[:, 0]]
    return LeadTable(
        counts=counts,
        fewer=np.array(
            [
                (index[p], index[less])
                for p in patterns
                for less in sorted({p[:i] + p[i + 1 :] for i in range(len(p))})
            ],
            np.int64,
        ).reshape(-1, 2),
        steps=steps,
        added=counts[steps[:, 1]] - counts[steps[:, 0]],
        served=expected_throughput(tenant, kept + fresh * (total[steps[:, 1]] - kept)),
        accuracy=np.array([tenant.accuracy_pre, _final_accuracy(problem, tenant)]),
        with_size=np.array(
            [
                [index.get(tuple(sorted((*p, size), reverse=True)), index[p]) for size in sizes]
                for p in patterns
            ],
            np.int64,
        ),
        lead=lead,
        first_new=lead + (1 if problem.initial is None else 0),
        before=_serving_before(problem, tenant, patterns),
        optional=tenant.retraining_optional,
        later=tenant.later_goodput if _retrains(problem, tenant) else 0.0,
    )


def _serving_patterns(space: Space, m: int) -> tuple[Multiset, ...]:
    """Sub-multisets of what the tenant can hold beside the others' minimum."""
    found = {u for p in space.patterns[m] for u in _sub_multisets(p)}
    return tuple(sorted(found, key=lambda p: (len(p), p)))


def _sub_multisets(pattern: Multiset) -> set[Multiset]:
    found: set[Multiset] = {()}
    for size in pattern:
        found |= {tuple(sorted((*each, size), reverse=True)) for each in found}
    return found


def _final_accuracy(problem: Problem, tenant: Tenant) -> float:
    return tenant.accuracy_post if _retrains(problem, tenant) else tenant.accuracy_pre


def _retrains(problem: Problem, tenant: Tenant) -> bool:
    """Whether a retraining runs or may be started."""
    return problem.may_retrain(tenant) or problem.slots_left(tenant) is not None


def _serving_before(problem: Problem, tenant: Tenant, patterns: tuple[Multiset, ...]) -> Ints:
    if problem.initial is None:
        return np.ones(len(patterns), np.int64)
    task = Task(tenant.name, Kind.INFERENCE)
    # an instance it retrains on may turn to inference only once the retraining is done
    held = tuple(sorted(i.gpcs for i in problem.initial.instances if i.task == task))
    able = tuple(size for size in held if size in tenant.capability)
    return np.array([p in _sub_multisets(able) for p in patterns], np.int64)
