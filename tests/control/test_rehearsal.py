"""Predicted goodput contains every gap that the executor cannot avoid."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.amount import amount
from support.executor_plans import random_slots
from support.executor_stage import serves, trains
from support.executor_world import Times, World

from migrator.control import events as ev
from migrator.control.executor import Executor
from migrator.control.forecasting_policy import ForecastingPolicy
from migrator.control.rehearsal import predicted_goodput, without_instance
from migrator.core.catalogue import Board, board
from migrator.core.problem import (
    Allocation,
    Charge,
    Initial,
    Instance,
    Kind,
    Plan,
    Problem,
    Task,
    Tenant,
)
from migrator.forecast.selection import forecaster
from migrator.planning.check import goodput_of
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight

BOARDS = ("A100-40GB", "H200-141GB", "A30-24GB")
A30 = board("A30-24GB")
Slots = tuple[tuple[Instance, ...], ...]


class Watched(World):
    """A world that notes when nothing serves a tenant. Steps take as long as a plan assumes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.without: defaultdict[str, defaultdict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def _pass(self, at_s: float) -> None:
        tasks = [task for task in self.wanted().values() if task is not None]
        slot = int((self.now_s - self.begun_s) / self.slot_s + 1e-6)
        for tenant in {task.tenant for task in tasks if task.kind is Kind.INFERENCE}:
            if not self.serving(tenant):
                self.without[tenant][slot] += (at_s - self.now_s) / self.slot_s
        super()._pass(at_s)

    def _obey(self, instructions: Sequence[ev.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, ev.Train):
                assert isinstance(instruction.instance, Instance)
                held = replace(instruction.instance, task=Task(instruction.tenant, Kind.RETRAINING))
                seconds = self.slot_s * sum(held in layout for layout in self.slots)
                self.times = replace(self.times, train_s=(seconds, seconds))
            super()._obey([instruction])


def _carried_out(on: Board, slots: Slots, tenants: str, overhead_s: float, seed: int) -> Watched:
    """Follow a decision from the serving instances of its first slot on."""
    none = Times(*[(0.0, 0.0)] * 6)
    executor = Executor(on, overheads_s=dict.fromkeys(tenants, overhead_s))
    world = Watched(on, executor, seed, times=none)
    first = tuple(e for e in slots[0] if e.task and e.task.kind is Kind.INFERENCE)
    world.follow((first,))
    world.run(0.0)
    world.times = replace(none, warm_s=(overhead_s, overhead_s))
    world.follow(slots, window=0)
    world.without.clear()
    world.run(float(len(slots)))
    return world


def _problem(
    on: Board, slots: Slots, received: dict[str, list[float]], overhead_s: float
) -> Problem:
    capability = dict.fromkeys(on.sizes, 1e6)
    tenants = tuple(
        Tenant(name, (tuple(row),), capability, 1.0, (), overhead_s, 1)
        for name, row in received.items()
    )
    return Problem(on, 1.0, len(slots), Charge.SURVIVORS, tenants)


def _plan(problem: Problem, slots: Slots) -> Plan:
    plan = Plan(0.0, 0.0, "test", 0.0, (), tuple(map(Allocation, slots)))
    return replace(plan, goodput=goodput_of(problem, plan))


@settings(deadline=None, max_examples=amount(20, 60))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(BOARDS),
    st.sampled_from(["ab", "abc"]),
    st.sampled_from([0.5, 1.5, 3.0, 6.0]),
)
def test_no_goodput_is_predicted_while_a_tenant_has_no_instance(
    seed: int, name: str, tenants: str, overhead_s: float
) -> None:
    """Requests come only in slots in which an independent world has no instance for them."""
    on = board(name)
    slots = tuple(
        tuple(instance for instance in layout if instance.task is not None)
        for layout in random_slots(random.Random(seed), on, tenants)
    )
    slots = (*slots, *slots[-1:] * 12)
    world = _carried_out(on, slots, tenants, overhead_s, seed)
    received = {
        tenant: [float(world.without[tenant][slot] > 1 - 1e-6) for slot in range(len(slots))]
        for tenant in tenants
    }
    problem = _problem(on, slots, received, overhead_s)
    assert predicted_goodput(problem, _plan(problem, slots)) < 1e-6


def test_a_tenant_that_waits_for_others_has_a_longer_gap_than_charged() -> None:
    """a loses its last instance at 5 s; at 6 s its next one makes room for a temporary one of b,
    so that b is served throughout. The charge knows nothing of that."""
    before = (serves("b", 1, 2), serves("a", 1, 3))
    after = (serves("b", 2, 0), serves("a", 2, 2)), (serves("a", 1, 0), serves("b", 1, 1))
    slots = (before,) * 5 + after[:1] + after[1:] * 10
    received = {"a": [1.0] * len(slots), "b": [1.0] * len(slots)}
    tenants = {"a": 1.5, "b": 3.0}
    problem = _problem(A30, slots, received, 0.0)
    problem = replace(
        problem, tenants=tuple(replace(e, overhead_s=tenants[e.name]) for e in problem.tenants)
    )
    plan = _plan(problem, slots)
    assert plan.goodput == 32 - 2 - 4  # of a in slots 5 and 6, of b in slots 5 to 8
    shares = without_instance(A30, slots, 1.0, tenants)
    assert [slot for slot, share in enumerate(shares["a"]) if share == 1] == [5, 6, 7, 8, 9]
    assert not any(shares["b"])
    assert predicted_goodput(problem, plan) == plan.goodput - 3


def test_where_an_order_serves_everybody_the_plan_is_the_prediction() -> None:
    slots: Slots = ((serves("a", 1, 0), serves("b", 1, 1)),) * 3
    slots += ((serves("a", 1, 2), serves("b", 1, 3), trains("a", 2, 0)),) * 6
    problem = _problem(A30, slots, {"a": [1.0] * 9, "b": [1.0] * 9}, 2.0)
    plan = _plan(problem, slots)
    assert predicted_goodput(problem, plan) == plan.goodput


def test_what_exists_before_counts_with_the_time_until_it_serves() -> None:
    held = (serves("a", 1, 0), serves("b", 1, 1))
    slots = (held,) * 4
    shares = without_instance(A30, slots, 1.0, {"a": 3.0, "b": 3.0}, held, {held[0]: 1.5})
    assert shares == {"a": [1.0, 0.5, 0.0, 0.0], "b": [0.0] * 4}
    problem = replace(
        _problem(A30, slots, {"a": [1.0] * 4, "b": [1.0] * 4}, 3.0), initial=Initial(held[1:])
    )
    plan = _plan(problem, slots)
    assert predicted_goodput(problem, plan) == plan.goodput == 4 + 1


class Planning:
    """A policy whose decisions are given."""

    name, summary, sharing, routing = "given", "", Sharing.MIG, Routing.EARLIEST
    sight, on_completion, estimates = Sight.NOTHING, False, False
    every_s: float | None = None

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def decide(self, observation: Observation) -> Decision:
        del observation
        return self._decision


def test_decisions_predict_from_what_is_held_and_keep_the_prediction_of_their_plan() -> None:
    held = (serves("a", 1, 0), serves("b", 1, 1))
    slots: Slots = ((serves("b", 2, 0), serves("a", 2, 2)),) * 4
    problem = _problem(A30, slots, {"a": [1.0] * 4, "b": [1.0] * 4}, 2.0)
    plan = _plan(problem, slots)
    now = Observation(A30, 1.0, 4, 0, (), held, cold_s=(0.0, 0.0))
    policy = ForecastingPolicy(Planning(Decision(slots, problem, plan)), forecaster("last-window"))
    decision = policy.decide(now)
    assert plan.goodput == 8  # the problem does not know what is held
    assert decision.predicted_goodput == 6
    last = replace(decision, rehearsed_goodput=5.0)
    again = replace(now, decided=last)
    kept = Planning(replace(last, slots=slots[:2]))
    assert ForecastingPolicy(kept, forecaster("last-window")).decide(again).predicted_goodput == 5
