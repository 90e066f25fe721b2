"""The ILP: hand-checked windows, the paper's corrected formulas, both charges, both backends."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import highspy
import pytest
from hypothesis import given, settings
from support.amount import amount
from support.brute_force import best_plan
from support.make import only
from support.problems import problems, random_problem

from migrator.core.catalogue import (
    Board,
    Multiset,
    Placement,
    board,
    boards,
    multiset_of,
    placement_sets,
    placements,
)
from migrator.core.errors import InputError, PlanError, SolverError
from migrator.core.problem import (
    Allocation,
    Charge,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    Retraining,
    RunningRetraining,
    Task,
    Tenant,
)
from migrator.planning.check import check_plan
from migrator.planning.ilp import Group, IlpOutcome, Status, build_ilp, solve_ilp
from migrator.planning.ilp.paper import build_paper
from migrator.planning.ilp.tables import PRE, tables


def a_tenant(
    name: str = "a",
    *,
    accuracy_post: float = 1.0,
    retraining_slots: Mapping[int, int] | None = None,
    **changes: Any,
) -> Tenant:
    """Serves 10 requests per GPC, whatever the instance; nothing to retrain."""
    plain = Tenant(
        name=name,
        received=((10.0, 10.0),),
        capability={1: 10.0, 2: 20.0, 4: 40.0},
        accuracy_pre=0.5,
        configurations=only(accuracy_post, retraining_slots),
        overhead_s=1.0,
        min_gpcs=1,
    )
    return replace(plain, **changes)


def a_problem(
    *tenants: Tenant,
    charge: Charge = Charge.PAPER,
    gpu: str = "A30-24GB",
    initial: Initial | None = None,
) -> Problem:
    slots = len(tenants[0].received[0])
    return Problem(board(gpu), 1.0, slots, charge, tenants, initial)


def solved(problem: Problem, **options: Any) -> tuple[Plan, IlpOutcome]:
    """The plan, after the judge has seen it, and the outcome."""
    outcome = solve_ilp(problem, **options)
    assert outcome.status is Status.OPTIMAL
    assert outcome.plan is not None
    assert check_plan(problem, outcome.plan) == pytest.approx(outcome.goodput)
    assert outcome.gap == 0.0
    return outcome.plan, outcome


def held(kind: Kind, *spots: tuple[int, int], tenant: str = "a") -> tuple[Instance, ...]:
    return tuple(Instance(start, gpcs, Task(tenant, kind)) for start, gpcs in spots)


def slots_of(plan: Plan, kind: Kind, tenant: str = "a") -> list[set[tuple[int, int]]]:
    task = Task(tenant, kind)
    return [
        {(instance.start, instance.gpcs) for instance in slot.instances if instance.task == task}
        for slot in plan.slots
    ]


def a_plan(*slots: tuple[Instance, ...]) -> Plan:
    return Plan(0.0, 0.0, "hand", 0.0, (), tuple(map(Allocation, slots)))


# Optima found by hand.


def test_one_tenant_that_retrains() -> None:
    """Slot 0 on 1+1 beside the retraining: 20 x 0.5. Then 1+1+1+1 with one mean instance lost:
    40 - 40/4, then 35 of 40, both at the new accuracy. Any later start serves longer at 0.5."""
    tenant = a_tenant(
        received=((35.0, 35.0, 35.0),),
        capability={1: 10.0, 2: 18.0, 4: 30.0},
        retraining_slots={2: 1},
    )
    plan, outcome = solved(a_problem(tenant))
    assert outcome.goodput == pytest.approx(10 + 30 + 35)
    assert plan.retrainings == (Retraining("a", 0, 1, 2),)
    assert plan.solver == "ilp"


def test_survivors_warm_up_over_the_overhead() -> None:
    """Overhead of 1.5 slots: three new 1g serve nothing, then half, then all."""
    tenant = a_tenant(received=((99.0,) * 3,), capability={1: 10.0}, overhead_s=1.5)
    initial = Initial(held(Kind.INFERENCE, (0, 1)))
    problem = a_problem(tenant, charge=Charge.SURVIVORS, initial=initial)
    _, outcome = solved(problem)
    assert outcome.goodput == pytest.approx(0.5 * (10 + (10 + 15) + 40))


@pytest.mark.parametrize(("charge", "after"), [(Charge.SURVIVORS, 20.0), (Charge.PAPER, 10.0)])
def test_an_instance_lives_on_after_its_retraining(charge: Charge, after: float) -> None:
    """Under survivors the retraining's instance is warm at once; under paper 2+2 is a change."""
    tenant = a_tenant(
        received=((20.0, 20.0),),
        capability={2: 10.0},
        min_gpcs=2,
        retraining_slots={2: 1},
        overhead_s=5.0,
    )
    initial = Initial(
        (*held(Kind.INFERENCE, (0, 2)), *held(Kind.RETRAINING, (2, 2))),
        (RunningRetraining("a", 1),),
    )
    plan, outcome = solved(a_problem(tenant, charge=charge, initial=initial))
    assert outcome.goodput == pytest.approx(0.5 * 10 + after)
    assert plan.retrainings == (Retraining("a", 0, 1, 2),)


