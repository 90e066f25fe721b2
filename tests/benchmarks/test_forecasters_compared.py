"""The comparison of forecasters: what its cases forecast, and a page that is made of its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import forecasters
from benchmarks.forecasters import FORECASTERS, Case, Errors, Goodput
from benchmarks.forecasters_page import TRUTH, page
from benchmarks.headline_scenarios import KINDS
from migrator.workload.workloads import all_workloads

TRAINING = {
    "shape": {
        **{"width": 32, "heads": 4, "encoder_layers": 2, "decoder_layers": 1},
        **{"lookback": 600, "start": 100, "ahead": 200},
    },
    "settings": {"steps": 800, "batch": 32, "seed": 0, "device": "cpu"},
    "summary": {"slots": 3_628_800, "wape": 0.1, "wape_last_mean": 0.2},
    "cpu_s": 300.0,
    "rps": 2000.0,
}


def record(goodput: dict[str, float]) -> dict[str, Any]:
    """Made-up rows: every forecaster's goodput over last-mean's, twelve places."""
    about = [
        {"workload": name, "seed": 0, "place": f"azure {number}"}
        for number, name in enumerate(list(all_workloads())[:12])
    ]
    tenants = [
        {"kind": kind, "begin_s": 600, "mean": 10.0, "mae": 2.0, "loss": 1.0, "ms": 3.0}
        for kinds in KINDS
        for kind in kinds
    ]
    errors = [
        {**one, "forecaster": name, "tenants": tenants} for one in about for name in FORECASTERS
    ]
    loop = [
        {**one, "forecaster": name, "received": 1000, "goodput": 500 * goodput.get(name, 1.0)}
        | {"in_time": 900.0, "worst": 0.4}
        for one in about
        for name in (*FORECASTERS, TRUTH)
    ]
    wanted = {"errors": len(errors), "loop": len(loop), "once": len(loop)}
    about_all = {"command": "made up", "training": TRAINING, "wanted": wanted}
    return {**about_all, "errors": errors, "loop": loop, "once": []}


def test_a_forecaster_ahead_with_an_interval_above_0_wins() -> None:
    text = page(record({"ridge": 1.04, TRUTH: 1.1}))
    assert "interval above 0: `ridge` +4.0% (+4.0 to +4.0)** (12 runs" in text
    assert "| `ridge` | 12 | 52.0% | 90.0% | 40.0% | +4.0% (+4.0 to +4.0) | 0 | 94.5% |" in text


def test_without_one_ahead_the_simplest_is_as_good() -> None:
    text = page(record({"ridge": 0.98, TRUTH: 1.1}))
    assert "**No forecaster brings more goodput than `last-mean`" in text
    assert "| `last-mean` | 12 | 50.0% | 90.0% | 40.0% |  |  | 90.9% |" in text
    assert "| `auto` | 12 | 50.0% | 90.0% | 40.0% | +0.0% (+0.0 to +0.0) | 12 | 90.9% |" in text


def test_runs_that_not_all_have_are_left_out_and_counted() -> None:
    made = record({"ridge": 1.04})
    made["loop"] = made["loop"][:-1]
    text = page(made)
    assert "| `ridge` | 11 |" in text
    assert f"{len(FORECASTERS) + 1} of {12 * (len(FORECASTERS) + 1)} runs are missing" in text
    # one that was hardly run is no reason to leave out the runs of the others
    few = [row for row in made["loop"] if row["forecaster"] != "auto" or row["workload"] == "W1"]
    text = page({**made, "loop": few})
    assert "| `ridge` | 11 |" in text
    assert "`auto` | 11" not in text


def test_every_forecaster_has_its_errors_of_every_kind_of_arrivals() -> None:
    lines = [
        line for line in page(record({})).split("## Errors")[1].splitlines() if "0.200" in line
    ]
    assert [line.split("`")[1] for line in lines] == list(FORECASTERS)
    assert all(line.count("0.200") == 6 for line in lines)


def test_what_is_forecast_is_what_comes_in_the_runs(tmp_path: Path) -> None:
    case = Case("W9", 0, TRUTH)
    for tenant in case.errors(tmp_path, tmp_path).tenants:
        assert tenant["mae"] == 0
        assert tenant["windows"] == 4
    assert all(
        float(one["mae"]) > 0
        for one in Case("W9", 0, "last-mean").errors(tmp_path, tmp_path).tenants
    )


def test_a_run_in_the_loop(tmp_path: Path) -> None:
    """Under a policy that needs no planner, which is quick."""
    one = Case("W9", 0, "last-mean").goodput(tmp_path, tmp_path, planner="equal-mig")
    assert 0 < one.goodput < one.in_time < one.received
    assert 0 < one.worst < one.goodput / one.received


def test_what_is_finished_is_kept_and_rendered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training and runs are made up: tests/forecast and tests/simulation have the real ones."""
    ran: list[str] = []

    def errors(case: Case, **_: Path) -> Errors:
        ran.append(case.forecaster)
        came: dict[str, str | float] = {"kind": "azure", "begin_s": 600.0, "mean": 5.0}
        tenant = {**came, "mae": 1.0, "loss": 1.0, "ms": 1.0}
        return Errors((tenant,))

    def goodput(case: Case, **_: object) -> Goodput:
        ran.append(case.forecaster)
        return Goodput(100, 50.0, 60.0, 0.4, 1.0)

    monkeypatch.setenv("MIGRATOR_DATA", str(tmp_path))
    monkeypatch.setattr(Case, "errors", errors)
    monkeypatch.setattr(Case, "goodput", goodput)
    (tmp_path / "week.informer").write_bytes(b"model")
    (tmp_path / "week.json").write_text(json.dumps(TRAINING))
    words = ["forecasters", "--keep", str(tmp_path), "--out", str(tmp_path), "--processes", "1"]
    monkeypatch.setattr("sys.argv", [*words, "--workloads", "1"])
    assert forecasters.main() == 0
    assert sorted(ran) == sorted((*FORECASTERS, *FORECASTERS, TRUTH, *FORECASTERS, TRUTH))
    rows = json.loads((tmp_path / "forecasters.json").read_text())
    assert len(rows["loop"]) == len(FORECASTERS) + 1
    assert "--workloads 1" in (tmp_path / "forecasters.md").read_text()
    assert forecasters.main() == 0
    assert len(ran) == 3 * len(FORECASTERS) + 2
    # rows of other code are shown as such
    monkeypatch.setattr(forecasters, "code_digest", lambda: "other code")
    monkeypatch.setattr("sys.argv", [*words, "--workloads", "1", "--rows"])
    assert forecasters.main() == 0
    assert json.loads((tmp_path / "forecasters.json").read_text())["code"] == rows["code"]
    monkeypatch.setattr(forecasters, "code_digest", lambda: rows["code"])
    monkeypatch.setattr("sys.argv", [*words, "--workloads", "1"])
    # another model: the Informer alone is run again
    (tmp_path / "week.informer").write_bytes(b"other model")
    assert forecasters.main() == 0
    assert ran[3 * len(FORECASTERS) + 2 :] == 3 * ["informer"]
