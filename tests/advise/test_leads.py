"""Leads over rivals: intervals, verdicts."""

import math

import pytest

from migrator.advise.leads import (
    OURS,
    STATIC,
    Leads,
    LeadVerdict,
    Sample,
    measure_leads,
    paired_lead,
)
from migrator.core.comparison import SeedMean


def test_the_lead_is_that_of_the_sums() -> None:
    lead = paired_lead([30, 50], [20, 60])
    assert lead is not None
    assert lead.mean == 0
    # off by 30 - 20 and 50 - 60: variance 200, over two pairs; t of one degree of freedom
    assert lead.half_width == pytest.approx(12.7062 * math.sqrt(200 / 2) / 40)


def test_pairs_that_differ_by_one_factor_leave_no_doubt() -> None:
    lead = paired_lead([11, 110, 1100], [10, 100, 1000])
    assert lead is not None
    assert lead.mean == pytest.approx(0.1)
    assert lead.half_width == pytest.approx(0, abs=1e-9)


def test_one_pair_has_no_interval_and_nothing_has_no_lead() -> None:
    assert paired_lead([2], [1]) == SeedMean(1.0, None)
    assert paired_lead([2, 3], [0, 0]) is None


def test_the_ceiling_is_measured_beside() -> None:
    samples = [Sample(100, 90, {OURS: 60, "ekya": 50, STATIC: 40}) for _ in range(2)]
    leads = measure_leads(samples)
    assert (leads.samples, leads.goodput, leads.ceiling) == (2, 0.6, 0.9)
    assert leads.most == {"ekya": pytest.approx(0.8), STATIC: pytest.approx(1.25)}
    assert leads.rival == "ekya"


@pytest.mark.parametrize(
    ("static", "ekya", "verdict"),
    [
        (SeedMean(0.05, 0.01), SeedMean(0.03, 0.02), LeadVerdict.PAYS),
        (SeedMean(0.01, 0.001), SeedMean(0.30, 0.01), LeadVerdict.STATIC),
        (SeedMean(-0.2, 0.001), None, LeadVerdict.STATIC),
        (SeedMean(0.0, 0.0), SeedMean(-0.4, 0.01), LeadVerdict.PEER),
        (SeedMean(-0.1, 0.0), SeedMean(-0.11, 0.01), LeadVerdict.STATIC),
        (SeedMean(0.05, 0.01), SeedMean(0.01, 0.001), LeadVerdict.PEER),
        (SeedMean(0.05, 0.06), SeedMean(0.03, 0.01), LeadVerdict.UNSURE),
        (SeedMean(0.05, None), SeedMean(0.03, None), LeadVerdict.UNSURE),
        (None, SeedMean(0.03, 0.01), LeadVerdict.PAYS),
    ],
)
def test_verdicts(static: SeedMean | None, ekya: SeedMean | None, verdict: LeadVerdict) -> None:
    over = {"ekya": ekya, STATIC: static}
    shares = {name: 0.5 / (1 + lead.mean) if lead else 0.0 for name, lead in over.items()}
    assert Leads(5, 0.5, 0.9, shares, over, {}).verdict is verdict


def test_a_policy_without_goodput_is_behind_all() -> None:
    leads = measure_leads([Sample(100, 90, {OURS: 0, "ekya": 50, STATIC: 0})])
    assert leads.over == {"ekya": SeedMean(-1.0, None), STATIC: None}
    assert leads.verdict is LeadVerdict.PEER
