"""A retraining that outlasts its window, and what is learned after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_daemon import scenario_file

from migrator.control.tenant_state import Phase, TenantState, TrainingRoom, tenant_state_of
from migrator.workload.live import read_live

LABELLED = 50
ROOM = TrainingRoom(98, 8)


@pytest.fixture
def tenant(tmp_path: Path) -> TenantState:
    live = read_live(scenario_file(tmp_path, "photos", window_s=10))
    (served,), (own,) = live.scenario.tenants, live.tenants
    return tenant_state_of(served, own, live.scenario.slot_s, 1.0)


def test_the_window_it_ends_in_gets_its_own_retraining_then(tenant: TenantState) -> None:
    tenant.begin(3, LABELLED, None, ROOM)
    late = tenant.retraining
    assert late is not None
    late.phase = Phase.RUNNING
    tenant.begin(4, LABELLED, None, ROOM)
    assert tenant.retraining is late
    assert not tenant.outlasted(4)
    late.phase = Phase.DONE
    assert not tenant.outlasted(3)
    assert tenant.outlasted(4)
    tenant.begin(4, LABELLED, None, ROOM)
    assert tenant.retraining is not None
    assert (tenant.retraining.window, tenant.retraining.phase) == (4, Phase.WAITING)
    assert not tenant.outlasted(4)


def test_without_new_labels_there_is_none(tenant: TenantState) -> None:
    tenant.begin(3, LABELLED, None, ROOM)
    assert tenant.retraining is not None
    tenant.retraining.phase = Phase.DONE
    tenant.begin(4, 0, None, ROOM)
    assert tenant.retraining is None
    assert not tenant.outlasted(5)


def test_an_estimate_is_for_the_window_it_was_made_for(tenant: TenantState) -> None:
    tenant.estimate, tenant.estimated_for = 0.95, 5
    tenant.begin(4, LABELLED, 0.6, ROOM)
    assert tenant.retraining is not None
    assert tenant.retraining.expected < 0.95
    tenant.begin(5, LABELLED, 0.6, ROOM)
    assert tenant.retraining.expected == 0.95
