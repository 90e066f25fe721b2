"""Whether a problem can have a plan at all: refuse it by the rule that it breaks, without a search.

What passes here may still have no plan; then the search finds that no schedule exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from migrator.core.catalogue import Board, multisets, placement_sets
from migrator.core.errors import InfeasibleError
from migrator.core.problem import Instance, Kind, Problem, Tenant


def require_feasible(problem: Problem) -> None:
    """Raise InfeasibleError, naming the rule and the remedy, where no plan can exist."""
    minimum = [_minimum(problem, index) for index in range(len(problem.tenants))]
    _require_minimum_together(problem, minimum)
    for index in range(len(problem.tenants)):
        _require_long_window(problem, index)
    _require_running_beside(problem, minimum)
    for index in range(len(problem.tenants)):
        _require_retraining_beside(problem, index, minimum)
    _require_retrainings_together(problem, minimum)


def _minimum(problem: Problem, index: int) -> int:
    """The smallest instance that meets the tenant's min_gpcs."""
    tenant = problem.tenants[index]
    largest = problem.board.sizes[-1]
    if tenant.min_gpcs > largest:
        raise InfeasibleError(
            f"tenants[{index}].min_gpcs: {tenant.name!r} must always hold an instance of "
            f"{tenant.min_gpcs} GPCs or more, but the largest of {problem.board.name} has "
            f"{largest}; lower min_gpcs"
        )
    allowed = [gpcs for gpcs in tenant.capability if gpcs >= tenant.min_gpcs]
    if not allowed:
        raise InfeasibleError(
            f"tenants[{index}].capability: {tenant.name!r} must always hold an instance of "
            f"min_gpcs {tenant.min_gpcs} or more, but no such size is in its capability; "
            "add one or lower min_gpcs"
        )
    return min(allowed)


def _require_minimum_together(problem: Problem, minimum: list[int]) -> None:
    board = problem.board
    most = max(len(multiset) for multiset in multisets(board))
    if len(minimum) > most:
        raise InfeasibleError(
            f"tenants: every tenant must always hold an instance, but {board.name} holds at most "
            f"{most} and there are {len(minimum)} tenants; remove some"
        )
    if not _fits(board, minimum):
        raise InfeasibleError(
            f"tenants: every tenant must always hold an instance of its min_gpcs, but "
            f"{_sizes(minimum)} do not fit on {board.name} together; lower some min_gpcs, add "
            "smaller sizes to capability or remove tenants"
        )


def _require_long_window(problem: Problem, index: int) -> None:
    tenant = problem.tenants[index]
    slots_left = problem.slots_left(tenant)
    if slots_left is not None and slots_left > problem.slots:
        raise InfeasibleError(
            f"initial.retrainings: the retraining of {tenant.name!r} must end inside the window, "
            f"but it needs {slots_left} more slots and slots is {problem.slots}; raise slots"
        )
    durations = _durations(problem, tenant)
    if durations and min(durations.values()) > problem.slots:
        raise InfeasibleError(
            f"{_key(tenant, index)}: the retraining of {tenant.name!r} must end "
            f"inside the window, but it takes at least {min(durations.values())} slots and slots "
            f"is {problem.slots}; raise slots or {_optional(tenant)}"
        )


def _require_running_beside(problem: Problem, minimum: list[int]) -> None:
    running = [instance for instance, _ in _running(problem)]
    if not _fits(problem.board, minimum, running):
        raise InfeasibleError(
            f"initial.retrainings: a running retraining keeps its instance, but beside "
            f"{', '.join(str(instance) for instance in running)} the tenants' minimum instances "
            f"({_sizes(minimum)}) do not fit on {problem.board.name}; lower some min_gpcs or end "
            "a retraining first"
        )


def _require_retraining_beside(problem: Problem, index: int, minimum: list[int]) -> None:
    tenant = problem.tenants[index]
    durations = _durations(problem, tenant)
    in_time = {gpcs: slots for gpcs, slots in durations.items() if slots <= problem.slots}
    if not in_time or any(
        _fits_late(problem, [*minimum, gpcs], problem.slots - slots)
        for gpcs, slots in in_time.items()
    ):
        return
    beside = "and the running retrainings " if _running(problem) else ""
    raise InfeasibleError(
        f"{_key(tenant, index)}: the retraining of {tenant.name!r} "
        f"must run beside the tenants' minimum instances, but none of its sizes that end in time "
        f"({_sizes(in_time)}) fits beside those ({_sizes(minimum)}) {beside}on "
        f"{problem.board.name}; offer a smaller size, lower some min_gpcs or {_optional(tenant)}"
    )


