from collections.abc import Sequence
from pathlib import Path

import pytest
from support.reproduction import outcomes_of
from typer.testing import CliRunner

from migrator.cli import app
from migrator.core.errors import InputError
from migrator.records.outcome import RunOutcome
from migrator.report.html_page import write_page
from migrator.report.page import Table
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import (
    ALL,
    EXPERIMENTS,
    chosen,
    figures_of,
    jobs_of,
    page_of,
)
from migrator.reproduce.sources import WorkloadSource
from migrator.simulation.compare import SimulationJob

NAMES = [
    *("allocation-table", "best-allocation", "retraining-split", "goodput"),
    *("high-load", "slo-accuracy", "batch-4", "slot-length", "overhead"),
]
SMALL = Setting(workloads=("W1", "W9"), most_windows=1)


def test_experiments_are_found_in_the_papers_order() -> None:
    assert list(EXPERIMENTS) == NAMES
    assert [experiment.name for experiment in chosen([ALL])] == NAMES
    assert [experiment.name for experiment in chosen(["batch-4", "goodput"])] == [
        "goodput",
        "batch-4",
    ]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean goodput"):
        chosen(["goodputs"])
    with pytest.raises(InputError, match="no 'nonsense'"):
        chosen([ALL, "nonsense"])


def test_equal_runs_are_shared() -> None:
    alone = [set(EXPERIMENTS[name].jobs(SMALL)) for name in NAMES]
    shared = jobs_of([ALL], SMALL)
    assert set(shared) == set.union(*alone)
    assert len(shared) == len(set(shared)) < sum(map(len, alone))
    assert jobs_of(["goodput", "slo-accuracy"], SMALL) == jobs_of(["goodput"], SMALL)


def test_the_headline_is_forecast_by_auto() -> None:
    for name in ("goodput", "high-load", "batch-4"):
        used = {job.policy: job.forecaster for job in EXPERIMENTS[name].jobs(SMALL)}
        assert used["migrator"] == "auto"
        assert used["ekya"] is None  # it has no forecast, so that its run serves others as well


def test_a_page_has_every_section(tmp_path: Path) -> None:
    outcomes = outcomes_of(jobs_of([ALL], SMALL))
    page = page_of([ALL], SMALL, outcomes)
    summary, *sections = page.sections
    assert [section.anchor for section in sections] == NAMES
    (table,) = summary.blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [section.title for section in sections]
    assert all(cell.endswith(".") and len(cell) > 30 for row in table.rows for cell in row[1:])
    write_page(page, tmp_path / "all.html")
    text = (tmp_path / "all.html").read_text(encoding="utf-8")
    for name in NAMES:
        assert f'<section id="{name}">' in text
    assert list(figures_of([ALL], SMALL, outcomes)["experiments"]) == NAMES


def test_the_verb_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIGRATOR_DATA", raising=False)
    out = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(app, ["reproduce", "best-allocation", "--out", str(out), "--json"])
    assert done.exit_code == 0
    assert '"best-allocation"' in done.stdout
    assert '<section id="best-allocation">' in out.read_text(encoding="utf-8")


def test_the_verb_lists_experiments() -> None:
    shown = CliRunner().invoke(app, ["reproduce", "--list"]).stdout
    assert [line.split()[0] for line in shown.splitlines()] == NAMES


def test_workloads_and_windows_make_it_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIGRATOR_DATA", raising=False)
    seen: list[SimulationJob] = []

    def made_up(jobs: Sequence[SimulationJob], *_: object) -> dict[SimulationJob, RunOutcome]:
        seen.extend(jobs)
        return outcomes_of(jobs)

    monkeypatch.setattr("migrator.reproduce.reproduce.run_jobs", made_up)
    short = ["reproduce", "batch-4", "--out", str(tmp_path / "p.html"), "--windows", "2"]
    done = CliRunner().invoke(app, [*short, "--workloads", "w9, W1"])
    assert done.exit_code == 0, done.output
    sources = [job.source for job in seen]
    assert {source.name for source in sources if isinstance(source, WorkloadSource)} == {"W1", "W9"}
    assert {job.windows for job in seen} == {2}
    done = CliRunner().invoke(app, [*short, "--workloads", "W99"])
    assert isinstance(done.exception, InputError)
    assert "W99" in str(done.exception)


def test_traces_that_are_missing_are_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_DATA", str(tmp_path))
    done = CliRunner().invoke(app, ["reproduce", "goodput", "--out", str(tmp_path / "p.html")])
    assert isinstance(done.exception, InputError)
    assert "MIGRATOR_DATA" in str(done.exception)
    assert not (tmp_path / "p.html").exists()
