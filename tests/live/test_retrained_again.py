"""A tenant that missed retrainings is retrained again, whatever kept it from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.live_context import tenant_in
from support.live_daemon import scenario_file
from support.make import lengths

from migrator.control.events import TrainingCompleted
from migrator.control.tenant_state import TenantState, TrainingRoom, tenant_state_of
from migrator.core.catalogue import board
from migrator.core.problem import Charge, Instance
from migrator.policies.policy import Observation
from migrator.policies.window_problem import problem_of
from migrator.workload.live import read_live

BOARD = board("A100-40GB")
WINDOW_S, PER_WINDOW = 20, 6000


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    return tenant_in(tmp_path, WINDOW_S)


def plans_retraining(tenant: TenantState, late: int = 0) -> bool:
    """Whether a planner that answers `late` slots late finds a size that ends in the window."""
    view = replace(tenant.view(), ahead=np.full((1, WINDOW_S - late), 5.0))
    seen = Observation(BOARD, 1.0, WINDOW_S, late, (view,), ())
    return bool(lengths(problem_of(seen, Charge.SURVIVORS).tenants[0]))


def run_windows(
    tenant: TenantState,
    windows: range,
    can_run: Callable[[int], bool] = lambda _: True,
    late: int = 0,
    paused: bool = False,
) -> list[int]:
    """Virtual windows with labels in each; those in which the tenant was retrained."""
    room, done = TrainingRoom.of(BOARD, [tenant], WINDOW_S), []
    for window in windows:
        tenant.begin_window(window, PER_WINDOW * (window - tenant.model.since), 0.1, room)
        job = tenant.retraining
        if job is not None and can_run(window) and plans_retraining(tenant, late):
            planned_s = job.seconds.at(98)
            tenant.start_retraining(Instance(0, 7))
            tenant.measure_training(planned_s, planned_s)
            tenant.model.learn_labels(window)
            tenant.on(TrainingCompleted())
            done.append(window)
        if not paused:
            tenant.end_window()
    return done


def test_sixty_windows_with_pauses_failures_and_a_duration_measured_far_too_long(
    tenant: TenantState,
) -> None:
    assert len(run_windows(tenant, range(1, 10))) >= 8
    run_windows(tenant, range(10, 15), lambda _: False, paused=True)
    assert run_windows(tenant, range(15, 18)), "after a pause"
    run_windows(tenant, range(18, 25), lambda _: False)
    assert run_windows(tenant, range(25, 28)), "after failures"
    for _ in range(5):
        tenant.measure_training(1.0, 10.0)
    assert tenant.duration.slower > 9
    assert run_windows(tenant, range(28, 32)), "after durations measured too long"
    assert run_windows(tenant, range(40, 43)), "after windows without anything"
    tenant.measure_overhead(WINDOW_S / 2)
    assert run_windows(tenant, range(43, 46)), "with an overhead as long as is believed"
    tenant.measure_overhead(1.0)
    last = run_windows(tenant, range(46, 60))
    assert len(last) == 14
    assert tenant.duration.slower < 1.1


def test_a_planner_that_is_always_late_finds_time_for_a_smaller_one(tenant: TenantState) -> None:
    done = run_windows(tenant, range(1, 30), late=15)
    assert len(done) >= 5
    assert max(np.diff(done)) <= 10


def test_a_share_of_the_window_is_left_for_every_tenant(tmp_path: Path) -> None:
    live = read_live(scenario_file(tmp_path, "photos", "cameras", "news", window_s=WINDOW_S))
    both = zip(live.scenario.tenants, live.tenants, strict=True)
    tenants = [tenant_state_of(one, own, 1.0, 1.0) for one, own in both]
    room = TrainingRoom.of(BOARD, tenants, WINDOW_S)
    assert room.sms == BOARD.sms_of(4)
    assert room.seconds * 3 < WINDOW_S
