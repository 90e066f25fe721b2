"""From a problem to a plan that may be used: feasible, solved, checked, and prepared.

The entry for every caller that needs a plan: the CLI and the policies.

Pre-initialization (the paper's section 4.2) prepares an instance where nothing runs yet. A plan
made under the `paper` charge pays the whole overhead at every change. But an instance that a task
will get in slot s can be created and warmed before s if its slices are unused until then.
`preinitialize` walks a finished plan and finds, for every change, how much of the overhead
disappears that way. It touches only unused slices, so no running task notices. Under `survivors`
there is no such pass: holding an instance early is a choice of the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache

from migrator.core.catalogue import Board, find_placement, multisets, placement_sets
from migrator.core.errors import InfeasibleError, InputError, SolverError
from migrator.core.problem import Charge, Instance, Kind, Plan, Problem, Task, Tenant
from migrator.plan.check import check_plan, later_goodput_of

DEFAULT_SHARE = 0.01
"""Time limit as a share of the window, unless the user sets one: the paper's 1%."""


def make_plan(
    problem: Problem,
    *,
    solver: str = "exact",
    backend: str = "highs",
    time_limit_s: float | None = None,
    warm_start: bool = False,
    steady: bool = False,
) -> Plan:
    """The solver's best plan within the limit, verified by an independent checker.

    `steady`: the exact planners count work instead of seconds, so that a plan depends on its
    problem alone; a slow machine then takes longer than the limit.
    """
    if solver not in SOLVERS:
        raise InputError(f"--solver: there is no {solver!r}; use {' or '.join(SOLVERS)}")
    require_time_limit(time_limit_s)
    require_feasible(problem)
    limit = default_time_limit_s(problem) if time_limit_s is None else time_limit_s
    if steady and solver == "exact":
        plan = _search(problem, limit, steady=True)
    else:
        plan = SOLVERS[solver](problem, limit, backend, warm_start)
    # The solver's own sum and the checker's differ by rounding only; the checker's is given.
    checked = replace(
        plan, goodput=check_plan(problem, plan), later_goodput=later_goodput_of(problem, plan)
    )
    bound = checked.objective if plan.gap == 0 else max(checked.objective, plan.upper_bound)
    return replace(checked, upper_bound=bound)


def require_time_limit(time_limit_s: float | None, option: str = "--time-limit") -> None:
    """InputError unless the limit is left out or a positive number."""
    if time_limit_s is not None and not 0 < time_limit_s < float("inf"):
        raise InputError(f"{option}: must be a positive number of seconds, e.g. 2")


def default_time_limit_s(problem: Problem) -> float:
    """1% of the window."""
    return DEFAULT_SHARE * problem.slots * problem.slot_s


def _exact(problem: Problem, limit_s: float, _backend: str, _warm: bool) -> Plan:
    return _search(problem, limit_s, steady=False)


def _search(problem: Problem, limit_s: float, *, steady: bool) -> Plan:
    ready(problem.charge)
    return _planner(problem.charge)(problem, limit_s, steady)


def _planner(charge: Charge) -> Callable[[Problem, float, bool], Plan]:
    # imported here: compiled kernels are not needed to read, check or draw a plan
    if charge is Charge.PAPER:
        from migrator.plan.exact.planner import plan_exact

        return plan_exact
    from migrator.plan.survivors.planner import plan_survivors

    return plan_survivors


def _ilp(problem: Problem, limit_s: float, backend: str, warm_start: bool) -> Plan:
    from migrator.plan.ilp import Status, solve_ilp

    start = _search(problem, limit_s, steady=False) if warm_start else None
    outcome = solve_ilp(problem, backend=backend, time_limit_s=limit_s, start=start)
    if outcome.plan is not None:
        return outcome.plan
    if outcome.status is Status.INFEASIBLE:
        raise InfeasibleError(
            "tenants: the ILP has no solution, so some retraining cannot be completed in the "
            "window beside the minimum of every tenant; give it more slots or fewer tenants"
        )
    raise SolverError(
        f"{backend} found no plan within {limit_s:g} s; raise --time-limit, use --warm-start, "
        "or --solver exact"
    )


SOLVERS: dict[str, Callable[[Problem, float, str, bool], Plan]] = {"exact": _exact, "ilp": _ilp}


