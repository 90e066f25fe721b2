"""Chooses the plan of a window: its retrainings, how far it looks, whether anything changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

from migrator.core.catalogue import Multiset
from migrator.core.errors import InfeasibleError, InputError
from migrator.core.problem import (
    Allocation,
    Charge,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    Task,
    Tenant,
)
from migrator.planning.check import check_plan, valued, violations
from migrator.planning.solve import make_plan
from migrator.policies.layouts import (
    Worth,
    best_allocation,
    fit_at,
    inference_wish,
    retraining_wish,
)
from migrator.policies.policy import (
    Observation,
    TenantView,
    remaining_s,
    running,
    waiting,
)
from migrator.policies.window_problem import (
    answered_by,
    busy_part,
    is_requested,
    problem_of,
    retraining_slots,
)

LONGEST_WINDOWS = 2
"""Windows within which a retraining that outlasts its own must be over."""
_ROUNDING = 1e-9


def planned(
    observation: Observation, charge: Charge, *, optional: bool = False
) -> tuple[Problem, Plan]:
    """The window's problem and plan.

    With `optional`, the plan retrains those tenants for which it pays, in this window and after
    it, and those whose retraining was requested, if they all fit. It keeps the present layout
    unless it is better than that. Otherwise it retrains as many
    as fit: if not all do, they are added one after the other while the rest still fits. Those with
    the highest value (accuracy gained x requests) per GPC and slot come first.

    Requested retrainings begin at once, if there is room for them.
    """
    for view in observation.tenants:
        if view.retraining is not None and view.retraining.requested:
            observation = _with_begun(observation, view.name)
    if optional:
        try:
            return _planned_beyond(observation, charge, _horizon(observation))
        except InfeasibleError:
            if not any(map(is_requested, observation.tenants)):
                raise
        observation = replace(observation, tenants=tuple(map(_unrequested, observation.tenants)))
        return _planned_beyond(observation, charge, _horizon(observation))
    problem = problem_of(observation, charge)
    try:
        return problem, make_plan(problem, steady=True)
    except InfeasibleError:
        if not any(problem.must_retrain(tenant) for tenant in problem.tenants):
            raise
    problem = _with_what_fits(problem)
    return problem, make_plan(problem, steady=True)


def _with_begun(observation: Observation, tenant: str) -> Observation:
    """The observation as if the waiting retraining of a tenant had just begun.

    On the size with which the fewest requests are lost until it ends, and on the slices that keep
    most instances. Unchanged if there is no room beside the smallest instances of all tenants.
    """
    board, view = observation.board, observation.tenant(tenant)
    if view not in waiting(observation):
        return observation
    wishes = [
        inference_wish(other.service, board, board.compute_slices) for other in observation.tenants
    ]
    rows = list(zip(observation.tenants, wishes, strict=True))
    busy = busy_part(observation)
    answered = [answered_by(observation, other, wish, busy) for other, wish in rows]
    received = sum(
        other.service.weight * float(other.ahead.mean(axis=0).sum())
        for other in observation.tenants
        if other.ahead is not None
    )
    state = view.retraining
    least_mib = 0.0 if state is None else 1024 * state.memory_gib
    length = {
        gpcs: remaining_s(view, board.sms_of(gpcs))
        for gpcs in view.service.training_sizes(board)
        if board.memory_mib_of(gpcs) >= least_mib
    }
    training = retraining_wish(tenant, length)
    training = replace(training, choices=tuple(filter(None, training.choices)))

    def worth(chosen: tuple[Multiset, ...]) -> Worth:
        served = zip(observation.tenants, answered, chosen, strict=False)
        able = sum(other.service.weight * answers[sizes] for other, answers, sizes in served)
        seconds = length[chosen[-1][0]]
        return -(received - able) * seconds, -seconds

    try:
        layout = best_allocation(observation, [*wishes, training], worth)
    except InputError:
        return observation
    task = Task(tenant, Kind.RETRAINING)
    begun = next(instance for instance in layout if instance.task == task)
    views = tuple(
        replace(other, retraining=replace(other.retraining, holding=begun))
        if other.name == tenant and other.retraining is not None
        else other
        for other in observation.tenants
    )
    stays = [begun, *running(observation).values()]
    left = [
        isinstance(held, Instance) and fit_at(board, [*stays, held]) for held in observation.held
    ]
    return replace(
        observation,
        tenants=views,
        held=tuple(compress(observation.held, left)),
        cold_s=tuple(compress(observation.cold_s, left)),
    )


def _horizon(observation: Observation) -> int:
    """Slots to plan: the rest of the window, or more if a waiting retraining may outlast it.

    Within the window only one that was requested, or that its plan has already chosen: of the
    others, the one of the next window learns newer data. Unless it was requested, only for gains
    that are worth something after the window.
    """
    slots = observation.slots_left
    chosen = [
        view
        for view in waiting(observation)
        if is_requested(view)
        or (view.value_after > 0 and (observation.slot == 0 or _is_planned(observation, view)))
    ]
    most = slots + (LONGEST_WINDOWS - 1) * observation.slots
    lengths = (
        retraining_slots(observation, view, choice, gpcs, late=True)
        for view in chosen
        if view.retraining is not None
        for choice in view.retraining.choices
        for gpcs in view.service.training_sizes(observation.board)
    )
    return max((length for length in lengths if length <= most), default=slots)


def _unrequested(view: TenantView) -> TenantView:
    """The tenant with a retraining that a plan may leave out."""
    if view.retraining is None:
        return view
    return replace(view, retraining=replace(view.retraining, requested=False))


def _is_planned(observation: Observation, view: TenantView) -> bool:
    """Whether the plan that is followed retrains the tenant."""
    plan = None if observation.decided is None else observation.decided.plan
    return plan is not None and any(made.tenant == view.name for made in plan.retrainings)


def _planned_beyond(observation: Observation, charge: Charge, slots: int) -> tuple[Problem, Plan]:
    """The plan of `slots` slots, cut off at the window's end."""
    whole = problem_of(observation, charge, optional=True, slots=slots)
    plan = staying_unless_better(whole, make_plan(whole, steady=True))
    if slots <= observation.slots_left:
        return whole, plan
    window = problem_of(observation, charge, optional=True)
    begun = {
        retraining.tenant: retraining
        for retraining in plan.retrainings
        if retraining.start < window.slots
    }
    tenants = tuple(
        _within_window(observation, window, tenant, longer, begun.get(tenant.name))
        for tenant, longer in zip(window.tenants, whole.tenants, strict=True)
    )
    window = replace(window, tenants=tenants)
    inside = tuple(
        replace(retraining, end=min(retraining.end, window.slots)) for retraining in begun.values()
    )
    cut = replace(plan, slots=plan.slots[: window.slots], retrainings=inside)
    cut = valued(window, cut)
    # the certificate is of the longer plan
    earned = cut.objective + cut.penalty
    cut = replace(cut, upper_bound=cut.objective + earned * plan.gap)
    check_plan(window, cut)
    return window, cut


