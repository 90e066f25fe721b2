"""The planner of each charge, imported when it is needed, with its kernels compiled or loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from migrator.core.catalogue import board
from migrator.core.problem import Charge, Plan, Problem, RetrainingConfiguration, Tenant


def search(problem: Problem, time_limit_s: float, *, steady: bool) -> Plan:
    """The best plan that the planner of the problem's charge finds within the limit.

    `steady`: only the work counts, not the clock.
    """
    ready(problem.charge)
    return _planner(problem.charge)(problem, time_limit_s, steady)


@cache
def ready(charge: Charge) -> None:
    """Load the compiled kernels, or compile them once per installation, off the clock.

    A time limit is about planning; what a machine spends on its first compilation must not
    cut a plan short. The kernels of the `survivors` charge include those of `paper`.
    """
    from migrator.planning.kernels import announced

    planner = _planner(charge)
    with announced():
        planner(_tiny_problem(charge), 60.0, True)


def _planner(charge: Charge) -> Callable[[Problem, float, bool], Plan]:
    # imported here: compiled kernels are not needed to read, check or draw a plan
    if charge is Charge.PAPER:
        from migrator.planning.exact.planner import plan_exact

        return plan_exact
    from migrator.planning.survivors.planner import plan_survivors

    return plan_survivors


def _tiny_problem(charge: Charge) -> Problem:
    """The smallest problem that calls all kernels of the charge."""
    retraining = RetrainingConfiguration(0.6, {1: 1})
    tenant = Tenant("tiny", ((1.0, 2.0),), {1: 1.0}, 0.5, (retraining,), 1.0, 1)
    return Problem(board("A30-24GB"), 1.0, 2, charge, (tenant,))
