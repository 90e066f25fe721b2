"""Summaries over seeds and scenarios, against figures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.outcomes import run, tally

from migrator.core.comparison import (
    ALL_SCENARIOS,
    SIDE_BY_SIDE,
    SeedMean,
    estimate,
    leads,
    over_best_peer,
    reference_policy,
    reference_row,
    relative,
    summarise,
    t95,
)
from migrator.records.outcome import RunOutcome


def outcome(policy: str, scenario: str, seed: int, goodput_share: float) -> RunOutcome:
    """A run of one tenant and window with that goodput of 1000 requests, nothing lost."""
    made = run(policy, scenario, seed, windows=1, tenants=("bert",))
    (window,) = made.windows
    counted = tally(1000, late=0, dropped=0, accuracy=goodput_share)
    tenants = (replace(window.tenants[0], tally=counted),)
    return replace(made, windows=(replace(window, tenants=tenants),))


def central_mass(t: float, freedom: int) -> float:
    """Student's density between -t and t, by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    steps = 4000
    width = t / steps
    weights = [1, *(4 if n % 2 else 2 for n in range(1, steps)), 1]
    density = [(1 + (n * width) ** 2 / freedom) ** (-(freedom + 1) / 2) for n in range(steps + 1)]
    area = sum(w * d for w, d in zip(weights, density, strict=True)) * width / 3
    return float(2 * scale * area)


@pytest.mark.parametrize("freedom", [1, 2, 3, 29, 30, 31, 32, 60, 5000])
def test_t95_holds_95_percent_of_the_distribution(freedom: int) -> None:
    assert central_mass(t95(freedom), freedom) == pytest.approx(0.95, abs=2e-5)


def test_an_estimate_is_mean_and_half_width() -> None:
    assert estimate([3.0]) == SeedMean(3.0, None)
    mean = estimate([1.0, 2.0, 3.0])
    assert mean.mean == 2.0
    assert mean.half_width == pytest.approx(4.3027 / math.sqrt(3))


def test_over_all_scenarios_seeds_are_averaged_first() -> None:
    shares = {("a", 0): 0.2, ("a", 1): 0.4, ("b", 0): 0.8, ("b", 1): 0.6}
    rows = summarise(outcome("ekya", name, seed, share) for (name, seed), share in shares.items())
    overall = rows[-1]
    assert [row.scenario for row in rows] == ["a", "b", ALL_SCENARIOS]
    assert overall.seeds == 2
    assert overall.goodput_share.mean == pytest.approx(0.5)
    # 0.5 for both seeds: what varies between scenarios is no uncertainty.
    assert overall.goodput_share.by_seed == {0: pytest.approx(0.5), 1: pytest.approx(0.5)}


def test_policies_are_compared_with_migrator_or_else_with_the_first_one() -> None:
    given_runs = [outcome(policy, "a", 0, 0.5) for policy in ("ekya", "paris", "migrator")]
    rows = summarise([*given_runs, outcome("ekya", "b", 0, 0.5)])
    assert reference_policy(rows) == "migrator"
    assert reference_policy(rows[:2]) == "ekya"
    ekya, _, migrator, elsewhere, *_ = rows
    assert reference_row(ekya, rows, "migrator") == migrator
    assert reference_row(migrator, rows, "migrator") is None
    assert reference_row(elsewhere, rows, "migrator") is None


def test_a_seed_or_policy_that_missed_a_scenario_is_not_in_the_overall_mean() -> None:
    given_runs = [
        outcome("ekya", "a", 0, 0.2),
        outcome("ekya", "a", 1, 0.9),
        outcome("ekya", "b", 0, 0.4),
        outcome("paris", "a", 0, 0.9),
    ]
    overall = [row for row in summarise(given_runs) if row.scenario == ALL_SCENARIOS]
    assert [(row.policy, row.seeds) for row in overall] == [("ekya", 1)]
    assert overall[0].goodput_share.mean == pytest.approx(0.3)


def test_relative_measures_against_one_policy_per_scenario() -> None:
    rows = summarise(
        [
            outcome("migrator", "a", 0, 0.8),
            outcome("ekya", "a", 0, 0.64),
            outcome("ekya", "b", 0, 0.5),
        ]
    )
    own, ekya = (row for row in relative(rows) if row.scenario == "a")
    assert own.change == own.gain == 0
    assert ekya.change == pytest.approx(-0.2)
    assert ekya.gain == pytest.approx(0.25)
    assert {row.scenario for row in relative(rows)} == {"a"}


def test_the_best_peer_is_the_best_other_policy_but_no_oracle() -> None:
    shares = {"migrator": 0.8, "ekya": 0.5, "paris": 0.64, "oracle": 0.9}
    rows = summarise(outcome(policy, "a", 0, share) for policy, share in shares.items())
    leads = {row.policy: over_best_peer(row, rows) for row in rows}
    assert leads == {
        "migrator": pytest.approx(0.25),
        "ekya": pytest.approx(-0.375),
        "paris": pytest.approx(-0.2),
        "oracle": pytest.approx(0.125),
    }
    assert over_best_peer(rows[0], rows[:1]) is None


def test_replanning_regains_a_part_of_the_oracles_lead() -> None:
    shares = dict(zip(SIDE_BY_SIDE, (0.8, 0.83, 0.9), strict=True))
    rows = summarise(outcome(policy, "a", 0, share) for policy, share in shares.items())
    (lead,) = leads(rows)
    assert lead.scenario == "a"
    assert [lead.window_plan, lead.replanned, lead.oracle] == pytest.approx([0.8, 0.83, 0.9])
    assert lead.regained == pytest.approx(0.3)
    assert lead.change == pytest.approx(0.03 / 0.8)