def _fits_late(problem: Problem, sizes: list[int], latest: int) -> bool:
    """Whether a retraining fits that starts as late as it can, when least is still running."""
    still = [instance for instance, slots_left in _running(problem) if slots_left > latest]
    return _fits(problem.board, sizes, still)


def _require_retrainings_together(problem: Problem, minimum: list[int]) -> None:
    """The slots of all retrainings must fit into what the minimum instances leave, slot by slot."""
    widths = {gpcs: profile.memory_slices for gpcs, profile in problem.board.plain_profiles.items()}
    _require_supply(problem, minimum, "instances", lambda _: 1)
    _require_supply(problem, minimum, "GPCs", lambda gpcs: gpcs)
    _require_supply(problem, minimum, "memory slices", lambda gpcs: widths[gpcs])


def _require_supply(
    problem: Problem, minimum: list[int], what: str, weight: Callable[[int], int]
) -> None:
    demand = sum(slots_left * weight(instance.gpcs) for instance, slots_left in _running(problem))
    sizes = {instance.gpcs for instance, _ in _running(problem)}
    for tenant in problem.tenants:
        fitting = {
            gpcs: slots
            for gpcs, slots in _durations(problem, tenant).items()
            if slots <= problem.slots and _fits(problem.board, [*minimum, gpcs])
        }
        demand += min((slots * weight(gpcs) for gpcs, slots in fitting.items()), default=0)
        sizes.update(fitting)
    at_once = _most_beside(problem.board, minimum, sizes, weight)
    if demand > at_once * problem.slots:
        raise InfeasibleError(
            f"tenants: every retraining must end inside the window, but together they need at "
            f"least {demand} slots x {what} and beside the tenants' minimum instances there are "
            f"{at_once} in each of the {problem.slots} slots; raise slots, lower some min_gpcs or "
            'set retraining of a tenant to "optional"'
        )


def _most_beside(
    board: Board, minimum: list[int], sizes: Collection[int], weight: Callable[[int], int]
) -> int:
    """The most that instances of `sizes` can weigh at once beside the minimum instances."""
    taken = Counter(minimum)
    return max(
        sum(weight(gpcs) for gpcs in (Counter(multiset) - taken).elements() if gpcs in sizes)
        for multiset in multisets(board)
        if taken <= Counter(multiset)
    )


def _fits(board: Board, sizes: Collection[int], fixed: Collection[Instance] = ()) -> bool:
    """Whether instances of these sizes can be placed beside those that are fixed."""
    if not fixed:
        return tuple(sorted(sizes, reverse=True)) in multisets(board)
    held = {(instance.start, instance.gpcs) for instance in fixed}
    wanted = sorted(sizes)
    for chosen in placement_sets(board):
        if len(chosen) != len(held) + len(wanted):
            continue
        rest = [place.gpcs for place in chosen if (place.start, place.gpcs) not in held]
        if sorted(rest) == wanted:
            return True
    return False


def _durations(problem: Problem, tenant: Tenant) -> dict[int, int]:
    """Size -> fewest slots of a retraining the plan has to start; empty where there is none."""
    if not problem.must_retrain(tenant):
        return {}
    fewest: dict[int, int] = {}
    for choice in tenant.configurations:
        for gpcs, slots in choice.slots.items():
            fewest[gpcs] = min(slots, fewest.get(gpcs, slots))
    return dict(sorted(fewest.items()))


def _key(tenant: Tenant, index: int) -> str:
    """Where a problem file gives the lengths of the tenant's retraining."""
    several = any(choice.name for choice in tenant.configurations)
    return f"tenants[{index}].{'retraining.configurations' if several else 'retraining_slots'}"


def _optional(tenant: Tenant) -> str:
    """The remedy of leaving the retraining out, as a problem file says it."""
    several = any(choice.name for choice in tenant.configurations)
    return "set retraining.optional" if several else 'set retraining to "optional"'


def _running(problem: Problem) -> list[tuple[Instance, int]]:
    """Every retraining's instance held before slot 0, with the slots it still needs."""
    held = problem.initial.instances if problem.initial else ()
    return [
        (instance, problem.slots_left(problem.tenant(instance.task.tenant)) or 0)
        for instance in held
        if instance.task is not None and instance.task.kind is Kind.RETRAINING
    ]


def _sizes(sizes: Collection[int]) -> str:
    return ", ".join(f"{gpcs}g" for gpcs in sizes)