def test_pre_initialization_is_found_under_survivors() -> None:
    """The free slices are held one slot ahead of the burst, so that they are warm in it."""
    tenant = a_tenant(received=((10.0, 40.0),), capability={1: 10.0})
    initial = Initial(held(Kind.INFERENCE, (0, 1)))
    problem = a_problem(tenant, charge=Charge.SURVIVORS, initial=initial)
    plan, outcome = solved(problem)
    assert outcome.goodput == pytest.approx(0.5 * (10 + 40))
    assert len(slots_of(plan, Kind.INFERENCE)[0]) == 4


def test_a_running_retraining_may_outlast_the_window() -> None:
    initial = Initial(
        (*held(Kind.INFERENCE, (0, 2)), *held(Kind.RETRAINING, (2, 2))),
        (RunningRetraining("a", 7),),
    )
    plan, outcome = solved(a_problem(a_tenant(retraining_slots={2: 1}), initial=initial))
    assert outcome.goodput == pytest.approx(0.5 * (10 + 10))
    assert slots_of(plan, Kind.RETRAINING) == [{(2, 2)}, {(2, 2)}]


def test_expectation_over_scenarios_counts() -> None:
    """min(mean, capability) would be 20 a slot; the empty scenario makes it 10."""
    tenant = a_tenant(received=((40.0, 40.0), (0.0, 0.0)), capability={2: 10.0})
    for charge in Charge:
        _, outcome = solved(a_problem(tenant, charge=charge))
        assert outcome.goodput == pytest.approx(0.5 * (10 + 10))


# The paper's formulas, corrected.


def test_reconfiguration_is_forced_on_change() -> None:
    """Printed, R may stay 0 and this window is worth 60; b's change to 1+1+1 costs 10 of 30."""
    first = a_tenant("a", received=((30.0, 0.0),), accuracy_pre=1.0)
    second = a_tenant("b", received=((0.0, 30.0),), accuracy_pre=1.0)
    plan, outcome = solved(a_problem(first, second))
    assert outcome.goodput == pytest.approx(30 + 20)
    assert {gpcs for _, gpcs in slots_of(plan, Kind.INFERENCE, "b")[1]} == {1}
    free = [replace(tenant, overhead_s=0.0) for tenant in (first, second)]
    assert solved(a_problem(*free))[1].goodput == pytest.approx(60)


def test_reconfiguration_counts_when_both_counts_stay() -> None:
    """3+1 to 2+2: as many instances, as many GPCs, and yet other instances."""
    tenant = a_tenant(received=((99.0, 99.0),), capability={1: 10.0, 2: 20.0, 3: 30.0})
    ilp = build_paper(tables(a_problem(tenant, gpu="A100-40GB")))
    values = ilp.write(
        a_plan(held(Kind.INFERENCE, (4, 3), (0, 1)), held(Kind.INFERENCE, (0, 2), (2, 2)))
    )
    assert ilp.model.broken_row(values) is None
    assert ilp.model.cost @ values == pytest.approx(0.5 * (40 + 40 - 40 / 2))
    at = 1, ilp.tables.tenants[0].patterns.index((2, 2)), PRE
    values[[ilp.keep[0][at], ilp.change[0][at]]] = 1.0, 0.0
    assert ilp.model.broken_row(values) == "reconfiguration[a,1,2+2]"


