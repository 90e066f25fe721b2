"""Live runs with one and with several ways to retrain: their order, scenarios and table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.gpu.live import PROFILES, Run, adapt, asked_for, schedule, set_rates
from benchmarks.gpu.live import with_configurations as several_ways
from benchmarks.live_cells import PROFILE, cell_document
from benchmarks.live_configurations import CELL, table
from benchmarks.live_daemon import write_scenario
from migrator.workload.live import read_live


def test_every_seed_runs_with_one_way_then_with_several() -> None:
    runs = schedule(["migrator"], 2, twice=True)
    assert runs == [Run(seed, "migrator", several) for seed in (0, 1) for several in (False, True)]
    assert len({run.folder for run in runs}) == 4


def test_the_scenario_with_several_ways_differs_in_nothing_else(tmp_path: Path) -> None:
    document = cell_document(CELL)
    adapt(document, asked_for(["--out", "x", "--window-s", "30"]))
    (tmp_path / PROFILES).write_bytes(PROFILE.read_bytes())
    set_rates(document, tmp_path / PROFILES)
    one, several = (
        read_live(write_scenario(tmp_path / "cell.yaml", made))
        for made in (document, several_ways(document))
    )
    assert [[way.name for way in tenant.configurations] for tenant in one.tenants] == [[""], [""]]
    names = [[way.name for way in tenant.configurations] for tenant in several.tenants]
    assert names == [["all", "half", "quarter", "head"]] * 2
    assert [tenant.drifts[0].others for tenant in several.scenario.tenants] == [(), ()]
    for tenant, other in zip(one.scenario.tenants, several.scenario.tenants, strict=True):
        assert tenant.trace.counts.tolist() == other.trace.counts.tolist()


def test_the_table_compares_seed_by_seed() -> None:
    def row(seed: int, several: bool, goodput: int, *ways: str) -> dict[str, Any]:
        taken = [{"configuration": way, "taken_s": 4.0, "planned_s": 5.0} for way in ways]
        counts = {"sent": 100, "goodput": goodput}
        return {
            **counts,
            "several": several,
            "seed": seed,
            "tenants": {"pictures": {**counts, "in_time": goodput}},
            "retrainings": taken,
        }

    rows = [row(0, False, 50, ""), row(0, True, 60, "half", "half"), row(1, False, 50)]
    lines = list(table(rows))
    assert "| 0 | 50.0% | 60.0% | +20.0% | 50.0% → 60.0% |" in lines
    assert not any(line.startswith("| 1 ") for line in lines), "its other run is missing"
    assert "| half | 2 | 4.0 | 0.80 |" in lines
