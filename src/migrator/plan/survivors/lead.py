"""One tenant under the `survivors` charge, position left aside: serving patterns with lead.

An instance that serves from slot u on was held from slot u - lead on, where lead is the
overhead in whole slots. So instead of following cold instances, follow what *serves* and
charge a new instance, when it begins to serve, the price of the slots it was held before.
That is exact for a tenant alone under prices, and needs no ages in the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from migrator.core.instance import Kind, Task
from migrator.core.placement import Multiset
from migrator.core.problem import Problem, Tenant
from migrator.plan.exact.space import Floats, Ints, Space
from migrator.plan.exact.tables import expected_throughput


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
    retrains = problem.must_retrain(tenant) or problem.slots_left(tenant) is not None
    return tenant.accuracy_post if retrains else tenant.accuracy_pre


def _serving_before(problem: Problem, tenant: Tenant, patterns: tuple[Multiset, ...]) -> Ints:
    if problem.initial is None:
        return np.ones(len(patterns), np.int64)
    task = Task(tenant.name, Kind.INFERENCE)
    # an instance it retrains on may turn to inference only once the retraining is done
    held = tuple(sorted(i.gpcs for i in problem.initial.instances if i.task == task))
    able = tuple(size for size in held if size in tenant.capability)
    return np.array([p in _sub_multisets(able) for p in patterns], np.int64)
