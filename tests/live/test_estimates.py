"""Estimates on instances: when they end, and what a window does without one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from support.live_daemon import scenario_file
from support.live_learning import add_all, scenario
from support.virtual_time import run_virtually

from migrator.control.tenant_state import Phase, TenantState, TrainingRoom, tenant_state_of
from migrator.control.window_clock import WindowClock
from migrator.core.catalogue import board
from migrator.live.actuator import Actuator
from migrator.live.estimates import Estimates
from migrator.live.labels import Labels
from migrator.live.learning import Learning
from migrator.workload.live import read_live

WINDOW_S = 100.0
LABELLED = 50
BOARD = board("A100-40GB")
ROOM = TrainingRoom(98, 80)
INSTANCE = {"CUDA_VISIBLE_DEVICES": "MIG-1"}


@dataclass
class NeverDone:
    """Estimates that take for ever; when they were cancelled."""

    on: list[Mapping[str, str] | None] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)

    async def estimate(
        self, name: str, window: int, environment: Mapping[str, str] | None, *_: object
    ) -> None:
        del name, window
        self.on.append(environment)
        try:
            await asyncio.sleep(10 * WINDOW_S)
        finally:
            self.ended_s.append(asyncio.get_running_loop().time())


@dataclass
class Assigned:
    environment: Mapping[str, str]


@dataclass
class Worker:
    assignment: Assigned


class ServingHands:
    def workers_of(self, tenant: str) -> list[Worker]:
        del tenant
        return [Worker(Assigned(INSTANCE))]


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    live = read_live(scenario_file(tmp_path, "photos"))
    return tenant_state_of(live.scenario.tenants[0], live.tenants[0], 1.0, 0.0)


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    async def written() -> None:
        first = Labels(tmp_path / "labels.db")
        await add_all(first, "photos", 0, scenario(1).new)
        await first.close()

    asyncio.run(written())
    return Labels(tmp_path / "labels.db")


async def _estimated(labels: Labels, tenant: TenantState, hands: Any) -> tuple[NeverDone, float]:
    """All estimates of window 0, and when that window ended."""
    loop, learning = asyncio.get_running_loop(), NeverDone()
    clock = WindowClock(WINDOW_S, 1.0, now_s=loop.time)
    clock.start()
    doing, on = cast(Learning, learning), cast(Actuator | None, hands)
    estimates = Estimates({"photos": tenant}, clock, labels, doing, on, lambda: BOARD)
    assert not list(estimates.due()), "not at the beginning of a window"
    await asyncio.sleep(0.8 * WINDOW_S)
    await asyncio.gather(*estimates.due())
    return learning, clock.began_s + WINDOW_S


def test_an_estimate_on_an_instance_ends_before_the_window_does(
    labels: Labels, tenant: TenantState
) -> None:
    learning, edge_s = run_virtually(_estimated(labels, tenant, ServingHands()))
    assert learning.on == [INSTANCE]
    assert edge_s - 5 < learning.ended_s[0] < edge_s
    asyncio.run(labels.close())


def test_an_estimate_on_the_host_may_outlast_the_window(
    labels: Labels, tenant: TenantState
) -> None:
    learning, edge_s = run_virtually(_estimated(labels, tenant, None))
    assert learning.on == [None]
    assert learning.ended_s[0] > edge_s
    asyncio.run(labels.close())


def test_an_estimate_stands_until_its_labels_are_learned(tenant: TenantState) -> None:
    tenant.estimate, tenant.estimated_for = 0.95, 5
    tenant.begin(5, LABELLED, 0.6, ROOM)
    assert tenant.retraining is not None
    assert tenant.retraining.expected == 0.95
    # the estimate for the next window was stopped, and the retraining did not take place
    tenant.begin(6, LABELLED, 0.6, ROOM)
    assert tenant.retraining.phase is Phase.WAITING
    assert tenant.retraining.expected == 0.95
    tenant.since = 6
    tenant.begin(7, LABELLED, 0.6, ROOM)
    assert tenant.retraining.expected == pytest.approx(0.72), "the usual gain"
    assert tenant.estimate is None
