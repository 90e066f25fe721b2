"""Retrainings of a window: which are estimated when and where, and what happens without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.live_daemon import scenario_file

from migrator.control.events import RetrainingPlanned, TrainingCompleted
from migrator.control.retraining import Phase, TenantRetraining
from migrator.control.retraining_plans import Estimate, RetrainingPlans
from migrator.control.tenant_state import TenantState, TrainingRoom, tenant_state_of
from migrator.control.units import Site, State, Unit
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import board
from migrator.core.evidence import Evidence
from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import Sharing
from migrator.workload.live import read_live

WINDOW_S = 100.0
LABELLED = 50
BOARD = board("A100-40GB")
ROOM = TrainingRoom(98, 80)
PLACE = Instance(0, 4)


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    live = read_live(scenario_file(tmp_path, "photos"))
    return tenant_state_of(live.scenario.tenants[0], live.tenants[0], 1.0, 0.0)


def plans_of(
    tenant: TenantState,
    labels: Any,
    now_s: list[float],
    *,
    on_instances: bool = True,
    estimated: bool = True,
    always: bool = False,
    slot_s: float = 1.0,
    tenants: dict[str, TenantState] | None = None,
    sharing: Sharing = Sharing.MIG,
    admits: Callable[[], bool] = lambda: True,
) -> RetrainingPlans:
    clock = WindowClock(WINDOW_S, slot_s, now_s=lambda: now_s[0])
    serves = Unit(Site.of(BOARD, PLACE), State.READY, 0.0, Task("photos", Kind.INFERENCE))
    controller: Any = SimpleNamespace(
        executor=SimpleNamespace(units=(serves,), admit_estimate=lambda *_: admits()),
        planning=SimpleNamespace(board=BOARD),
        estimates=estimated,
        estimates_always=always,
        sharing=sharing,
    )
    served = tenants or {"photos": tenant}
    return RetrainingPlans(served, clock, labels, controller, on_instances=on_instances)


def estimates(tenant: TenantState, *, labelled: int = LABELLED, **settings: Any) -> Estimate:
    """The estimate after 80 s of a window; there is none at its beginning, and no second one."""
    now_s = [0.0]
    plans = plans_of(tenant, SimpleNamespace(kept=lambda *_: labelled), now_s, **settings)
    assert not list(plans.due())
    now_s[0] = 80.0
    (estimate,) = plans.due()
    assert not list(plans.due())
    return estimate


def test_an_estimate_on_an_instance_ends_before_the_window_does(tenant: TenantState) -> None:
    estimate = estimates(tenant, on_instances=True)
    assert (estimate.tenant, estimate.window, estimate.instance) == ("photos", 0, PLACE)
    assert estimate.limit_s is not None
    assert 15 < estimate.limit_s < 20


def test_an_estimate_waits_for_memory(tenant: TenantState) -> None:
    now_s, free = [80.0], False
    labels = SimpleNamespace(kept=lambda *_: LABELLED)
    plans = plans_of(tenant, labels, now_s, admits=lambda: free)
    assert not list(plans.due())
    assert "memory" in tenant.model.no_estimate
    now_s[0], free = 81.0, True
    (estimate,) = plans.due()
    assert estimate.instance == PLACE
    assert not list(plans.due())


def test_an_estimate_on_the_host_may_outlast_the_window(tenant: TenantState) -> None:
    estimate = estimates(tenant, on_instances=False)
    assert (estimate.instance, estimate.limit_s) == (None, None)


@pytest.mark.parametrize(("ends_s", "due_s"), [(60, 70), (76, 76), (99, 85)])
def test_an_estimate_waits_for_a_retraining_until_half_of_its_time_is_left(
    tenant: TenantState, ends_s: int, due_s: int
) -> None:
    """Estimates are due from 70 s on; the model after the retraining is to be estimated."""
    now_s = [0.0]
    plans = plans_of(tenant, SimpleNamespace(kept=lambda *_: LABELLED), now_s)
    tenant.on(RetrainingPlanned(TenantRetraining(0, tenant.training_s(100), 1.0, 0.9)))
    tenant.start_retraining(PLACE)
    times_s = []
    for now in range(100):
        now_s[0] = now
        if now == ends_s:
            tenant.on(TrainingCompleted())
        times_s += [now for _ in plans.due()]
    assert times_s == [due_s]


@pytest.mark.parametrize("slot_s", [1, 2, 4, 5, 10, 20, 25])
def test_an_estimate_is_made_beside_a_long_retraining_however_long_slots_are(
    tenant: TenantState, slot_s: int
) -> None:
    now_s = [0.0]
    plans = plans_of(tenant, SimpleNamespace(kept=lambda *_: LABELLED), now_s, slot_s=slot_s)
    tenant.on(RetrainingPlanned(TenantRetraining(0, tenant.training_s(100), 1.0, 0.9)))
    tenant.start_retraining(PLACE)
    count = 0
    for now_s[0] in range(0, 100, slot_s):
        count += len(list(plans.due()))
    assert count == 1


@pytest.mark.parametrize(
    ("phase", "answers", "gains", "is_estimated"),
    [
        (Phase.DONE, 0.6, [0.3], False),
        (Phase.RUNNING, 0.6, [0.3], False),
        (Phase.WAITING, 0.6, [0.3], True),
        (Phase.DONE, None, [0.3], True),
        (Phase.DONE, 0.6, [], True),
        (Phase.DONE, 0.6, [0.3, 0.0], True),
    ],
    ids=["as before", "as before, runs", "left out", "no labelled answers", "first", "in vain"],
)
def test_nothing_is_estimated_while_every_retraining_gains_what_the_last_did(
    tenant: TenantState,
    phase: Phase,
    answers: float | None,
    gains: list[float],
    is_estimated: bool,
) -> None:
    for gain in gains:
        tenant.model.compare(0.5, 0.5 + gain, None)
    tenant.begin_window(0, LABELLED, answers, ROOM)
    if phase is not Phase.WAITING:
        tenant.start_retraining(PLACE)
    if phase is Phase.DONE:
        tenant.on(TrainingCompleted())
    plans = plans_of(tenant, SimpleNamespace(kept=lambda *_: LABELLED), [90.0])
    assert bool(list(plans.due())) == is_estimated


def test_a_policy_may_estimate_also_where_earlier_retrainings_predict_the_next(
    tenant: TenantState,
) -> None:
    tenant.model.compare(0.5, 0.8, None)
    tenant.begin_window(0, LABELLED, 0.6, ROOM)
    tenant.start_retraining(PLACE)
    plans = plans_of(tenant, SimpleNamespace(kept=lambda *_: LABELLED), [90.0], always=True)
    assert list(plans.due())


def test_few_labels_and_a_drained_tenant_are_not_estimated(tenant: TenantState) -> None:
    with pytest.raises(ValueError, match="not enough values"):
        estimates(tenant, on_instances=True, labelled=19)
    tenant.drain()
    with pytest.raises(ValueError, match="not enough values"):
        estimates(tenant, on_instances=True)


def test_a_policy_that_does_not_plan_with_estimates_pays_for_none(tenant: TenantState) -> None:
    with pytest.raises(ValueError, match="not enough values"):
        estimates(tenant, on_instances=True, estimated=False)


def test_an_estimate_stands_until_its_labels_are_learned(tenant: TenantState) -> None:
    tenant.model.set_estimate(0.95, 5)
    tenant.begin_window(5, LABELLED, 0.6, ROOM)
    assert tenant.retraining is not None
    assert tenant.retraining.expected == 0.95
    # the estimate for the next window was stopped, and the retraining did not take place
    tenant.begin_window(6, LABELLED, 0.6, ROOM)
    assert tenant.retraining.phase is Phase.WAITING
    assert tenant.retraining.expected == 0.95
    tenant.model.learn_labels(6)
    tenant.begin_window(7, LABELLED, 0.6, ROOM)
    assert tenant.retraining.expected == pytest.approx(0.72), "the usual gain"
    assert tenant.model.estimate is None


def test_the_window_in_which_a_late_retraining_ends_gets_its_own(tenant: TenantState) -> None:
    tenant.begin_window(3, LABELLED, None, ROOM)
    late = tenant.start_retraining(PLACE)
    tenant.begin_window(4, LABELLED, None, ROOM)
    assert tenant.retraining is late
    assert not tenant.outlasted(4)
    tenant.on(TrainingCompleted())
    assert not tenant.outlasted(3)
    assert tenant.outlasted(4)
    tenant.begin_window(4, LABELLED, None, ROOM)
    assert tenant.retraining is not None
    assert (tenant.retraining.window, tenant.retraining.phase) == (4, Phase.WAITING)
    assert not tenant.outlasted(4)


def test_without_new_labels_there_is_no_retraining(tenant: TenantState) -> None:
    tenant.begin_window(3, LABELLED, None, ROOM)
    assert tenant.retraining is not None
    tenant.start_retraining(PLACE)
    tenant.on(TrainingCompleted())
    tenant.begin_window(4, 0, None, ROOM)
    assert tenant.retraining is None
    assert not tenant.outlasted(5)


def test_an_estimate_is_for_the_window_it_was_made_for(tenant: TenantState) -> None:
    tenant.model.set_estimate(0.95, 5)
    tenant.begin_window(4, LABELLED, 0.6, ROOM)
    assert tenant.retraining is not None
    assert tenant.retraining.expected < 0.95
    tenant.begin_window(5, LABELLED, 0.6, ROOM)
    assert tenant.retraining.expected == 0.95


def test_the_first_windows_samples_are_estimated_once_they_have_all_come(
    tenant: TenantState,
) -> None:
    asked: list[tuple[str, int, int]] = []
    labelled, now_s = [0], [0.0]

    def kept(*asked_for: Any) -> int:
        asked.append(asked_for)
        return labelled[0]

    plans = plans_of(tenant, SimpleNamespace(kept=kept), now_s)
    due = []
    for now_s[0], labelled[0] in ((0, 0), (1, 30), (1.5, 60), (2.4, 60), (2.6, 60), (9, 60)):
        due += [(now_s[0], estimate) for estimate in plans.due_before_first_window()]
    assert set(asked) == {("photos", -1, 0)}, "labels that came before window 0"
    ((at_s, estimate),) = due
    assert (at_s, estimate.window, estimate.instance) == (2.6, -1, PLACE)
    labelled[0] = 90
    for now_s[0] in (10, 12):
        due += [(now_s[0], estimate) for estimate in plans.due_before_first_window()]
    assert [at for at, _ in due] == [2.6, 12]


def test_where_no_answer_is_labelled_the_estimate_says_how_good_the_model_is(
    tenant: TenantState,
) -> None:
    tenant.model.measure(0.9)
    tenant.take_estimate(0.8, 0.4, 0, 4, tenant.version)
    tenant.begin_window(5, LABELLED, None, ROOM)
    assert tenant.retraining is not None
    assert (tenant.accuracy, tenant.retraining.expected) == (0.4, 0.8)
    tenant.begin_window(5, LABELLED, 0.6, ROOM)
    assert tenant.accuracy == 0.6, "labels of answers come first"
    tenant.model.learn_labels(5)
    tenant.model.adopt(None, 0.8)
    tenant.begin_window(6, LABELLED, None, ROOM)
    assert tenant.accuracy == 0.7, "nothing tells how the new model does on new data"
    assert tenant.model.accuracy.evidence is Evidence.EARLIER
    assert tenant.retraining.expected > 0.75, "it is not taken for nothing to gain"


@pytest.mark.parametrize(
    ("others", "sharing", "is_estimated"),
    [("bcdef", Sharing.MIG, True), ("bcdefg", Sharing.MIG, False), ("bcdefg", Sharing.MPS, True)],
)
def test_nothing_is_estimated_where_nothing_can_be_retrained(
    tenant: TenantState, others: str, sharing: Sharing, is_estimated: bool
) -> None:
    """Seven tenants hold all seven slices with their smallest instances; shares have no limit."""
    tenants = dict.fromkeys(("photos", *others), tenant)
    labels = SimpleNamespace(kept=lambda *_: LABELLED)
    plans = plans_of(tenant, labels, [80.0], tenants=tenants, sharing=sharing)
    assert [estimate.tenant for estimate in plans.due()] == (list(tenants) if is_estimated else [])