def test_no_interruption_binds_only_at_the_start() -> None:
    """Printed, z * sum(q) = RT has no solution: z is 0 in three of these four slots."""
    tenant = a_tenant(received=((10.0,) * 4,), retraining_slots={1: 2})
    plan, outcome = solved(a_problem(tenant))
    assert outcome.goodput == pytest.approx(0.5 * 20 + 1.0 * 20)
    running = slots_of(plan, Kind.RETRAINING)
    assert running[0] == running[1] != set()
    assert running[2:] == [set(), set()]


def test_retraining_time_follows_the_size() -> None:
    """Twice the slots on half the size: the light load takes 2g, the heavy one cannot spare it."""
    light = a_tenant(received=((10.0,) * 4,), capability={1: 10.0}, retraining_slots={1: 4, 2: 2})
    heavy = replace(light, received=((30.0,) * 4,), configurations=only(0.6, {1: 4, 2: 2}))
    assert solved(a_problem(light))[0].retrainings == (Retraining("a", 0, 2, 2),)
    plan, outcome = solved(a_problem(heavy))
    assert plan.retrainings == (Retraining("a", 0, 4, 1),)
    assert outcome.goodput == pytest.approx(0.5 * 30 * 4)


def test_minimum_is_one_instance_not_a_sum() -> None:
    """Printed, 1+1+1+1 has its 2 GPCs and serves 40; no instance in it can hold the model."""
    tenant = a_tenant(received=((40.0, 40.0),), capability={1: 10.0, 2: 11.0}, min_gpcs=2)
    for charge in Charge:
        plan, outcome = solved(a_problem(tenant, charge=charge))
        assert outcome.goodput == pytest.approx(0.5 * (31 + 31))
        assert all(any(gpcs == 2 for _, gpcs in slot) for slot in slots_of(plan, Kind.INFERENCE))


# The model.


@pytest.mark.parametrize("charge", Charge)
def test_every_row_is_named_by_its_group(charge: Charge) -> None:
    tenants = [a_tenant(name, retraining_slots={1: 2, 2: 1}, floor=0.5) for name in "ab"]
    model = build_ilp(a_problem(*tenants, charge=charge)).model
    in_objective = (Group.THROUGHPUT, Group.FLOOR)
    assert len(set(model.row_names)) == model.rows
    for group in Group:
        names = model.rows_of(group)
        assert all(name.startswith(f"{group}[") for name in names)
        # Under `paper` a pattern's throughput is a constant: it is in the objective.
        assert bool(names) != (group in in_objective and charge is Charge.PAPER)


@pytest.mark.parametrize("charge", Charge)
def test_no_large_constants(charge: Charge) -> None:
    """The largest factor of any row is a capability, a throughput or a number of instances."""
    tenants = [a_tenant(name, retraining_slots={1: 2, 2: 1}) for name in "ab"]
    model = build_ilp(a_problem(*tenants, charge=charge)).model
    assert abs(model.entry_values).max() <= (7 if charge is Charge.PAPER else 40)


@pytest.mark.parametrize(
    "one", {placements(board): board for board in boards().values()}.values(), ids=lambda b: b.name
)
def test_places_need_no_integrality(one: Board) -> None:
    """Whatever slices are taken, sizes have fractional places only if they have whole ones.

    Enough to look at the smallest multisets without places: both properties are inherited.
    """
    for taken in range(1 << one.memory_slices):
        free = [placement for placement in placements(one) if not placement.mask & taken]
        whole = {(), *(multiset_of(sizes) for sizes in placement_sets(one) if {*sizes} <= {*free})}
        grown = {tuple(sorted((*sizes, k), reverse=True)) for sizes in whole for k in one.sizes}
        for sizes in grown - whole:
            parts = (sizes[:at] + sizes[at + 1 :] for at in range(len(sizes)))
            if all(part in whole for part in parts):
                assert not _has_fractional_places(one, free, sizes), (bin(taken), sizes)


