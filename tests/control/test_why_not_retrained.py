"""Every reason why a tenant is not retrained: from simulated runs, and from the tenant's state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.mig_views import service
from support.scenarios import Fixed, drift, profile, scenario, serves, tenant, trains

from migrator.control.events import (
    RetrainingEvent,
    RetrainingPlanned,
    SamplesMissing,
    TrainingCompleted,
)
from migrator.control.retraining import TenantRetraining
from migrator.control.tenant_state import TenantState, TrainingRoom
from migrator.control.why_not_retrained import why_not_retrained
from migrator.core.not_retrained import NotRetrained, Reason
from migrator.core.problem import Instance
from migrator.core.profiles import CONTEXT_MIB, Curve
from migrator.core.scenario import Drift
from migrator.forecast.selection import forecaster
from migrator.policies.policy import Policy, Sight
from migrator.policies.registry import policy
from migrator.simulation.run import run

ARRIVALS = [20] * 60


def reasons(drifts: tuple[Drift, ...], chosen: Policy, mib: float = 0.0) -> list[NotRetrained]:
    """Why `photos` was not retrained in the only window, beside two tenants that do not drift."""
    model = replace(profile(), training_memory_mib=mib)
    photos = tenant("photos", ARRIVALS, drifts=drifts, model=model)
    others = (tenant("cameras", ARRIVALS), tenant("scans", ARRIVALS))
    outcome = run(scenario(photos, *others, window_s=20.0), chosen, forecaster("last-mean"))
    retraineds = [row.not_retrained for row in outcome.windows[0].tenants if row.tenant == "photos"]
    return [why for why in retraineds if why is not None]


def test_a_retraining_that_is_longer_than_the_window() -> None:
    takes = Drift(0.16, 0.9, Curve(((16, 190.0), (128, 190.0))))
    (retrained,) = reasons((takes,), policy("migrator-once"))
    assert retrained.reason is Reason.TOO_LONG
    assert "on 4 GPCs, the largest instance beside those that serve" in retrained.words
    assert "the window has 20 s, and it must end within 2 windows" in retrained.words
    # without a history the first plan is made a second later
    (later,) = reasons((takes,), policy("migrator"))
    assert "the window has 19 s left" in later.words


def test_a_retraining_that_would_gain_nothing() -> None:
    (retrained,) = reasons((drift(1.0, 1.0, 5.0),), policy("migrator"))
    sentence = "left out: expected gain 0.000 (1.000 to 1.000)"
    assert retrained == NotRetrained(Reason.LEFT_OUT, sentence)


def test_a_retraining_for_which_no_instance_has_the_memory() -> None:
    (retrained,) = reasons((drift(seconds=5.0),), policy("migrator"), mib=1e6)
    assert retrained.reason is Reason.OUT_OF_MEMORY
    assert f"training needs {1e6 + CONTEXT_MIB:.0f} MiB" in retrained.words


def test_a_retraining_that_fits_only_where_others_could_not_serve() -> None:
    (retrained,) = reasons((drift(seconds=5.0),), policy("migrator"), mib=100 * 1024)
    assert retrained.reason is Reason.NO_ROOM
    assert "training needs 7 GPCs, for which there is no room beside" in retrained.words


def test_a_window_without_data() -> None:
    retraineds = reasons((Drift(0.5, 0.5, None),), policy("migrator"))
    assert retraineds == [NotRetrained(Reason.NO_DATA, "nothing to learn in this window")]


def test_a_policy_that_gives_a_retraining_nothing() -> None:
    layout = (serves("photos", 0, 1), serves("cameras", 1, 1), serves("scans", 2, 1))
    chosen = Fixed(layout)
    (retrained,) = reasons((drift(),), chosen)
    assert retrained.reason is Reason.NO_PLAN
    chosen.sight = Sight.NOTHING
    (retrained,) = reasons((drift(),), chosen)
    assert retrained.reason is Reason.LEFT_OUT


def test_a_tenant_that_is_retrained_has_no_reason() -> None:
    layout = (serves("photos", 0, 1), serves("cameras", 1, 1), serves("scans", 2, 1))
    assert not reasons((drift(seconds=8.0),), Fixed((*layout, trains("photos", 4, 3))))


def test_retrainings_that_do_not_all_fit() -> None:
    """Three that each need most of the GPU for most of the window."""
    takes = Drift(0.5, 0.9, Curve(((16, 60.0), (64, 12.0), (128, 12.0))))
    tenants = [tenant(name, ARRIVALS, drifts=(takes,)) for name in ("a", "b", "c")]
    chosen = policy("migrator-required")
    outcome = run(scenario(*tenants, window_s=20.0), chosen, forecaster("last-mean"))
    retraineds = [row.not_retrained for row in outcome.windows[0].tenants]
    assert [why.reason for why in retraineds if why is not None] == [Reason.NO_ROOM, Reason.NO_ROOM]


def state() -> TenantState:
    """A tenant with a retraining that waits."""
    tenant = TenantState(service("photos"))
    tenant.model.measure(0.16)
    retraining = TenantRetraining(1, Curve(((16.0, 10.0),)), 1.0, 0.9, labelled=40)
    tenant.on(RetrainingPlanned(retraining))
    return tenant


def test_the_reasons_of_operators_and_of_a_missing_plan() -> None:
    waiting = state()
    said = [why_not_retrained(waiting, paused=paused) for paused in (False, True)]
    waiting.drain()
    said.append(why_not_retrained(waiting, paused=True))
    reasons = [why.reason for why in said if why is not None]
    assert reasons == [Reason.NO_PLAN, Reason.PAUSED, Reason.DRAINED]


@pytest.mark.parametrize("ended", [None, TrainingCompleted()])
def test_a_retraining_that_runs_or_ran_has_no_reason(ended: RetrainingEvent | None) -> None:
    tenant = state()
    tenant.start_retraining(Instance(0, 2))
    if ended is not None:
        tenant.on(ended)
    assert why_not_retrained(tenant, paused=True) is None


def test_too_few_labels_are_counted() -> None:
    tenant = state()
    tenant.begin_window(2, 12, None, TrainingRoom(16.0, 10.0))
    sentence = "too few new labels: 12, a retraining needs 20"
    assert why_not_retrained(tenant, paused=False) == NotRetrained(Reason.NO_DATA, sentence)
    tenant = state()
    tenant.start_retraining(Instance(0, 2))
    tenant.on(SamplesMissing())
    tenant.begin_window(3, 40, None, TrainingRoom(16.0, 10.0))
    sentence = "too few new labels: 40, a retraining needs 41"
    assert why_not_retrained(tenant, paused=False) == NotRetrained(Reason.NO_DATA, sentence)