@cache
def ready(charge: Charge) -> None:
    """Load the compiled kernels, or compile them once per installation, off the clock.

    A time limit is about planning; what a machine spends on its first compilation must not
    cut a plan short.
    """
    from migrator.plan.first_use import (
        compile_first_half,
        start_second_process,
        tiny_problem,
        without_collection,
    )
    from migrator.plan.kernels import note_compiled

    with without_collection():
        second = start_second_process(charge)
        if second is not None:
            try:
                compile_first_half(charge)
                second.wait()
            finally:
                second.terminate()
                second.wait()
        _planner(charge)(tiny_problem(charge), 60.0, True)  # loads all, compiles what is missing
    note_compiled(charge)
    if charge is Charge.SURVIVORS:  # its planner needs every kernel of the other one
        note_compiled(Charge.PAPER)


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
    most = max(len(each) for each in multisets(board))
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
    left = problem.slots_left(tenant)
    if left is not None and left > problem.slots:
        raise InfeasibleError(
            f"initial.retrainings: the retraining of {tenant.name!r} must end inside the window, "
            f"but it needs {left} more slots and slots is {problem.slots}; raise slots"
        )
    durations = _durations(problem, tenant)
    if durations and min(durations.values()) > problem.slots:
        raise InfeasibleError(
            f"tenants[{index}].retraining_slots: the retraining of {tenant.name!r} must end "
            f"inside the window, but it takes at least {min(durations.values())} slots and slots "
            f'is {problem.slots}; raise slots or set retraining to "optional"'
        )


def _require_running_beside(problem: Problem, minimum: list[int]) -> None:
    running = [instance for instance, _ in _running(problem)]
    if not _fits(problem.board, minimum, running):
        raise InfeasibleError(
            f"initial.retrainings: a running retraining keeps its instance, but beside "
            f"{', '.join(str(each) for each in running)} the tenants' minimum instances "
            f"({_sizes(minimum)}) do not fit on {problem.board.name}; lower some min_gpcs or end "
            "a retraining first"
        )


def _require_retraining_beside(problem: Problem, index: int, minimum: list[int]) -> None:
    durations = _durations(problem, problem.tenants[index])
    in_time = {gpcs: slots for gpcs, slots in durations.items() if slots <= problem.slots}
    if not in_time or any(
        _fits_late(problem, [*minimum, gpcs], problem.slots - slots)
        for gpcs, slots in in_time.items()
    ):
        return
    beside = "and the running retrainings " if _running(problem) else ""
    raise InfeasibleError(
        f"tenants[{index}].retraining_slots: the retraining of {problem.tenants[index].name!r} "
        f"must run beside the tenants' minimum instances, but none of its sizes that end in time "
        f"({_sizes(in_time)}) fits beside those ({_sizes(minimum)}) {beside}on "
        f"{problem.board.name}; offer a smaller size, lower some min_gpcs or set retraining "
        'to "optional"'
    )


def _fits_late(problem: Problem, sizes: list[int], latest: int) -> bool:
    """Whether a retraining fits that starts as late as it can, when least is still running."""
    still = [instance for instance, left in _running(problem) if left > latest]
    return _fits(problem.board, sizes, still)


def _require_retrainings_together(problem: Problem, minimum: list[int]) -> None:
    """The slots of all retrainings must fit into what the minimum instances leave, slot by slot."""
    widths = {gpcs: each.memory_slices for gpcs, each in problem.board.plain_profiles.items()}
    _require_supply(problem, minimum, "instances", lambda _: 1)
    _require_supply(problem, minimum, "GPCs", lambda gpcs: gpcs)
    _require_supply(problem, minimum, "memory slices", lambda gpcs: widths[gpcs])


def _require_supply(
    problem: Problem, minimum: list[int], what: str, weight: Callable[[int], int]
) -> None:
    demand = sum(left * weight(instance.gpcs) for instance, left in _running(problem))
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
        sum(weight(gpcs) for gpcs in (Counter(each) - taken).elements() if gpcs in sizes)
        for each in multisets(board)
        if taken <= Counter(each)
    )


def _fits(board: Board, sizes: Collection[int], fixed: Collection[Instance] = ()) -> bool:
    """Whether instances of these sizes can be placed beside those that are fixed."""
    if not fixed:
        return tuple(sorted(sizes, reverse=True)) in multisets(board)
    held = {(each.start, each.gpcs) for each in fixed}
    wanted = sorted(sizes)
    for each in placement_sets(board):
        if len(each) != len(held) + len(wanted):
            continue
        rest = [place.gpcs for place in each if (place.start, place.gpcs) not in held]
        if sorted(rest) == wanted:
            return True
    return False


def _durations(problem: Problem, tenant: Tenant) -> dict[int, int]:
    """Size -> slots of the retraining the plan has to start; empty where there is none."""
    if tenant.retraining_slots is None or not problem.must_retrain(tenant):
        return {}
    return dict(sorted(tenant.retraining_slots.items()))


def _running(problem: Problem) -> list[tuple[Instance, int]]:
    """Every retraining's instance held before slot 0, with the slots it still needs."""
    held = problem.initial.instances if problem.initial else ()
    return [
        (each, problem.slots_left(problem.tenant(each.task.tenant)) or 0)
        for each in held
        if each.task is not None and each.task.kind is Kind.RETRAINING
    ]


def _sizes(sizes: Collection[int]) -> str:
    return ", ".join(f"{gpcs}g" for gpcs in sizes)


