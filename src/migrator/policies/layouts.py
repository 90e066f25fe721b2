"""From what every task would take to instances on slices: the search MIG policies share.

A policy says which multisets of sizes would do for each task and what a combination is worth to
it. Here every combination that fits on the board beside the running retrainings is tried, the
best is laid on slices, and among equals the one that keeps most of what serves already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import (
    Multiset,
    Placement,
    PlacementSet,
    multiset_of,
    multisets,
    placement_sets,
)
from migrator.core.service import Service
from migrator.policies.policy import Observation, running

NOTHING: Multiset = ()
"""What a task holds that waits."""
Worth = tuple[float, ...]
"""Compared place by place, the first one first."""
_DIGITS = 9
"""Worths that differ only beyond them are equal: rounding must not move an instance."""
_Spot = tuple[int, int]
"""Start and GPCs of an instance."""


@dataclass(frozen=True)
class Wish:
    """A task and the multisets of sizes that would do for it; NOTHING where it may wait."""

    task: Task
    choices: tuple[Multiset, ...]


def inference_wish(service: Service, board: Board, gpcs: int, largest: int | None = None) -> Wish:
    """Every way to serve on up to `gpcs` GPCs; where that is too few, the smallest allowed.

    `largest` leaves out larger sizes, but never the smallest allowed one.
    """
    least = least_gpcs(service, board)
    most = max(least, largest or board.sizes[-1])
    usable = {size for size in usable_sizes(service, board) if size <= most}
    choices = [
        each
        for each in multisets(board)
        if sum(each) <= gpcs and max(each) >= least and usable.issuperset(each)
    ]
    return Wish(Task(service.tenant, Kind.INFERENCE), tuple(choices) or ((least,),))


def retraining_wish(tenant: str, sizes: Iterable[int]) -> Wish:
    """One instance of one of these sizes, or none for now."""
    return Wish(Task(tenant, Kind.RETRAINING), (*((size,) for size in sizes), NOTHING))


def usable_sizes(service: Service, board: Board) -> tuple[int, ...]:
    """The sizes on which the tenant answers within its objective."""
    return tuple(gpcs for gpcs, rps in service.capabilities_rps(board).items() if rps > 0)


def least_gpcs(service: Service, board: Board) -> int:
    """The smallest size that its inference may live on alone."""
    allowed = [gpcs for gpcs in usable_sizes(service, board) if gpcs >= service.min_gpcs]
    if not allowed:
        raise InputError(
            f"tenants: {service.tenant!r} answers no request within {service.slo_s:g} s on an "
            f"instance of {service.min_gpcs} GPCs or more of {board.name}; raise its SLO, lower "
            "min_gpcs or use a larger board"
        )
    return min(allowed)


def even_parts(gpcs: int, least: Sequence[int]) -> tuple[int, ...]:
    """`gpcs` GPCs in as many parts, as even as can be with none below its least; first ones first.

    The parts exceed `gpcs` only where the least ones do already.
    """
    parts = list(least)
    while sum(parts) < gpcs:
        parts[parts.index(min(parts))] += 1
    return tuple(parts)


def relative_capabilities(
    observation: Observation, serving: Sequence[Wish]
) -> list[dict[Multiset, float]]:
    """Per tenant and choice of its inference: the capability over that of its best choice."""
    relative = []
    for view, wish in zip(observation.tenants, serving, strict=True):
        rps = view.service.capabilities_rps(observation.board)
        total = {each: sum(rps[size] for size in each) for each in wish.choices}
        relative.append({each: rate / max(total.values()) for each, rate in total.items()})
    return relative


def best_allocation(
    observation: Observation,
    wishes: Sequence[Wish],
    worth: Callable[[tuple[Multiset, ...]], Worth | None],
) -> tuple[Instance, ...]:
    """The legal allocation that is worth most, keeping what serves; running retrainings stay.

    `worth` judges one multiset per wish, in their order; None: not allowed.
    """
    kept = running(observation)
    best: list[tuple[Multiset, ...]] = []
    record: Worth | None = None
    for chosen in _combinations(observation, wishes):
        value = worth(chosen)
        if value is None:
            continue
        rounded = tuple(round(each, _DIGITS) for each in value)
        if record is None or rounded > record:
            best, record = [chosen], rounded
        elif rounded == record:
            best.append(chosen)
    tasks = [wish.task for wish in wishes]
    laid = [_laid_out(observation, kept, dict(zip(tasks, chosen, strict=True))) for chosen in best]
    if not laid:
        raise InputError(
            f"tenants: the smallest instances they can live on do not fit on "
            f"{observation.board.name} together; use fewer tenants or lower some min_gpcs"
        )
    return max(laid, key=lambda each: each[0])[1]


def _combinations(observation: Observation, wishes: Sequence[Wish]) -> list[tuple[Multiset, ...]]:
    """One multiset for every wish, so that all fit beside the running retrainings."""
    taken = running(observation).values()
    free = _free_multisets(observation.board, frozenset((each.start, each.gpcs) for each in taken))
    found: list[tuple[Multiset, tuple[Multiset, ...]]] = [(NOTHING, ())]
    for wish in wishes:
        found = [
            (together, (*chosen, each))
            for held, chosen in found
            for each in wish.choices
            if (together := _joined(held, each)) in free
        ]
    return [chosen for _, chosen in found]


def _joined(*parts: Iterable[int]) -> Multiset:
    return tuple(sorted((size for part in parts for size in part), reverse=True))


@cache
def _free_multisets(board: Board, taken: frozenset[_Spot]) -> frozenset[Multiset]:
    """What can be placed beside the instances that have to stay."""
    beside = {
        multiset_of(tuple(each for each in chosen if _spot(each) not in taken))
        for chosen in placement_sets(board)
        if taken <= {_spot(each) for each in chosen}
    }
    return frozenset(beside | {NOTHING})


@cache
def _sets_by_multiset(board: Board) -> Mapping[Multiset, tuple[PlacementSet, ...]]:
    found: dict[Multiset, tuple[PlacementSet, ...]] = {}
    for each in placement_sets(board):
        found[multiset_of(each)] = (*found.get(multiset_of(each), ()), each)
    return found


def _spot(each: Placement | Instance) -> _Spot:
    return each.start, each.gpcs


# Multisets laid on slices.


def _laid_out(
    observation: Observation, kept: Mapping[str, Instance], wanted: Mapping[Task, Multiset]
) -> tuple[tuple[int, int], tuple[Instance, ...]]:
    """The gentlest way to lay these out, with how gentle it is."""
    together = _joined(*wanted.values(), (each.gpcs for each in kept.values()))
    stays = {_spot(each) for each in kept.values()}
    ways = [
        _assigned(observation, kept, wanted, chosen)
        for chosen in _sets_by_multiset(observation.board)[together]
        if stays <= {_spot(each) for each in chosen}
    ]
    return max(ways, key=lambda way: way[0])


def _assigned(
    observation: Observation,
    kept: Mapping[str, Instance],
    wanted: Mapping[Task, Multiset],
    chosen: PlacementSet,
) -> tuple[tuple[int, int], tuple[Instance, ...]]:
    """Placements to tasks: first to those that hold them, the rest as they come."""
    instances = {_spot(each): Task(name, Kind.RETRAINING) for name, each in kept.items()}
    missing = {task: list(sizes) for task, sizes in wanted.items()}
    spots = [_spot(each) for each in reversed(chosen) if _spot(each) not in instances]
    warm = 0
    owners = _owners(observation)
    for spot in spots:
        task = Task(owners.get(spot, ""), Kind.INFERENCE)
        if spot[1] in missing.get(task, ()):
            instances[spot] = task
            missing[task].remove(spot[1])
            warm += spot[1]
    for spot in spots:
        if spot not in instances:
            task = next(each for each, sizes in missing.items() if spot[1] in sizes)
            instances[spot] = task
            missing[task].remove(spot[1])
    found = (Instance(*spot, task) for spot, task in sorted(instances.items()))
    return (warm, _openness(chosen)), tuple(found)


def _owners(observation: Observation) -> dict[_Spot, str]:
    """The tenant of every instance now: a training instance may go on to serve its tenant."""
    return {
        (each.start, each.gpcs): each.task.tenant
        for each in observation.held
        if isinstance(each, Instance) and each.task is not None
    }


def _openness(chosen: PlacementSet) -> int:
    """High for odd sizes at high starts and even ones at low starts.

    1g and 3g can sit high, 2g and 4g cannot: so the low slices are left to those.
    """
    return sum(each.start if each.gpcs % 2 else -each.start for each in chosen)
