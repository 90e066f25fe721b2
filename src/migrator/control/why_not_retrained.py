"""Finds out why a tenant is not being retrained, from its state and the decision of the policy."""

from __future__ import annotations

import math
from dataclasses import replace

from migrator.control.retraining import Phase
from migrator.control.tenant_state import TenantState
from migrator.core.catalogue import Board
from migrator.core.not_retrained import NotRetrained, Reason
from migrator.core.problem import Kind, Problem, Task
from migrator.policies.layouts import training_sizes_beside
from migrator.policies.planning import LONGEST_WINDOWS
from migrator.policies.policy import Decision, TenantView, remaining_s


def why_not_retrained(tenant: TenantState, *, paused: bool) -> NotRetrained | None:
    """Why the tenant is not being retrained now; None if it is, or was in this window.

    `paused`: an operator has paused reconfiguration.
    """
    job = tenant.retraining
    if job is not None and job.phase in (Phase.RUNNING, Phase.DONE):
        return None
    if tenant.drained:
        return NotRetrained(Reason.DRAINED, "drained by an operator")
    if job is None:
        return NotRetrained(Reason.NO_DATA, _missing_data(tenant))
    if paused:
        return NotRetrained(Reason.PAUSED, "reconfiguration is paused by an operator")
    waiting = NotRetrained(Reason.NO_PLAN, "no plan: the policy has not decided about this window")
    return tenant.not_planned or waiting


def why_not_planned(
    tenant: TenantState,
    decision: Decision,
    board: Board,
    slot_s: float,
    slot: int,
    *,
    plans: bool,
) -> NotRetrained:
    """Why a decision that takes effect in `slot` does not start a waiting retraining now.

    `plans`: the policy makes plans.
    """
    task = Task(tenant.name, Kind.RETRAINING)
    for ahead, holdings in enumerate(decision.slots):
        if any(holding.task == task for holding in holdings):
            return NotRetrained(Reason.PLANNED, f"planned to begin in slot {slot + ahead + 1}")
    if decision.problem is None or decision.plan is None:
        if plans:
            return NotRetrained(Reason.NO_PLAN, "no plan: none was found, or no request was seen")
        return NotRetrained(Reason.LEFT_OUT, "left out: the policy gives it no part of the GPU")
    for retraining in decision.plan.retrainings:
        if retraining.tenant == tenant.name:
            begins = decision.begin + retraining.start
            # a decision may hold fewer slots than its plan
            if begins >= slot:
                return NotRetrained(Reason.PLANNED, f"planned to begin in slot {begins + 1}")
            return NotRetrained(Reason.FAILED, "planned, but its instance was not ready in time")
    # only a window's first plan starts retrainings that outlast the window
    at_start = decision.begin == 0
    return _why_left_out(tenant, tenant.view(), decision.problem, board, slot_s, at_start)


def _why_left_out(
    tenant: TenantState,
    view: TenantView,
    problem: Problem,
    board: Board,
    slot_s: float,
    at_start: bool,
) -> NotRetrained:
    """Why a plan does not contain a retraining that could have been in it.

    `at_start`: the plan was made at the window's start.
    """
    sizes = view.service.training_sizes(board)
    if not sizes:
        needed, most = view.service.profile.training_mib, board.memory_mib_of(board.sizes[-1])
        why = f"not planned: training needs {needed:.0f} MiB, the largest instance has {most:.0f}"
        return NotRetrained(Reason.OUT_OF_MEMORY, why)
    least = [
        min(gpcs for gpcs in tenant.capability if gpcs >= tenant.min_gpcs)
        for tenant in problem.tenants
    ]
    usable = training_sizes_beside(view.service, least, board)
    if not usable:
        why = (
            f"not planned: training needs {sizes[0]} GPCs, for which there is no room beside the "
            "smallest instances that serve all tenants"
        )
        return NotRetrained(Reason.NO_ROOM, why)
    optional = any(
        other.name == tenant.name and other.retraining_optional for other in problem.tenants
    )
    state, sms = view.retraining, board.sms_of(usable[-1])
    if optional and state is not None:  # the plan may have chosen the quickest configuration
        quickest = min(state.choices, key=lambda choice: choice.seconds.at(sms))
        view = replace(view, retraining=replace(state, seconds=quickest.seconds))
    # an optional retraining is planned only where four of five would end in time
    seconds = remaining_s(view, sms, late=optional)
    left_s = _rounded(problem.slots * slot_s)
    longest = LONGEST_WINDOWS if optional and at_start else 1
    if math.ceil(seconds / slot_s) > longest * problem.slots:
        why = (
            f"not planned: takes {_rounded(seconds)} s on {usable[-1]} GPCs, the largest instance "
            "beside those that serve; the window has "
        )
        why += f"{left_s} s" if at_start else f"{left_s} s left"
        if longest > 1:
            why += f", and it must end within {longest} windows"
        return NotRetrained(Reason.TOO_LONG, why)
    if not optional:
        why = "not planned: no room beside serving and the retrainings of other tenants"
        return NotRetrained(Reason.NO_ROOM, why)
    return NotRetrained(Reason.LEFT_OUT, _gain_left_out(tenant, problem))


def _gain_left_out(tenant: TenantState, problem: Problem) -> str:
    if not any(map(sum, problem.tenant(tenant.name).received)):
        return "left out: no requests are forecast for the window"
    job = tenant.retraining
    assert job is not None, "only a waiting retraining is left out"
    gain = job.expected - tenant.accuracy
    why = f"left out: expected gain {gain:.3f} ({tenant.accuracy:.3f} to {job.expected:.3f})"
    if tenant.model.no_estimate:
        why += f"; assumed, because there is no estimate: {tenant.model.no_estimate}"
    return why


def _rounded(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def _missing_data(tenant: TenantState) -> str:
    if tenant.labelled is None:
        return "nothing to learn in this window"
    return f"too few new labels: {tenant.labelled}, a retraining needs {tenant.labels_needed}"
