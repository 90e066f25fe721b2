"""Runs made up for tests of reports: counted right, cheap, and the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from migrator.core.comparison import Row, summarise
from migrator.core.outcome import Tally
from migrator.core.problem import Charge, Holding, Instance, Kind, Share, Task
from migrator.records.outcome import PlanGap, RunOutcome, TenantOutcome, WindowOutcome
from support.scenarios import serves, trains


def tally(
    received: int = 1000, *, late: int = 50, dropped: int = 30, accuracy: float = 0.8
) -> Tally:
    """In time what is neither late nor dropped, correct by `accuracy`."""
    in_time = received - late - dropped
    return Tally(
        received=received,
        goodput=in_time * accuracy,
        wrong=in_time * (1 - accuracy),
        late=late,
        dropped=dropped,
        while_reconfiguring=dropped // 2,
    )


def mig_slots(tenants: Sequence[str], slots: int) -> tuple[tuple[Holding, ...], ...]:
    """The first tenant retrains in the second third, the second one takes its place in the last."""
    one, other = tenants[0], tenants[-1]
    first = (serves(one, 0, 3), serves(other, 4, 2), serves(other, 6, 1))
    second = (serves(one, 0, 2), trains(one, 2, 2), *first[1:])
    third = (serves(one, 0, 2), serves(other, 2, 2), Instance(4, 2), first[2])
    third_of = max(1, slots // 3)
    return (first,) * third_of + (second,) * third_of + (third,) * (slots - 2 * third_of)


def mps_slots(tenants: Sequence[str], slots: int) -> tuple[tuple[Holding, ...], ...]:
    """Everybody half of an equal part in each of two processes; the first retrains at first."""
    part = 80 / len(tenants)
    shares: tuple[Holding, ...] = tuple(
        Share(number, part / 2, Task(name, Kind.INFERENCE))
        for name in tenants
        for number in range(2)
    )
    trains: Holding = Share(0, 20.0, Task(tenants[0], Kind.RETRAINING))
    return ((*shares, trains),) * (slots // 2) + (shares,) * (slots - slots // 2)


def arrivals(index: int, slots: int) -> NDArray[np.float64]:
    """Requests per slot that are expected of the tenant of that number."""
    return 40.0 * (index + 1) * (1 + 0.4 * np.sin(np.arange(slots) / max(1, slots) * 6))


def window(
    number: int = 0,
    tenants: Sequence[str] = ("bert", "vit"),
    *,
    slots: int = 6,
    mps: bool = False,
    late: int = 50,
    seed: int = 0,
) -> WindowOutcome:
    """A window in which the first tenant retrains half way."""
    draw = np.random.default_rng((seed, number))
    outcomes = []
    for index, name in enumerate(tenants):
        received = draw.poisson(arrivals(index, slots)).tolist()
        counted = tally(sum(received), late=late, dropped=late // 2, accuracy=0.7 + 0.1 * index)
        outcomes.append(
            TenantOutcome(
                tenant=name,
                tally=counted,
                reconfigurations=1 + index,
                accuracy_before=0.62,
                retrained_s=slots / 2 if index == 0 else None,
                accuracy_after=0.81 if index == 0 else 0.62,
            )
        )
    made = WindowOutcome(
        window=number,
        tenants=tuple(outcomes),
        slots=(mps_slots if mps else mig_slots)(tenants, slots),
        plan_s=0.25,
        predicted=None,
        fluid=None,
    )
    goodput = made.tally.goodput
    plans = (PlanGap(0, Charge.SURVIVORS, 0.01 * number),)
    planned = replace(made, predicted=goodput * 1.05, fluid=goodput * 1.01, plans=plans)
    return made if mps else planned


def auto(outcome: RunOutcome, forecaster: str = "auto") -> RunOutcome:
    """The run as if a forecaster had been chosen for every tenant, each for a reason."""
    windows = tuple(
        replace(
            window,
            tenants=tuple(
                replace(
                    tenant, forecast_by=f"ridge: less loss for {tenant.tenant} in {window.window}"
                )
                for tenant in window.tenants
            ),
        )
        for window in outcome.windows
    )
    return replace(outcome, forecaster=forecaster, windows=windows)


def compared(policies: Sequence[str], scenarios: int = 2, seeds: int = 2) -> tuple[Row, ...]:
    """Policies, the best first, in one window of each scenario."""
    return summarise(
        run(policy, f"w{number}", seed, windows=1, late=10 + 10 * index + seed)
        for number in range(scenarios)
        for index, policy in enumerate(policies)
        for seed in range(seeds)
    )


def run(
    policy: str = "migrator",
    scenario: str = "quick",
    seed: int = 0,
    *,
    windows: int = 2,
    tenants: Sequence[str] = ("bert", "vit"),
    slots: int = 6,
    mps: bool = False,
    late: int = 50,
) -> RunOutcome:
    """A run of such windows; more `late` is less goodput."""
    made = tuple(
        window(number, tenants, slots=slots, mps=mps, late=late, seed=seed)
        for number in range(windows)
    )
    return RunOutcome(scenario, policy, "ewma", seed, made)
