"""The planners' kernels in slow, plain Python, as docs/planner.md puts them.

Nothing here shares a table or an order of evaluation with `migrator.planning`: patterns are tuples
of sizes, and every maximum is taken over all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product

from migrator.core.catalogue import (
    Board,
    Multiset,
    multiset_of,
    multisets,
    placement_sets,
    placements,
)
from migrator.core.problem import Problem, Tenant

NEVER = float("-inf")
WAITING, DONE = "waiting", "done"

Status = str | int
"""Of a tenant's retraining: WAITING, DONE, or the slot at which a running one ends."""


def expected(received: list[float], capability: float) -> float:
    """E[min(received, capability)] over equally likely numbers of requests."""
    return sum(min(requests, capability) for requests in received) / len(received)


def patterns_of(problem: Problem, tenant: Tenant) -> list[Multiset]:
    """What the tenant's inference can hold on the empty board."""
    return [
        pattern
        for pattern in multisets(problem.board)
        if max(pattern) >= tenant.min_gpcs and all(size in tenant.capability for size in pattern)
    ]


def joint_patterns(problem: Problem) -> list[tuple[Multiset, ...]]:
    """One pattern per tenant, all of them together on the empty board."""
    every = product(*(patterns_of(problem, tenant) for tenant in problem.tenants))
    return [joint for joint in every if _fits(problem.board, sum(joint, ()), 0)]


@cache
def _fits(board: Board, sizes: tuple[int, ...], mask: int) -> bool:
    """Whether instances of these sizes can be placed beside the occupied slices."""
    wanted = tuple(sorted(sizes, reverse=True))
    return any(
        multiset_of(chosen) == wanted and not any(place.mask & mask for place in chosen)
        for chosen in placement_sets(board)
    )


def goodput_of_slot(
    problem: Problem, tenant: Tenant, slot: int, pattern: Multiset, *, done: bool, kept: bool
) -> float:
    """Under the `paper` charge: a change costs the overhead of one mean instance."""
    capability = sum(tenant.capability[size] for size in pattern)
    if not kept:
        capability -= tenant.overhead_s / problem.slot_s * capability / len(pattern)
    improved = done and problem.may_retrain(tenant)
    accuracy = tenant.accuracy_post if improved else tenant.accuracy_pre
    return accuracy * expected([row[slot] for row in tenant.received], capability)


@dataclass
class Prices:
    """What the tenants pay in every slot; 0 where nothing is said."""

    pattern: dict[tuple[int, int, Multiset], float] = field(default_factory=dict)
    """(tenant, slot, pattern)"""
    retraining: dict[tuple[int, int], float] = field(default_factory=dict)
    """(slot, size)"""


def value_to_go(problem: Problem, m: int, prices: Prices) -> Callable[..., float]:
    """(slot, status, pattern held before) -> the most that tenant m alone can earn from there on.

    It pays for its patterns and, when a retraining starts, for all of its slots at once.
    """
    tenant = problem.tenants[m]
    patterns = _occurring(problem, m)

    @cache
    def best(slot: int, status: Status, before: Multiset | None) -> float:
        if status == slot:
            status = DONE
        if slot == problem.slots:
            if status == DONE:
                return _later(problem, tenant)
            return 0.0 if tenant.retraining_optional and status == WAITING else NEVER
        return max(
            paid + serve(slot, then, before)
            for then, paid in [(status, 0.0), *_starts(problem, tenant, slot, status, prices)]
        )

    def serve(slot: int, status: Status, before: Multiset | None) -> float:
        return max(
            goodput_of_slot(
                problem, tenant, slot, pattern, done=status == DONE, kept=before in (None, pattern)
            )
            - prices.pattern.get((m, slot, pattern), 0.0)
            + best(slot + 1, status, pattern)
            for pattern in patterns
        )

    return best


def _occurring(problem: Problem, m: int) -> list[Multiset]:
    """The patterns of tenant m beside which every other tenant can have one."""
    return sorted({joint[m] for joint in joint_patterns(problem)})


def _later(problem: Problem, tenant: Tenant) -> float:
    return tenant.later_goodput if problem.may_retrain(tenant) else 0.0


def _starts(
    problem: Problem, tenant: Tenant, slot: int, status: Status, prices: Prices
) -> Iterator[tuple[int, float]]:
    """The ends of retrainings that can start in the slot, each with what it pays, negative."""
    if status != WAITING or tenant.retraining_slots is None:
        return
    for size, duration in tenant.retraining_slots.items():
        end = slot + duration
        if end <= problem.slots:
            yield end, -sum(prices.retraining.get((t, size), 0.0) for t in range(slot, end))