@dataclass(frozen=True)
class Preparation:
    """A new instance of a tenant: needed in `slot`, preparable from `from_slot` on."""

    tenant: str
    start: int
    gpcs: int
    from_slot: int
    slot: int
    overhead_s: float
    hidden_s: float


@dataclass(frozen=True)
class Preinitialization:
    """What the pass found for a whole plan."""

    preparations: tuple[Preparation, ...]
    """every new instance, also those for which nothing could be hidden"""
    releases: int
    """charged changes that only give instances up: nothing has to be prepared for them"""
    goodput_regained: float
    """what the plan gains when each change pays only the overhead that is not hidden"""

    @property
    def overhead_s(self) -> float:
        """Overhead of all new instances."""
        return sum(each.overhead_s for each in self.preparations)

    @property
    def hidden_s(self) -> float:
        """The part of it that falls before the instance is needed."""
        return sum(each.hidden_s for each in self.preparations)

    @property
    def hidden_share(self) -> float:
        """Hidden over all, 0 where nothing is paid."""
        return self.hidden_s / self.overhead_s if self.overhead_s else 0.0


def preinitialize(problem: Problem, plan: Plan) -> Preinitialization:
    """Find what can be prepared ahead in a plan made under the `paper` charge."""
    busy = [_busy_mask(problem, slot.instances) for slot in plan.slots]
    preparations: list[Preparation] = []
    releases, regained = 0, 0.0
    for tenant in problem.tenants:
        end = _completion(plan, tenant)
        for slot, before, now in _changes(problem, plan, tenant):
            new = [_prepared(problem, tenant, each, slot, busy) for each in _new_ones(before, now)]
            preparations += new
            releases += not new
            hidden_s = sum(each.hidden_s for each in new) / len(new) if new else 0.0
            accuracy = tenant.accuracy_post if slot >= end else tenant.accuracy_pre
            regained += accuracy * _regained(problem, tenant, slot, now, hidden_s)
    return Preinitialization(
        tuple(sorted(preparations, key=lambda each: (each.slot, each.start))), releases, regained
    )


def _completion(plan: Plan, tenant: Tenant) -> int:
    ends = [each.end for each in plan.retrainings if each.tenant == tenant.name]
    return ends[0] if ends else len(plan.slots)


def _busy_mask(problem: Problem, instances: tuple[Instance, ...]) -> int:
    mask = 0
    for each in instances:
        placement = find_placement(problem.board, each.start, each.gpcs)
        if each.task is not None and placement is not None:
            mask |= placement.mask
    return mask


def _changes(
    problem: Problem, plan: Plan, tenant: Tenant
) -> Iterator[tuple[int, list[Instance], list[Instance]]]:
    """The slots in which the tenant's multiset changes, with what it held before and then."""
    task = Task(tenant.name, Kind.INFERENCE)
    before = None
    if problem.initial is not None:
        before = [each for each in problem.initial.instances if each.task == task]
    for slot, allocation in enumerate(plan.slots):
        now = [each for each in allocation.instances if each.task == task]
        if before is not None and sorted(i.gpcs for i in before) != sorted(i.gpcs for i in now):
            yield slot, before, now
        before = now


def _new_ones(before: list[Instance], now: list[Instance]) -> list[Instance]:
    """Which instances a change adds: by size, and of one size those that sit elsewhere."""
    missing = Counter(each.gpcs for each in now) - Counter(each.gpcs for each in before)
    new = []
    for each in sorted(now, key=lambda each: each in before):
        if missing[each.gpcs] > 0:
            missing[each.gpcs] -= 1
            new.append(each)
    return new


def _prepared(
    problem: Problem, tenant: Tenant, instance: Instance, slot: int, busy: list[int]
) -> Preparation:
    placement = find_placement(problem.board, instance.start, instance.gpcs)
    assert placement is not None, "plans are checked before they come here"
    first = slot
    while (
        first > 0
        and not busy[first - 1] & placement.mask
        and (slot - first) * problem.slot_s < tenant.overhead_s
    ):
        first -= 1
    hidden_s = min(tenant.overhead_s, (slot - first) * problem.slot_s)
    return Preparation(
        tenant.name, instance.start, instance.gpcs, first, slot, tenant.overhead_s, hidden_s
    )


def _regained(
    problem: Problem, tenant: Tenant, slot: int, now: list[Instance], hidden_s: float
) -> float:
    total = sum(tenant.capability[each.gpcs] for each in now)
    per_second = total / len(now) / problem.slot_s
    paid, left = tenant.overhead_s, tenant.overhead_s - hidden_s
    gained = 0.0
    for scenario in tenant.received:
        gained += min(scenario[slot], total - left * per_second)
        gained -= min(scenario[slot], total - paid * per_second)
    return gained / len(tenant.received)