def _has_fractional_places(one: Board, free: list[Placement], sizes: Multiset) -> bool:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for _ in free:
        solver.addVar(0.0, 1.0)

    def add(columns: list[int], lower: float, upper: float) -> None:
        solver.addRow(lower, upper, len(columns), columns, [1.0] * len(columns))

    for size, number in Counter(sizes).items():
        add([i for i, placement in enumerate(free) if placement.gpcs == size], number, number)
    for at in range(one.memory_slices):
        add([i for i, placement in enumerate(free) if placement.mask >> at & 1], 0.0, 1.0)
    solver.run()
    return bool(solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)


# Against brute force.


def agree(problem: Problem) -> None:
    best, outcome = best_plan(problem), solve_ilp(problem)
    if best is None:
        assert outcome.status is Status.INFEASIBLE
        assert outcome.plan is None
        return
    _, outcome = solved(problem)
    assert outcome.plan is not None
    assert outcome.plan.objective == pytest.approx(best.objective, rel=1e-7, abs=1e-7)
    ilp = build_ilp(problem)
    values = ilp.write(best)
    assert ilp.model.broken_row(values) is None
    assert ilp.model.cost @ values == pytest.approx(best.objective)


@settings(max_examples=amount(50, 100), deadline=None)
@given(problems(max_tenants=3, max_slots=4, max_configurations=3))
def test_agrees_with_brute_force(problem: Problem) -> None:
    agree(problem)


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize("initial", [False, True])
def test_agrees_with_brute_force_on_an_a100(charge: Charge, initial: bool) -> None:
    agree(
        random_problem(
            3, tenants=2, slots=2, board="A100-40GB", charge=charge, initial=initial, scenarios=2
        )
    )


# Outcomes.


def test_the_same_problem_has_the_same_plan() -> None:
    problem = random_problem(5, tenants=2, slots=4, charge=Charge.SURVIVORS)
    first, second = solved(problem)[0], solved(problem)[0]
    assert replace(first, solve_s=0.0) == replace(second, solve_s=0.0)


def test_nothing_moves_without_need_under_paper() -> None:
    initial = Initial(held(Kind.INFERENCE, (3, 1)))
    tenant = a_tenant(received=((10.0,) * 3,), capability={1: 10.0}, overhead_s=9.0)
    plan, _ = solved(a_problem(tenant, initial=initial))
    assert slots_of(plan, Kind.INFERENCE) == [{(3, 1)}] * 3
    assert all(before == after for before, after in pairwise(plan.slots))


@pytest.mark.parametrize("charge", Charge)
def test_infeasible(charge: Charge) -> None:
    no_room = a_tenant(capability={4: 40.0}, min_gpcs=4, retraining_slots={1: 1})
    too_long = a_tenant(retraining_slots={1: 3})
    never = a_tenant(capability={1: 10.0}, min_gpcs=2)
    for tenant in (no_room, too_long, never):
        outcome = solve_ilp(a_problem(tenant, charge=charge))
        assert outcome.status is Status.INFEASIBLE
        assert (outcome.plan, outcome.goodput, outcome.upper_bound, outcome.gap) == (None,) * 4


def large_problem() -> Problem:
    return random_problem(1, tenants=2, slots=30, board="A100-40GB", charge=Charge.SURVIVORS)


def test_time_limit_without_a_plan() -> None:
    outcome = solve_ilp(large_problem(), time_limit_s=1e-3)
    assert outcome.status is Status.TIME_LIMIT
    assert (outcome.plan, outcome.goodput, outcome.gap) == (None, None, None)
    assert outcome.upper_bound is not None
    assert math.isfinite(outcome.upper_bound)


