"""Workloads with one and four configurations, and the page that follows from their rows."""

from __future__ import annotations

import json

import pytest
from support.reproduction import outcome_of

from benchmarks import configurations
from benchmarks.configurations import (
    IMAGES,
    LENGTHS,
    LONGEST,
    POLICIES,
    TEXTS,
    ConfiguredSource,
    Part,
    Results,
    with_configurations,
)
from migrator.core.profiles import Curve
from migrator.core.scenario import Drift
from migrator.reproduce.experiment import Setting
from migrator.reproduce.sources import WorkloadSource

SETTING = Setting(workloads=("W1", "W2", "P1"), most_windows=1)


def test_measured_windows_have_all_shorter_configurations() -> None:
    measured = configurations.measured_windows()
    assert min(len(measured[pair]) for pair in (IMAGES, TEXTS)) >= 5
    for pair, windows in measured.items():
        for window in windows:
            assert tuple(part.name for part in window) == configurations.SHORTER[pair]
            assert all(0 < part.length < 1 and part.gain < 1.2 for part in window)


def test_others_are_relative_to_the_retraining_of_the_workload() -> None:
    drift = Drift(0.5, 0.9, Curve(((16.0, 100.0), (132.0, 20.0))), 0.8)
    made = with_configurations(drift, (Part("short", 0.75, 0.5, 0.25), Part("more", 2, 2, 1.0)))
    assert (made.configuration, made.accuracy_post, made.seconds) == (LONGEST, 0.9, drift.seconds)
    short, more = made.others
    # of a gain of 0.4, and of its estimate, which is 0.1 too low for both
    assert short.accuracy_post == pytest.approx(0.8)
    assert short.accuracy_expected == pytest.approx(0.6)
    assert short.seconds.at(16) == pytest.approx(25)
    assert (more.accuracy_post, more.accuracy_expected) == (1.0, 1.0)


def test_one_configuration_is_the_workload_with_its_length() -> None:
    plain = WorkloadSource("W1", load=configurations.LOAD)(0, 1)
    same = ConfiguredSource(WorkloadSource("W1", load=configurations.LOAD), 1, None)(0, 1)
    assert [tenant.drifts for tenant in same.tenants] == [tenant.drifts for tenant in plain.tenants]
    measured = configurations.measured_windows()
    longer = ConfiguredSource(WorkloadSource("W1"), 4, measured)(0, 1)
    for tenant, before in zip(longer.tenants, plain.tenants, strict=True):
        assert len(tenant.drifts) == len(before.drifts)
        for drift, short in zip(tenant.drifts, before.drifts, strict=True):
            assert drift.seconds is not None
            assert short.seconds is not None
            assert drift.seconds.at(32) == pytest.approx(4 * short.seconds.at(32))
            assert len(drift.others) == 3


def test_the_page_has_the_figures_of_the_rows() -> None:
    jobs = configurations.jobs(SETTING)
    assert len(set(jobs)) == 3 * len(LENGTHS) * 2 * len(POLICIES)
    assert len({repr(job.source) for job in jobs}) == 3 * len(LENGTHS) * 2
    rows = list(configurations.rows(SETTING, {job: outcome_of(job) for job in jobs}))
    for row in rows:
        if (row["policy"], row["configurations"]) == ("migrator", 4):
            row["goodput"] *= 1.1
    results = Results(rows)
    assert results.gain(4, "migrator").mean == pytest.approx(0.1)
    assert results.gain(4, "ekya").mean == pytest.approx(0)
    one, four = (results.lead(4, count, "ekya").mean for count in (1, 4))
    assert four == pytest.approx(1.1 * (1 + one) - 1)
    record = {
        **{"command": "COMMAND", "commit": "c0ffee", "code": "d", "traces": "real", "seeds": [0]},
        **{"rows": rows, "measured": configurations.measured_record()},
    }
    page = configurations.text(json.loads(json.dumps(record)))
    images, texts = (len(configurations.measured_windows()[pairs]) for pairs in (IMAGES, TEXTS))
    assert f"one of {images} measured windows of images or {texts} of texts" in page
    assert "Workloads: W1, W2." in page
    assert "Workloads: P1." in page
    assert page.count("+10.0\u00a0±\u00a00.0%") == len(LENGTHS)
    assert page.count("| x 4 |") == 2 * (2 + 1) + 2
