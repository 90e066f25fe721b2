"""Planning again inside the window: first like migrator, then around its retrainings."""

from dataclasses import replace

import numpy as np
from support.mig_views import observation, view, waiting

from migrator.core.problem import Instance, Kind, Task
from migrator.policies.policy import Decision, Observation
from migrator.policies.registry import policy

REPLANNED, ONCE = policy("migrator-replanned"), policy("migrator")
SLOTS = 60


def seen(slot: int = 0, recent: tuple[float, float] = (20.0, 20.0)) -> Observation:
    flat = [20.0] * 200
    tenants = [
        view(
            name,
            history=[*flat, *[rate] * slot],
            ahead=[[20.0] * (SLOTS - slot)],
            retraining=waiting(0.3) if name == "a" and slot == 0 else None,
        )
        for name, rate in zip("ab", recent, strict=True)
    ]
    return observation(*tenants, slots=SLOTS, slot=slot)


def later(first: Decision, slot: int, recent: tuple[float, float]) -> Observation:
    return replace(seen(slot, recent), held=first.slots[slot], decided=first)


def able(decision: Decision, name: str, at: int) -> int:
    task = Task(name, Kind.INFERENCE)
    held = decision.slots[at]
    return sum(
        instance.gpcs
        for instance in held
        if isinstance(instance, Instance) and instance.task == task
    )


def test_the_window_begins_with_migrators_plan() -> None:
    assert REPLANNED.decide(seen()).slots == ONCE.decide(seen()).slots


def test_migrator_replans_unless_arrivals_rule_out_that_it_pays() -> None:
    random = np.random.default_rng(3)
    steady = random.poisson(20, 4000).astype(float)
    bursts = random.poisson(1, 4000).astype(float)
    for at in random.choice(3900, 20, replace=False):
        bursts[at : at + 10] += random.poisson(60, 10)

    def replans(*histories: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
        tenants = [
            view(name, history=history.tolist(), ahead=[[20.0] * SLOTS])
            for name, history in zip("ab", histories, strict=True)
        ]
        return not ONCE.decide(observation(*tenants, slots=SLOTS)).keeps_plan

    assert not replans(steady, steady[::-1])
    assert replans(steady, bursts)


def test_later_the_inference_follows_what_came_and_the_plan_is_handed_on() -> None:
    first = REPLANNED.decide(seen())
    slot = 40
    to_a, to_b = (
        REPLANNED.decide(later(first, slot, rates)) for rates in ((60.0, 2.0), (2.0, 60.0))
    )
    assert (to_a.plan, to_a.problem) == (first.plan, first.problem)
    assert able(to_a, "a", -1) > able(to_b, "a", -1)


def test_a_retraining_that_ends_early_leaves_the_forecast_as_it_was() -> None:
    first = ONCE.decide(seen())
    assert first.plan is not None
    (planned,) = first.plan.retrainings
    now = planned.end - 2
    anew = ONCE.decide(later(first, now, (22.0, 19.0)))
    assert (anew.begin, anew.plan is first.plan) == (now, False)
    assert anew.problem is not None
    for tenant in anew.problem.tenants:
        assert tenant.received == ((20.0,) * (SLOTS - now),)


def test_a_plan_is_not_kept_once_arrivals_have_left_its_forecast() -> None:
    first = replace(ONCE.decide(seen()), keeps_plan=True)
    assert first.plan is not None
    slot = first.plan.retrainings[0].end + 6
    as_forecast = ONCE.decide(later(first, slot, (20.0, 20.0)))
    assert as_forecast.keeps_plan
    assert as_forecast.slots == first.slots[slot:]
    left = ONCE.decide(later(first, slot, (2.0, 60.0)))
    assert not left.keeps_plan
    assert able(left, "b", -1) > able(as_forecast, "b", -1)


def test_without_a_plan_of_the_window_the_rest_is_planned_anew() -> None:
    first = REPLANNED.decide(seen())
    lost = replace(later(first, 40, (60.0, 2.0)), decided=None)
    assert len(REPLANNED.decide(lost).slots) == SLOTS - 40


def test_around_a_plan_made_inside_the_window_it_is_quick_again() -> None:
    first = REPLANNED.decide(seen())
    lost = replace(later(first, 20, (20.0, 20.0)), decided=None)
    anew = REPLANNED.decide(lost)
    assert (anew.begin, len(anew.slots)) == (20, SLOTS - 20)
    again = REPLANNED.decide(replace(seen(24), held=anew.slots[4], decided=anew))
    assert again.plan is anew.plan
    assert again.begin == 20
    assert len(again.slots) == 30


def test_where_starts_are_slow_it_looks_further_ahead() -> None:
    first = REPLANNED.decide(seen())
    slow = [replace(view, overhead_s=8.0) for view in later(first, 10, (20.0, 20.0)).tenants]
    again = REPLANNED.decide(replace(later(first, 10, (20.0, 20.0)), tenants=tuple(slow)))
    assert len(again.slots) == 40
