"""Finds the best layout for the wishes of all tasks; shared by the MIG policies.

A policy gives the acceptable multisets of sizes for each task and the value of a combination. This
module tries every combination that fits on the board beside the running retrainings and places the
best on slices. Among equals it prefers the one that keeps most serving instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import itemgetter

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    PlacementSet,
    multiset_of,
    multisets,
    placement_sets,
)
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Task
from migrator.core.profiles import Service
from migrator.policies.policy import Observation, running

NOTHING: Multiset = ()
"""The holding of a task that waits."""
Worth = tuple[float, ...]
"""Compared lexicographically."""
_DIGITS = 9
"""Digits to which values are compared, so that rounding does not move an instance."""
_Spot = tuple[int, int]
"""Start and GPCs of an instance."""


@dataclass(frozen=True)
class Wish:
    """A task and its acceptable multisets of sizes; includes NOTHING if it may wait."""

    task: Task
    choices: tuple[Multiset, ...]


def inference_wish(service: Service, board: Board, gpcs: int, largest: int | None = None) -> Wish:
    """Every way to serve on up to `gpcs` GPCs; if that is too few, the smallest allowed size.

    `largest` excludes larger sizes, but never the smallest allowed one.
    """
    least = least_gpcs(service, board)
    most = max(least, largest or board.sizes[-1])
    usable = {size for size in usable_sizes(service, board) if size <= most}
    choices = [
        multiset
        for multiset in multisets(board)
        if sum(multiset) <= gpcs and max(multiset) >= least and usable.issuperset(multiset)
    ]
    return Wish(Task(service.tenant, Kind.INFERENCE), tuple(choices) or ((least,),))


def retraining_wish(tenant: str, sizes: Iterable[int]) -> Wish:
    """One instance of one of these sizes, or none for the time being."""
    return Wish(Task(tenant, Kind.RETRAINING), (*((size,) for size in sizes), NOTHING))


def usable_sizes(service: Service, board: Board) -> tuple[int, ...]:
    """The sizes on which the tenant answers within its objective."""
    return tuple(gpcs for gpcs, rps in service.capabilities_rps(board).items() if rps > 0)


def least_gpcs(service: Service, board: Board) -> int:
    """The smallest size that may serve the tenant alone."""
    allowed = [gpcs for gpcs in usable_sizes(service, board) if gpcs >= service.min_gpcs]
    if not allowed:
        raise InputError(
            f"tenants: {service.tenant!r} answers no request within {service.slo_s:g} s on an "
            f"instance of {service.min_gpcs} GPCs or more of {board.name}, or does not fit its "
            "memory; raise its SLO, lower min_gpcs or use a larger board"
        )
    return min(allowed)


def training_sizes_beside(service: Service, least: Sequence[int], board: Board) -> tuple[int, ...]:
    """The sizes on which a tenant can be retrained beside instances of the sizes `least`."""
    return tuple(
        gpcs
        for gpcs in service.training_sizes(board)
        if tuple(sorted((*least, gpcs), reverse=True)) in multisets(board)
    )


def even_parts(gpcs: int, least: Sequence[int]) -> tuple[int, ...]:
    """Divide `gpcs` GPCs as evenly as possible with no part below its minimum; first parts first.

    The sum exceeds `gpcs` only if the minimums do.
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
        able_rps = view.service.capabilities_rps(observation.board)
        total = {choice: sum(able_rps[size] for size in choice) for choice in wish.choices}
        relative.append({choice: rps / max(total.values()) for choice, rps in total.items()})
    return relative


def best_allocation(
    observation: Observation,
    wishes: Sequence[Wish],
    worth: Callable[[tuple[Multiset, ...]], Worth | None],
) -> tuple[Instance, ...]:
    """The legal allocation of the highest value that keeps most serving instances.

    Running retrainings stay. `worth` values one multiset per wish, in their order; None: not
    allowed.
    """
    kept = running(observation)
    best: list[tuple[Multiset, ...]] = []
    record: Worth | None = None
    for chosen in _combinations(observation, wishes):
        value = worth(chosen)
        if value is None:
            continue
        rounded = tuple(round(part, _DIGITS) for part in value)
        if record is None or rounded > record:
            best, record = [chosen], rounded
        elif rounded == record:
            best.append(chosen)
    tasks = [wish.task for wish in wishes]
    layouts = [
        _laid_out(observation, kept, dict(zip(tasks, chosen, strict=True))) for chosen in best
    ]
    if not layouts:
        raise InputError(
            f"tenants: the smallest instances they can live on do not fit on "
            f"{observation.board.name} together; use fewer tenants or lower some min_gpcs"
        )
    return max(layouts, key=itemgetter(0))[1]


