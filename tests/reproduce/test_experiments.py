"""Every experiment's section and figures, on made-up outcomes and on one small run."""

import json
from dataclasses import replace

import pytest
from support.reproduction import outcomes_of

from migrator.core.profiles import profile
from migrator.report.page import Bars, HeatMap, Lines, Note, Section, Table
from migrator.reproduce.evaluation import PAPERS_PEERS
from migrator.reproduce.experiment import DIFFERS, PAPER, Setting
from migrator.reproduce.overhead import PassJob, PassOutcome, hidden_in
from migrator.reproduce.reproduce import EXPERIMENTS, run_jobs
from migrator.reproduce.sources import WorkloadSource

SMALL = Setting(workloads=("W1", "W9"), most_windows=2)


def _made_up(name: str, setting: Setting = SMALL) -> Section:
    chosen = EXPERIMENTS[name]
    return chosen.section(setting, outcomes_of(chosen.jobs(setting)))


def _tables(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def _notes(section: Section) -> dict[str, str]:
    return {
        block.title: " ".join(block.paragraphs)
        for block in section.blocks
        if isinstance(block, Note)
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_section_has_whole_tables_beside_the_paper_and_figures_that_are_json(name: str) -> None:
    chosen, two = EXPERIMENTS[name], replace(SMALL, seeds=(0, 1))
    jobs = chosen.jobs(two)
    assert len(jobs) == 2 * len(chosen.jobs(SMALL))
    outcomes = outcomes_of(jobs)
    assert json.loads(json.dumps(chosen.figures(two, outcomes), allow_nan=False))
    section = chosen.section(two, outcomes)
    assert section.anchor == name
    assert section.paragraphs
    assert any(isinstance(block, Bars | Lines | HeatMap) for block in section.blocks)
    assert list(_notes(section)) == [PAPER, DIFFERS]
    assert all(_notes(section).values())
    for table in _tables(section):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headers)}
        assert max(table.numeric, default=0) < len(table.headers)
        assert all(row < len(table.rows) for row, _ in table.highlights)


def test_gains_are_those_of_the_averages() -> None:
    chosen = EXPERIMENTS["goodput"]
    figures = chosen.figures(SMALL, outcomes_of(chosen.jobs(SMALL)))
    mean, gains = figures["average"], figures["gains"]
    assert set(PAPERS_PEERS) <= set(gains)
    for peer in PAPERS_PEERS:
        assert gains[peer] == pytest.approx(mean["migrator"] / mean[peer] - 1)
        assert gains[peer] > 0
    assert figures["share_of_oracle"] == pytest.approx(mean["migrator"] / mean["oracle"])
    both = [figures["workloads"][workload]["ekya"] for workload in SMALL.workloads]
    assert mean["ekya"] == pytest.approx(sum(both) / 2)


def test_a_peer_that_wins_is_named() -> None:
    chosen = EXPERIMENTS["batch-4"]
    jobs = chosen.jobs(SMALL)
    outcomes = outcomes_of(jobs)
    worst = {job.source: job for job in jobs if job.policy == "paris-reconfiguring"}
    for job in jobs:
        if job.policy == "migrator":
            outcomes[job] = outcomes[worst[job.source]].__class__(
                outcomes[job].scenario, "migrator", "ewma", 0, outcomes[worst[job.source]].windows
            )
    differs = _notes(chosen.section(SMALL, outcomes))[DIFFERS]
    assert "ekya on W1 and W9" in differs
    assert "paris-reconfiguring on" not in differs


def test_half_of_the_overhead_hidden_is_said_so() -> None:
    chosen = EXPERIMENTS["overhead"]
    figures = chosen.figures(SMALL, outcomes_of(chosen.jobs(SMALL)))
    assert figures["cold"]["hidden_share"] == 0.5
    overhead = profile("resnet-50", "H200-141GB").overhead
    saved = overhead.start_s / overhead.total_s(mig=True, prepared=False)
    assert figures["prepared_saves"]["resnet-50"] == pytest.approx(saved, abs=1e-3)
    assert hidden_in([]).share == 0


def test_the_pass_comes_with_the_run() -> None:
    job = PassJob(WorkloadSource("W8", slot_s=5.0, prepared=False), "migrator-paper", windows=1)
    outcome = run_jobs([job], processes=1)[job]
    assert isinstance(outcome, PassOutcome)
    assert outcome.policy == "migrator-paper"
    assert outcome.passes  # one per plan: a retraining that runs late is planned around
    hidden = hidden_in(outcome.passes)
    assert 0 <= hidden.hidden_s <= hidden.overhead_s


def test_the_motivation_shows_the_trade_off_when_it_is_run() -> None:
    setting = Setting(most_windows=1)
    table, split = EXPERIMENTS["allocation-table"], EXPERIMENTS["retraining-split"]
    jobs = (*table.jobs(setting), *split.jobs(setting))
    outcomes = run_jobs(jobs, processes=1)
    figures = table.figures(setting, outcomes)
    most, even = "6-1", "3-4"
    assert figures["slo_attainment"][most][0] > figures["slo_attainment"][even][0] + 0.1
    assert figures["accuracy"][most][0] < figures["accuracy"][even][0] - 0.02
    shares = split.figures(setting, outcomes)["the_same_requests"]
    assert set(shares["accuracy"]) == {"1-4", "2-3", "3-2", "4-1"}
    slow = outcomes[split.jobs(setting)[0]].windows[0].tenants[0]
    differs = _notes(split.section(setting, outcomes))[DIFFERS]
    assert ("outlasts the window" in differs) == (slow.retrained_s is None)


def test_a_higher_load_is_the_same_workloads_otherwise() -> None:
    high, plain = (EXPERIMENTS[name].jobs(SMALL) for name in ("high-load", "goodput"))
    sources = {job.source for job in high if isinstance(job.source, WorkloadSource)}
    assert {replace(source, load=0.6, published=False) for source in sources} == {
        job.source
        for job in plain
        if isinstance(job.source, WorkloadSource) and job.policy == "migrator"
    }
    figures = EXPERIMENTS["high-load"].figures(SMALL, outcomes_of(high))
    assert figures["ceiling"] > 0.85  # published weights reach 0.9 and more