@pytest.mark.parametrize("charge", Charge)
def test_warm_start(charge: Charge) -> None:
    problem = random_problem(5, tenants=2, slots=4, charge=charge)
    cold, outcome = solved(problem)
    _, warm = solved(problem, start=cold)
    assert warm.goodput == pytest.approx(outcome.goodput)


def test_warm_start_is_the_plan_when_time_is_over() -> None:
    problem = a_problem(
        *(
            a_tenant(name, received=((70.0, 9.0) * 15,), capability={1: 10.0, 3: 30.0})
            for name in "ab"
        ),
        charge=Charge.SURVIVORS,
        gpu="A100-40GB",
    )
    slot = (*held(Kind.INFERENCE, (0, 3)), *held(Kind.INFERENCE, (4, 3), tenant="b"))
    start = a_plan(*[slot] * 30)
    outcome = solve_ilp(problem, start=start, time_limit_s=1e-3)
    assert outcome.status is Status.TIME_LIMIT
    assert outcome.plan is not None
    assert outcome.plan.slots == start.slots
    assert outcome.goodput == check_plan(problem, outcome.plan)
    assert outcome.gap is not None
    assert 0 < outcome.gap < math.inf


@pytest.mark.parametrize("charge", Charge)
@pytest.mark.parametrize(
    ("slots", "says"),
    [
        ([()], "1 slots and the window 2"),
        ([(), ()], "nothing"),
        ([held(Kind.INFERENCE, (0, 2), (1, 1))] * 2, "instance_sharing"),
        ([held(Kind.INFERENCE, (1, 2))] * 2, "no place for 2g@1"),
    ],
)
def test_a_start_that_is_no_plan_of_the_problem(
    charge: Charge, slots: list[tuple[Instance, ...]], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        solve_ilp(a_problem(a_tenant(), charge=charge), start=a_plan(*slots))


def test_a_start_without_the_retraining() -> None:
    problem = a_problem(a_tenant(retraining_slots={1: 1}))
    with pytest.raises(PlanError, match="no retraining of a"):
        solve_ilp(problem, start=a_plan(*[held(Kind.INFERENCE, (0, 2))] * 2))


@pytest.mark.parametrize("options", [{"backend": "cplex"}, {"time_limit_s": 0.0}, {"gap": -1.0}])
def test_options_that_no_solver_takes(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        solve_ilp(a_problem(a_tenant()), **options)


# Gurobi.


def gurobi_is_small() -> bool:
    """Whether the licence at hand stops at 2,000 variables; skips the test where none is."""
    gurobipy = pytest.importorskip("gurobipy", reason="gurobipy is not installed")
    try:
        with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as program:
            program.addVars(2001)
            program.optimize()
    except gurobipy.GurobiError as error:
        if error.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
            return True
        pytest.skip(f"no usable Gurobi licence: {error}")
    return False


@pytest.mark.parametrize("charge", Charge)
def test_gurobi_agrees_with_highs(charge: Charge) -> None:
    gurobi_is_small()
    problem = random_problem(5, tenants=2, slots=3, charge=charge)
    cold, outcome = solved(problem, backend="gurobi")
    assert outcome.backend == "gurobi"
    assert outcome.goodput == pytest.approx(solved(problem)[1].goodput)
    assert solved(problem, backend="gurobi", start=cold)[1].goodput == outcome.goodput


def test_gurobi_infeasible() -> None:
    gurobi_is_small()
    outcome = solve_ilp(a_problem(a_tenant(retraining_slots={1: 3})), backend="gurobi")
    assert outcome.status is Status.INFEASIBLE


def test_gurobi_refuses_what_its_licence_does_not_allow() -> None:
    if not gurobi_is_small():
        pytest.skip("the Gurobi licence at hand allows any size")
    with pytest.raises(SolverError, match="--backend highs"):
        solve_ilp(large_problem(), backend="gurobi")


def test_gurobi_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    with pytest.raises(InputError, match="not installed; use --backend highs"):
        solve_ilp(a_problem(a_tenant()), backend="gurobi")