def first_status(problem: Problem, tenant: Tenant) -> Status:
    """Before slot 0, where nothing retrains yet."""
    return WAITING if problem.may_retrain(tenant) and tenant.retraining_slots else DONE


def rent(problem: Problem, slot: int, mask: int, waiting: int, prices: Prices) -> float:
    """The most that the board earns in the slot beside `mask`: patterns, and what may retrain."""
    sizes = {
        size
        for tenant in problem.tenants
        if problem.may_retrain(tenant)
        for size in tenant.retraining_slots or ()
    }
    beside = [(), *(s for s in multisets(problem.board) if len(s) <= waiting and sizes >= set(s))]
    return max(
        (
            sum(prices.pattern.get((m, slot, p), 0.0) for m, p in enumerate(joint))
            + sum(prices.retraining.get((slot, size), 0.0) for size in retraining)
            for joint in joint_patterns(problem)
            for retraining in beside
            if _fits(problem.board, (*sum(joint, ()), *retraining), mask)
        ),
        default=NEVER,
    )


def bound(problem: Problem, prices: Prices) -> float:
    """What the tenants earn alone and what the board is rented for: no plan is worth more."""
    waiting = sum(first_status(problem, t) == WAITING for t in problem.tenants)
    total = sum(rent(problem, slot, 0, waiting, prices) for slot in range(problem.slots))
    for m, tenant in enumerate(problem.tenants):
        total += value_to_go(problem, m, prices)(0, first_status(problem, tenant), None)
    return total


_Joint = tuple[Multiset, ...]
_Values = dict[_Joint | None, tuple[float, list[_Joint]]]
"""Joint pattern that the last slot held -> (goodput so far, joint patterns so far)."""


def best_inference(
    problem: Problem, occupied: list[int], done_from: list[int]
) -> tuple[float, list[tuple[Multiset, ...]]]:
    """Goodput of the best joint patterns beside `occupied` [slot], and those patterns.

    `done_from` [tenant]: the slot from which its retraining is completed.
    """
    joints = joint_patterns(problem)
    values: _Values = {None: (0.0, [])}
    for slot, mask in enumerate(occupied):
        following: _Values = {}
        for joint in joints:
            if not _fits(problem.board, sum(joint, ()), mask):
                continue
            following[joint] = max(
                (
                    value
                    + sum(
                        goodput_of_slot(
                            problem,
                            tenant,
                            slot,
                            joint[m],
                            done=slot >= done_from[m],
                            kept=before is None or before[m] == joint[m],
                        )
                        for m, tenant in enumerate(problem.tenants)
                    ),
                    [*path, joint],
                )
                for before, (value, path) in values.items()
            )
        values = following
    return max(values.values(), default=(NEVER, []))


Held = dict[int, tuple[int, int]]
"""placement -> (tenant that holds it, whole slots it has held it before)"""


def cost_of_changing(problem: Problem, slot: int, held: Held, wanted: Held) -> float:
    """Under `survivors`: the most goodput lost from `slot` on by changing from `held` to `wanted`.

    What an instance adds beside others is at most what it serves alone, so the lack of a tenant is
    counted as if nothing else served.
    """
    lost, places = 0.0, placements(problem.board)
    for t in range(slot, problem.slots):
        for m, tenant in enumerate(problem.tenants):
            missing = 0.0
            for place, (holder, age) in wanted.items():
                if holder != m:
                    continue
                mine = held.get(place)
                has = mine[1] if mine is not None and mine[0] == m else None
                share = _share(problem, tenant, age + 1 + t - slot)
                share -= _share(problem, tenant, (0 if has is None else has + 1) + t - slot)
                missing += tenant.capability.get(places[place].gpcs, 0.0) * max(0.0, share)
            accuracy = tenant.accuracy_pre
            if problem.may_retrain(tenant):
                accuracy = max(accuracy, tenant.accuracy_post)
            lost += accuracy * expected([row[t] for row in tenant.received], missing)
    return lost


def _share(problem: Problem, tenant: Tenant, age: int) -> float:
    """How much of a slot an instance serves that its tenant has held for `age` slots before."""
    return min(1.0, max(0.0, age + 1.0 - tenant.overhead_s / problem.slot_s))