def _within_window(
    observation: Observation,
    window: Problem,
    tenant: Tenant,
    longer: Tenant,
    begun: Retraining | None,
) -> Tenant:
    """The tenant of a window's problem whose plan was made for a longer time.

    A retraining that the plan begins ends with the window at the latest, and its value after the
    window is less by the time that it is late. One that the plan leaves out keeps its lengths.
    """
    tenant = replace(tenant, capability=longer.capability)  # what the plan was made with
    if window.slots_left(tenant) is not None:
        return tenant
    if begun is None:
        configurations = longer.configurations
        return replace(tenant, configurations=configurations, retraining_optional=True)
    inside = min(begun.end, window.slots) - begun.start
    late = (begun.end - begun.start - inside) / observation.slots
    value = observation.tenant(tenant.name).value_after
    lasting = max(0.0, value - late) / value if value > 0 else 0.0
    chosen = tenant.configuration(begun.configuration)
    chosen = replace(chosen, slots={**chosen.slots, begun.gpcs: inside})
    return replace(
        tenant,
        configurations=tuple(
            chosen if choice.name == chosen.name else choice for choice in tenant.configurations
        ),
        requests_after=lasting * tenant.requests_after,
    )


def staying_unless_better(problem: Problem, plan: Plan) -> Plan:
    """The plan, or one that keeps the present layout if the plan is not worth more on the same
    forecast and charge. Of two that are worth the same the one that retrains is taken."""
    stay = _staying(problem, plan)
    if stay is None or plan.objective > stay.objective + _ROUNDING * abs(stay.objective):
        return plan
    retrains = len(plan.retrainings) > len(stay.retrainings)
    return plan if retrains and plan.objective >= stay.objective else stay


def _staying(problem: Problem, plan: Plan) -> Plan | None:
    """A plan that changes nothing; None if that is not allowed."""
    if problem.initial is None:
        return None
    slots = tuple(
        Allocation(
            tuple(
                instance
                for instance in problem.initial.instances
                if _stays(problem, instance, slot)
            )
        )
        for slot in range(problem.slots)
    )
    running = {
        retraining.tenant: Retraining(
            retraining.tenant, 0, retraining.slots_left, instance.gpcs, retraining.configuration
        )
        for retraining in problem.initial.retrainings
        for instance in problem.initial.instances
        if instance.task == Task(retraining.tenant, Kind.RETRAINING)
    }
    stay = valued(problem, replace(plan, slots=slots, retrainings=tuple(running.values())))
    stay = replace(stay, upper_bound=max(stay.objective, plan.upper_bound))
    return None if violations(problem, stay) else stay


def _stays(problem: Problem, instance: Instance, slot: int) -> bool:
    """Whether an instance still has its task in a slot of a plan that changes nothing."""
    if instance.task is None:
        return False
    if instance.task.kind is Kind.INFERENCE:
        return True
    return slot < (problem.slots_left(problem.tenant(instance.task.tenant)) or 0)


def _with_what_fits(problem: Problem) -> Problem:
    wanted = [tenant for tenant in problem.tenants if problem.must_retrain(tenant)]
    fitting = _retraining_only(problem, ())
    kept: tuple[Tenant, ...] = ()
    for tenant in sorted(wanted, key=_promise, reverse=True):
        trial = _retraining_only(problem, (*kept, tenant))
        try:
            make_plan(trial.with_charge(Charge.PAPER), steady=True)
        except InfeasibleError:
            continue
        fitting, kept = trial, (*kept, tenant)
    return fitting


def _promise(tenant: Tenant) -> float:
    """Requests that only the retrained model would answer correctly, weighted, per GPC and slot it
    takes."""
    requests = tenant.requests
    return max(
        (choice.accuracy - tenant.accuracy_pre)
        * tenant.weight
        * requests
        / min(gpcs * slots for gpcs, slots in choice.slots.items())
        for choice in tenant.configurations
        if choice.slots
    )


def _retraining_only(problem: Problem, kept: tuple[Tenant, ...]) -> Problem:
    """The same problem in which only `kept` start a retraining."""
    tenants = tuple(
        tenant if tenant in kept or not problem.must_retrain(tenant) else _spared(tenant)
        for tenant in problem.tenants
    )
    return replace(problem, tenants=tenants)


def _spared(tenant: Tenant) -> Tenant:
    return replace(tenant, configurations=())
