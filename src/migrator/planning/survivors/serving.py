"""What tenants can serve with, slot by slot, when positions are left aside, and what it earns.

A *serving pattern* is the multiset of a tenant's instances that serve in a slot. An instance
that begins to serve has been held for the lead (the whole slots of the overhead) before. Those
that are held and wait to be warm, and those that retrain, are *extra* instances of the slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from migrator.core.catalogue import Multiset
from migrator.core.problem import Kind, Problem, Task, Tenant
from migrator.planning.arrays import Bools, Floats, Ints
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import (
    GoodputTables,
    expected_throughput,
    requests_short,
    stage_accuracies,
)


class ServingTables(NamedTuple):
    """The tenants' serving patterns, how one follows another, and what a slot is then worth.

    Patterns ascend by number of instances; the first is empty. Rows beyond a tenant's own
    number are not used.
    """

    patterns: Ints
    """[tenant]: how many it has"""
    counts: Floats
    """[tenant, pattern, size]"""
    fewer: Ints
    """[tenant, n, 2]: (pattern, the same less one instance); -1 ends"""
    steps: Ints
    """[tenant, n, 3]: (what of the slot before serves on, what serves now, the pattern of the
    instances that begin to serve); -1 ends"""
    served: Floats
    """[tenant, slot, step]: expected throughput"""
    lost: Floats
    """[tenant, slot, step]: the penalty of its floor"""
    accuracy: Floats
    """[tenant, stage]: before the retraining, then after one in each configuration, weighted"""
    with_size: Ints
    """[tenant, pattern, size]: plus one instance that was retrained on; itself if it can't"""
    lead: Ints
    """[tenant]: whole slots for which a new instance is held before it serves"""
    first_new: Ints
    """[tenant]: first slot in which an instance that is new to the tenant can serve"""
    before: Ints
    """[tenant, pattern]: 1 if it can serve on from before slot 0"""
    durations: Ints
    """[tenant, option]: slots of a retraining to be started, 0 where there is none. An option is
    a configuration and a size: configuration x sizes + size index"""
    end: Ints
    """[tenant]: slot at which a running retraining ends, -1 none; with nothing to retrain, the
    window's end"""
    end_size: Ints
    """[tenant]: size index of the running retraining, -1 none"""
    optional: Bools
    """[tenant]: its retraining may be left out"""
    later: Floats
    """[tenant, stage]: goodput after the window that its completed retraining adds, weighted"""


def build_serving(problem: Problem, space: Space, tables: GoodputTables) -> ServingTables:
    """Tabulate the tenants."""
    patterns_of = [serving_patterns(space, m) for m in range(len(problem.tenants))]
    lists = [_steps(patterns) for patterns in patterns_of]
    width = max(map(len, patterns_of))
    tenants, sizes = problem.tenants, space.geometry.sizes
    longest = max(len(steps) for steps, _ in lists)
    serving = ServingTables(
        patterns=np.array([len(patterns) for patterns in patterns_of], np.int64),
        counts=np.zeros((len(patterns_of), width, len(sizes))),
        fewer=np.full(
            (len(patterns_of), max(len(fewer) for _, fewer in lists) + 1, 2), -1, np.int64
        ),
        steps=np.full((len(patterns_of), longest + 1, 3), -1, np.int64),
        served=np.zeros((len(patterns_of), problem.slots, longest)),
        lost=np.zeros((len(patterns_of), problem.slots, longest)),
        accuracy=stage_accuracies(problem),
        with_size=np.zeros((len(patterns_of), width, len(sizes)), np.int64),
        lead=np.zeros(len(patterns_of), np.int64),
        first_new=np.zeros(len(patterns_of), np.int64),
        before=np.zeros((len(patterns_of), width), np.int64),
        durations=tables.durations,
        end=np.full(len(patterns_of), -1, np.int64),
        end_size=np.full(len(patterns_of), -1, np.int64),
        optional=tables.optional,
        later=tables.later,
    )
    for m, (tenant, patterns, (steps, fewer)) in enumerate(
        zip(tenants, patterns_of, lists, strict=True)
    ):
        index = {pattern: i for i, pattern in enumerate(patterns)}
        serving.counts[m, : len(patterns)] = [[p.count(k) for k in sizes] for p in patterns]
        serving.steps[m, : len(steps)] = steps
        serving.fewer[m, : len(fewer)] = fewer
        total = np.array([sum(tenant.capability[size] for size in p) for p in patterns], np.float64)
        slots_over = min(tenant.overhead_s / problem.slot_s, float(problem.slots))
        serving.lead[m] = lead = int(slots_over + 1e-9)
        serving.first_new[m] = lead + (1 if problem.initial is None else 0)
        fresh = min(1.0, lead + 1.0 - slots_over)
        kept, then = total[steps[:, 0]], total[steps[:, 1]]
        served = expected_throughput(tenant, kept + fresh * (then - kept))
        serving.served[m, :, : len(steps)] = served
        serving.lost[m, :, : len(steps)] = problem.penalty * requests_short(tenant, served)
        for i, p in enumerate(patterns):
            for k, size in enumerate(sizes):
                more = tuple(sorted((*p, size), reverse=True))
                serving.with_size[m, i, k] = index.get(more, i)
        serving.before[m, : len(patterns)] = _serving_before(problem, tenant, patterns)
        slots_left = problem.slots_left(tenant)
        if slots_left is not None and problem.initial is not None:
            task = Task(tenant.name, Kind.RETRAINING)
            held = next(instance for instance in problem.initial.instances if instance.task == task)
            serving.end[m], serving.end_size[m] = slots_left, sizes.index(held.gpcs)
        elif not tables.durations[m].any():
            serving.end[m] = problem.slots
    return serving


def serving_patterns(space: Space, m: int) -> tuple[Multiset, ...]:
    """Sub-multisets of what the tenant can hold beside the others' minimum."""
    serving = {u for p in space.patterns[m] for u in _sub_multisets(p)}
    return tuple(sorted(serving, key=lambda p: (len(p), p)))


def _sub_multisets(pattern: Multiset) -> set[Multiset]:
    contained: set[Multiset] = {()}
    for size in pattern:
        contained |= {tuple(sorted((*multiset, size), reverse=True)) for multiset in contained}
    return contained


@lru_cache(maxsize=256)
def _steps(patterns: tuple[Multiset, ...]) -> tuple[Ints, Ints]:
    """`steps` and `fewer` of one tenant."""
    index = {pattern: i for i, pattern in enumerate(patterns)}
    steps = [
        (index[u], index[w], index[_difference(w, u)]) for w in patterns for u in _sub_multisets(w)
    ]
    fewer = [
        (index[p], index[less])
        for p in patterns
        for less in sorted({p[:i] + p[i + 1 :] for i in range(len(p))})
    ]
    return np.array(sorted(steps), np.int64), np.array(fewer, np.int64).reshape(-1, 2)


def _difference(large: Multiset, small: Multiset) -> Multiset:
    rest = list(large)
    for size in small:
        rest.remove(size)
    return tuple(rest)


def _serving_before(problem: Problem, tenant: Tenant, patterns: tuple[Multiset, ...]) -> Ints:
    if problem.initial is None:
        return np.ones(len(patterns), np.int64)
    task = Task(tenant.name, Kind.INFERENCE)
    # an instance it retrains on may turn to inference only once the retraining is done
    held = tuple(sorted(i.gpcs for i in problem.initial.instances if i.task == task))
    able = tuple(size for size in held if size in tenant.capability)
    return np.array([p in _sub_multisets(able) for p in patterns], np.int64)