def _combinations(
    observation: Observation, wishes: Sequence[Wish]
) -> tuple[tuple[Multiset, ...], ...]:
    """All choices of one multiset per wish that fit together beside the running retrainings."""
    taken = frozenset(_spot(instance) for instance in running(observation).values())
    return _fitting(observation.board, taken, tuple(wish.choices for wish in wishes))


@lru_cache(maxsize=64)
def _fitting(
    board: Board, taken: frozenset[_Spot], choices: tuple[tuple[Multiset, ...], ...]
) -> tuple[tuple[Multiset, ...], ...]:
    """All that fit together beside the instances that must stay, one of each of the choices."""
    free = _free_multisets(board, taken)
    combined: list[tuple[Multiset, tuple[Multiset, ...]]] = [(NOTHING, ())]
    for multisets_of_wish in choices:
        combined = [
            (together, (*chosen, choice))
            for held, chosen in combined
            for choice in multisets_of_wish
            if (together := _joined(held, choice)) in free
        ]
    return tuple(chosen for _, chosen in combined)


def fit_at(board: Board, instances: Iterable[Instance]) -> bool:
    """Whether these instances can exist together where they are."""
    spots = {_spot(instance) for instance in instances}
    return any(spots <= set(map(_spot, chosen)) for chosen in placement_sets(board))


def _joined(*parts: Iterable[int]) -> Multiset:
    return tuple(sorted((size for part in parts for size in part), reverse=True))


@cache
def _free_multisets(board: Board, taken: frozenset[_Spot]) -> frozenset[Multiset]:
    """The multisets that fit beside the instances that must stay."""
    beside = {
        multiset_of(tuple(placement for placement in chosen if _spot(placement) not in taken))
        for chosen in placement_sets(board)
        if taken <= {_spot(placement) for placement in chosen}
    }
    return frozenset(beside | {NOTHING})


@cache
def _sets_by_multiset(board: Board) -> Mapping[Multiset, tuple[PlacementSet, ...]]:
    sets: dict[Multiset, tuple[PlacementSet, ...]] = {}
    for chosen in placement_sets(board):
        sets[multiset_of(chosen)] = (*sets.get(multiset_of(chosen), ()), chosen)
    return sets


def _spot(place: Placement | Instance) -> _Spot:
    return place.start, place.gpcs


# Placement of multisets on slices.


def _laid_out(
    observation: Observation, kept: Mapping[str, Instance], wanted: Mapping[Task, Multiset]
) -> tuple[tuple[int, int], tuple[Instance, ...]]:
    """The placement that changes least, with its score."""
    together = _joined(*wanted.values(), (instance.gpcs for instance in kept.values()))
    stays = {_spot(instance) for instance in kept.values()}
    ways = [
        _assigned(observation, kept, wanted, chosen)
        for chosen in _sets_by_multiset(observation.board)[together]
        if stays <= {_spot(placement) for placement in chosen}
    ]
    return max(ways, key=itemgetter(0))


def _assigned(
    observation: Observation,
    kept: Mapping[str, Instance],
    wanted: Mapping[Task, Multiset],
    chosen: PlacementSet,
) -> tuple[tuple[int, int], tuple[Instance, ...]]:
    """Assign placements to tasks: first to those that hold them, then in order."""
    instances = {_spot(instance): Task(name, Kind.RETRAINING) for name, instance in kept.items()}
    missing = {task: list(sizes) for task, sizes in wanted.items()}
    spots = [
        _spot(placement) for placement in reversed(chosen) if _spot(placement) not in instances
    ]
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
            task = next(wanting for wanting, sizes in missing.items() if spot[1] in sizes)
            instances[spot] = task
            missing[task].remove(spot[1])
    allocation = tuple(Instance(*spot, task) for spot, task in sorted(instances.items()))
    return (warm, _openness(chosen)), allocation


def _owners(observation: Observation) -> dict[_Spot, str]:
    """The tenant of every instance. A training instance may continue as one that serves its
    tenant."""
    return {
        (holding.start, holding.gpcs): holding.task.tenant
        for holding in observation.held
        if isinstance(holding, Instance) and holding.task is not None
    }


def _openness(chosen: PlacementSet) -> int:
    """High for odd sizes at high starts and even sizes at low starts.

    1g and 3g can be placed high, 2g and 4g cannot, so the low slices are left to those.
    """
    return sum(placement.start if placement.gpcs % 2 else -placement.start for placement in chosen)
