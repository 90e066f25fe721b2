"""Who pays for a burst: without a floor the bursty tenant, with one the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.scenarios import scenario, tenant

import migrator
from migrator.core.scenario import Drift
from migrator.records.outcome import RunOutcome
from migrator.report.run_json import run_json
from migrator.report.run_text import run_table

WINDOW_S = 40
STEADY = [650] * WINDOW_S
BURSTY = [40] * 25 + [300] * 10 + [40] * 5


def run(policy: str, **of_bursty: Any) -> RunOutcome:
    """Two windows, after two that are known; both windows are as the one before."""
    steady, bursty = (
        tenant(name, counts * 4, offset_s=2 * WINDOW_S, drifts=(Drift(level, level, None),) * 2)
        for name, counts, level in (("steady", STEADY, 0.9), ("bursty", BURSTY, 0.5))
    )
    bursty = replace(bursty, service=replace(bursty.service, **of_bursty))
    small = scenario(steady, bursty, window_s=float(WINDOW_S), windows=2)
    return migrator.simulate(small, policy, forecaster="last-window").outcome


@pytest.mark.parametrize("policy", ["migrator", "migrator-replanned"])
def test_with_a_floor_the_bursty_tenant_does_not_pay(policy: str) -> None:
    without, with_floor = run(policy), run(policy, floor=0.9)
    assert without.tenants["bursty"].slo_attainment < 0.6
    assert without.tenants["steady"].slo_attainment > 0.95
    assert with_floor.tenants["bursty"].slo_attainment > 0.9
    assert with_floor.tally.goodput < without.tally.goodput


def test_a_weight_moves_goodput_and_both_sums_are_reported() -> None:
    plain, heavy = run("migrator"), run("migrator", weight=4.0, floor=0.3)
    assert heavy.tenants["bursty"].goodput > plain.tenants["bursty"].goodput
    assert heavy.tally.goodput < plain.tally.goodput
    weighted = heavy.tenants["steady"].goodput + 4 * heavy.tenants["bursty"].goodput
    shown = run_json(heavy)
    assert shown["weighted_goodput"] == pytest.approx(weighted)
    assert (shown["weights"], shown["floors"]) == ({"bursty": 4.0}, {"bursty": 0.3})
    assert f"goodput times weights {weighted:,.0f} (weights steady 1, bursty 4)" in run_table(heavy)
    assert "above its floor of 30.0%" in run_table(heavy)
    assert not {"weighted_goodput", "weights", "floors"} & run_json(plain).keys()


def test_peers_ignore_weights_and_floors() -> None:
    for policy in ("ekya", "paris"):
        assert run(policy, weight=9.0, floor=0.99).tally == run(policy).tally
