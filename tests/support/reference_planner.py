"""The planners' kernels in slow, plain Python, as docs/planner.md puts them.

Nothing here shares a table or an order of evaluation with `migrator.planning`: patterns are tuples
of sizes, and every maximum is taken over all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import NamedTuple

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
WAITING = "waiting"


class Done(NamedTuple):
    """A completed retraining; also that of a tenant that has nothing to retrain."""

    choice: int = 0
    """Its configuration, by number."""


class Runs(NamedTuple):
    """A running retraining: the slot at which it ends, and its configuration."""

    end: int
    choice: int = 0


Status = str | Done | Runs
"""Of a tenant's retraining: WAITING, Done or Runs."""


def ended(status: Status, slot: int) -> Status:
    """The same in the slot, in which a running retraining may have ended."""
    is_over = isinstance(status, Runs) and status.end == slot
    return Done(status.choice) if is_over and isinstance(status, Runs) else status


def status_of(way: int, end: int, places: int) -> Status:
    """The status that the kernels write as a number, and the end of a running retraining."""
    if way >= 0:
        return Runs(end, way // places)
    return WAITING if way == -1 else Done(-2 - way)


def accuracy_with(problem: Problem, tenant: Tenant, status: Status) -> float:
    """The accuracy it serves with."""
    if isinstance(status, Done) and problem.may_retrain(tenant):
        return tenant.configurations[status.choice].accuracy
    return tenant.accuracy_pre


def retraining_sizes(problem: Problem) -> set[int]:
    """The sizes that some retraining can use."""
    return {
        size
        for tenant in problem.tenants
        if problem.may_retrain(tenant)
        for choice in tenant.configurations
        for size in choice.slots
    }


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
    return [joint for joint in every if fits(problem.board, sum(joint, ()), 0)]


@cache
def fits(board: Board, sizes: tuple[int, ...], mask: int) -> bool:
    """Whether instances of these sizes can be placed beside the occupied slices."""
    wanted = tuple(sorted(sizes, reverse=True))
    return any(
        multiset_of(chosen) == wanted and not any(place.mask & mask for place in chosen)
        for chosen in placement_sets(board)
    )


def goodput_of_slot(
    problem: Problem, tenant: Tenant, slot: int, pattern: Multiset, status: Status, *, kept: bool
) -> float:
    """Under the `paper` charge: a change costs the overhead of one mean instance."""
    capability = sum(tenant.capability[size] for size in pattern)
    if not kept:
        capability -= tenant.overhead_s / problem.slot_s * capability / len(pattern)
    accuracy = accuracy_with(problem, tenant, status)
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
    patterns = occurring_patterns(problem, m)

    @cache
    def best(slot: int, status: Status, before: Multiset | None) -> float:
        status = ended(status, slot)
        if slot == problem.slots:
            if isinstance(status, Done):
                return later_goodput(problem, tenant, status)
            return 0.0 if tenant.retraining_optional and status == WAITING else NEVER
        return max(
            paid + serve(slot, then, before)
            for then, paid in [(status, 0.0), *_starts(problem, tenant, slot, status, prices)]
        )

    def serve(slot: int, status: Status, before: Multiset | None) -> float:
        return max(
            goodput_of_slot(problem, tenant, slot, pattern, status, kept=before in (None, pattern))
            - prices.pattern.get((m, slot, pattern), 0.0)
            + best(slot + 1, status, pattern)
            for pattern in patterns
        )

    return best


def occurring_patterns(problem: Problem, m: int) -> list[Multiset]:
    """The patterns of tenant m beside which every other tenant can have one."""
    return sorted({joint[m] for joint in joint_patterns(problem)})


def later_goodput(problem: Problem, tenant: Tenant, status: Done) -> float:
    """What its completed retraining is worth after the window."""
    if not problem.may_retrain(tenant):
        return 0.0
    return tenant.later_goodput(tenant.configurations[status.choice])


def _starts(
    problem: Problem, tenant: Tenant, slot: int, status: Status, prices: Prices
) -> Iterator[tuple[Runs, float]]:
    """The retrainings that can start in the slot, each with what it pays, negative."""
    for choice, configuration in enumerate(tenant.configurations if status == WAITING else ()):
        for size, duration in configuration.slots.items():
            end = slot + duration
            if end <= problem.slots:
                paid = sum(prices.retraining.get((t, size), 0.0) for t in range(slot, end))
                yield Runs(end, choice), -paid


def first_status(problem: Problem, tenant: Tenant) -> Status:
    """Before slot 0, where nothing retrains yet."""
    return WAITING if problem.may_retrain(tenant) else Done()


def rent(problem: Problem, slot: int, mask: int, waiting: int, prices: Prices) -> float:
    """The most that the board earns in the slot beside `mask`: patterns, and what may retrain."""
    sizes = retraining_sizes(problem)
    beside = [(), *(s for s in multisets(problem.board) if len(s) <= waiting and sizes >= set(s))]
    return max(
        (
            sum(prices.pattern.get((m, slot, p), 0.0) for m, p in enumerate(joint))
            + sum(prices.retraining.get((slot, size), 0.0) for size in retraining)
            for joint in joint_patterns(problem)
            for retraining in beside
            if fits(problem.board, (*sum(joint, ()), *retraining), mask)
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


def goodput_of_joint(
    problem: Problem, slot: int, joint: _Joint, before: _Joint | None, status: tuple[Status, ...]
) -> float:
    """All tenants' goodput of the slot; `before`: what they held, None if it is not known."""
    return sum(
        goodput_of_slot(
            problem, tenant, slot, joint[m], status[m], kept=before is None or before[m] == joint[m]
        )
        for m, tenant in enumerate(problem.tenants)
    )


def best_inference(
    problem: Problem, occupied: list[int], retrainings: list[Runs | None]
) -> tuple[float, list[tuple[Multiset, ...]]]:
    """Goodput of the best joint patterns beside `occupied` [slot], and those patterns."""
    joints = joint_patterns(problem)
    values: _Values = {None: (0.0, [])}
    for slot, mask in enumerate(occupied):
        done = tuple(
            Done(retraining.choice)
            if retraining is not None and slot >= retraining.end
            else WAITING
            for retraining in retrainings
        )
        following: _Values = {}
        for joint in joints:
            if not values or not fits(problem.board, sum(joint, ()), mask):
                continue
            following[joint] = max(
                (value + goodput_of_joint(problem, slot, joint, before, done), [*path, joint])
                for before, (value, path) in values.items()
            )
        values = following
    return max(values.values(), default=(NEVER, []))


def starts(
    problem: Problem, slot: int, status: tuple[Status, ...], place: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[Status, ...]]]:
    """Every set of retrainings that can start in the slot: placements and statuses after it."""
    places = placements(problem.board)
    options: list[list[tuple[int, Status]]] = []
    for m, tenant in enumerate(problem.tenants):
        options.append([(place[m], status[m])])
        for choice, configuration in enumerate(tenant.configurations):
            for at, where in enumerate(places):
                end = slot + configuration.slots.get(where.gpcs, problem.slots + 1)
                if status[m] == WAITING and end <= problem.slots:
                    options[m].append((at, Runs(end, choice)))
    for chosen in product(*options):
        taken = [places[at] for at, _ in chosen if at >= 0]
        if all(not a.mask & b.mask for i, a in enumerate(taken) for b in taken[:i]):
            yield tuple(at for at, _ in chosen), tuple(s for _, s in chosen)


def running_mask(
    problem: Problem, status: tuple[Status, ...], place: tuple[int, ...], slot: int
) -> int:
    """The slices that the running retrainings occupy in the slot."""
    running = [m for m, state in enumerate(status) if isinstance(state, Runs) and state.end > slot]
    return sum(placements(problem.board)[place[m]].mask for m in running)


class Label(NamedTuple):
    """What the retrainings of a plan have come to."""

    status: tuple[Status, ...]
    place: tuple[int, ...]
    """the placement each runs on, -1 none"""


Labels = dict[Label, dict[_Joint | None, float]]
"""Each with the best goodput so far for every joint pattern that the last slot can have held."""


def following_labels(
    problem: Problem, slot: int, labels: Labels, prices: Prices, incumbent: float
) -> Labels:
    """All labels after the slot, with the entries whose bound is above `incumbent`."""
    then: Labels = {}
    to_go = [value_to_go(problem, m, prices) for m in range(len(problem.tenants))]
    rent_of = cache(partial(rent, problem, prices=prices))
    for label, entries in labels.items():
        before = tuple(ended(s, slot) for s in label.status)
        place = tuple(
            at if isinstance(s, Runs) else -1 for at, s in zip(label.place, before, strict=True)
        )
        values = {
            joint: max(
                value + goodput_of_joint(problem, slot, joint, held, before)
                for held, value in entries.items()
            )
            for joint in joint_patterns(problem)
        }
        for places_now, status in starts(problem, slot, before, place):
            masks = [
                running_mask(problem, status, places_now, t) for t in range(slot, problem.slots)
            ]
            waiting = status.count(WAITING)
            rent_ahead = sum(
                rent_of(t, mask, waiting) for t, mask in enumerate(masks[1:], slot + 1)
            )
            for joint, value in values.items():
                if not fits(problem.board, sum(joint, ()), masks[0]):
                    continue
                bound = value + rent_ahead
                bound += sum(
                    best(slot + 1, s, p) for best, s, p in zip(to_go, status, joint, strict=True)
                )
                if bound > incumbent:
                    of_label = then.setdefault(Label(status, places_now), {})
                    of_label[joint] = max(value, of_label.get(joint, NEVER))
    return then


def labels_that_stay(phases: list[str], keep: int) -> list[int]:
    """Where there is room for `keep` of the labels, ranked; `phases`: their statuses.

    Three quarters are the best ones, the others go to every phase in turn.
    """
    stay, share = list(range(keep - keep // 4)), 1
    while len(stay) < keep:
        for n, phase in enumerate(phases):
            taken = sum(phases[other] == phase for other in stay)
            if n not in stay and taken < share and len(stay) < keep:
                stay.append(n)
        share *= 2
    return sorted(stay)


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
                share = share_served(problem, tenant, age + 1 + t - slot)
                share -= share_served(problem, tenant, (0 if has is None else has + 1) + t - slot)
                missing += tenant.capability.get(places[place].gpcs, 0.0) * max(0.0, share)
            accuracy = tenant.accuracy_pre
            if problem.may_retrain(tenant):
                accuracy = max(accuracy, *(choice.accuracy for choice in tenant.configurations))
            lost += accuracy * expected([row[t] for row in tenant.received], missing)
    return lost


def share_served(problem: Problem, tenant: Tenant, age: int) -> float:
    """How much of a slot an instance serves that its tenant has held for `age` slots before."""
    return min(1.0, max(0.0, age + 1.0 - tenant.overhead_s / problem.slot_s))
