"""The live comparison: order of the runs, what is resumed, the budget, rates, tables."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.html import ParsedPage
from support.live_records import WINDOW_S, Made, write_run

from benchmarks.gpu.live import (
    LAST,
    MARKER,
    POLICIES,
    SCENARIO,
    SMALL,
    Run,
    adapt,
    asked_for,
    broken,
    left_to_do,
    schedule,
    set_rates,
)
from benchmarks.gpu.live_models import VIEWS, ManyViewsSmall, views
from benchmarks.gpu.live_results import (
    Finished,
    Row,
    leads,
    page,
    reported_of,
    reported_table,
    retrainings_of,
    starts_of,
    tables,
)
from benchmarks.gpu.live_settings import SETTINGS, scenario_of
from benchmarks.measured_run import LiveRun, _trainings, measured_run
from migrator.core.catalogue import board
from migrator.io.yaml_text import load_yaml
from migrator.policies.registry import policy
from migrator.records.rows import RetrainingRecord, UnitRecord
from migrator.records.store import read_records
from migrator.report.html_page import page_text
from migrator.workload.live import read_live
from migrator.workload.traces.generator import generate

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def test_every_policy_runs_with_every_seed_in_changing_order() -> None:
    runs = schedule(POLICIES, 3)
    assert Counter(runs) == Counter(Run(s, p) for s in range(3) for p in POLICIES)
    main = [run for run in runs if run.policy not in LAST]
    assert runs[: len(main)] == main
    orders = {tuple(e.policy for e in main if e.seed == seed) for seed in range(3)}
    assert len(orders) == 3
    assert runs == schedule(POLICIES, 3)


def test_finished_runs_are_kept_and_broken_ones_repeated(tmp_path: Path) -> None:
    done, cut = Run(0, "migrator"), Run(0, "ekya")
    for run in (done, cut):
        (tmp_path / run.folder / "state").mkdir(parents=True)
    (tmp_path / done.folder / MARKER).write_text("{}", encoding="utf-8")
    assert left_to_do(tmp_path, [done, cut]) == [cut]
    assert (tmp_path / done.folder / MARKER).exists()
    assert not (tmp_path / cut.folder).exists()


def test_a_run_whose_clients_gave_up_does_not_count() -> None:
    assert broken({"ended": None, "windows": [{}, {}]}, 2) == ""
    assert "gave up" in broken({"ended": "gave up", "windows": [{}, {}]}, 2)
    assert "1 of 2 windows" in broken({"ended": None, "windows": [{}]}, 2)


def test_rates_are_parts_of_what_an_even_part_of_the_board_answers(tmp_path: Path) -> None:
    profiles = tmp_path / "live.profiles.json"
    content = {"version": 2, "measured": {}, "profiles": [SMALL]}
    profiles.write_text(json.dumps(content), encoding="utf-8")
    trace = tmp_path / "trace.csv"
    counts = [0, 10] * 5 + [0, 40] * 10
    lines = (f"{second},{count}" for second, count in enumerate(counts))
    trace.write_text("second,count\n" + "\n".join(lines) + "\n", encoding="utf-8")
    arrivals: list[dict[str, Any]] = [
        {"generator": "alibaba", "load": 0.9},
        {"generator": "azure-bursty", "load": 0.3},
        {"trace": str(trace), "offset_s": 10, "load": 0.5},
        {"generator": "azure", "mean_rps": 12},
    ]
    tenants = [{"model": SMALL["model"], "batch": 4, "arrivals": traces} for traces in arrivals]
    document = {"gpu": "H200-141GB", "windows": 2, "window_s": 10, "tenants": tenants}
    set_rates(document, profiles)
    able_rps = board("H200-141GB").compute_slices / 4 * 4 / 1.2
    steady, bursty, traced, given = arrivals
    assert steady == {"generator": "alibaba", "mean_rps": pytest.approx(0.9 * able_rps, abs=0.1)}
    # it has requests in about a quarter of its seconds, and as many in these
    mean_rps = bursty["mean_rps"]
    drawn = generate("azure-bursty", mean_rps=mean_rps, seconds=20_000, seed=5).counts
    assert drawn[drawn > 0].mean() == pytest.approx(0.3 * able_rps, rel=0.25)
    # the run has 20 requests per second in the mean, in every other second
    assert traced["scale"] * 20 == pytest.approx(0.5 * able_rps / 2, rel=1e-3)
    assert given == {"generator": "azure", "mean_rps": 12}
    tenants[0]["arrivals"] = {"trace": str(trace), "load": 0.5}
    with pytest.raises(SystemExit, match="no request from second 2400 to 2420"):
        set_rates(document, profiles)


def test_options_change_the_scenario_and_what_is_not_asked_for_stays() -> None:
    def told(*arguments: str) -> dict[str, Any]:
        path = BENCHMARKS / "gpu" / "live.yaml"
        document: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"))  # type: ignore[assignment]
        adapt(document, asked_for(["--out", "x", *arguments]))
        return document

    usual = told()
    assert (usual["forecaster"], usual["gpu"]) == ("auto", "H200-141GB-MPS")
    assert set(usual["tenants"][0]["retraining"]["windows"][0]["seconds"]) == {"1", "2"}
    assert told("--driver", "mig")["gpu"] == "H200-141GB"
    assert [tenant["live"]["epochs"] for tenant in usual["tenants"]] == [8, 8]
    assert (usual["windows"], usual["window_s"]) == (4, 60)
    options = "--epochs 4 --history-s 600 --forecaster last-mean --windows 3 --window-s 80"
    asked = told(*options.split())
    assert (asked["forecaster"], asked["windows"], asked["window_s"]) == ("last-mean", 3, 80)
    assert [tenant["live"]["epochs"] for tenant in asked["tenants"]] == [4, 4]
    assert [tenant["arrivals"]["offset_s"] for tenant in asked["tenants"]] == [600, 600]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_that_is_simulated_is_a_scenario(name: str) -> None:
    profiles = BENCHMARKS.parent / "docs" / "results" / "h200-live-comparison-profile.json"
    live = scenario_of(SETTINGS[name], 1, SCENARIO, profiles)
    scenario, wanted = live.scenario, SETTINGS[name]
    assert (scenario.window_s, scenario.windows) == (wanted.window_s or 60, wanted.windows or 4)
    assert scenario.board.name == (wanted.board or "H200-141GB-MPS")
    assert scenario.forecaster == (wanted.forecaster or "auto")
    assert {tenant.epochs for tenant in live.tenants} == {wanted.epochs or 8}
    assert {tenant.offset_s for tenant in scenario.tenants} == {wanted.history_s or 2400}


def _row(policy: str, seed: int, goodput: int) -> Row:
    counts = (1000, goodput, 900, 0.8, 1, 2, 3, 4, 5)
    return Row(policy, seed, "all", *counts, 10.0, 20.0, goodput * 1.05, goodput * 0.99)


def test_leads_are_means_over_seeds_that_both_policies_have() -> None:
    rows = [_row("migrator", 0, 660), _row("ekya", 0, 600), _row("ekya", 1, 100)]
    assert leads(rows) == {"ekya": {"mean": pytest.approx(0.1), "by_seed": {0: pytest.approx(0.1)}}}
    rows.append(_row("migrator", 1, 130))
    assert leads(rows)["ekya"]["mean"] == pytest.approx(0.2)
    made = {table.caption: table.rows for table in tables(rows, [], [])}
    assert made["How far migrator is ahead"] == (("ekya", "+20.0%", "+10.0%, +30.0%"),)
    assert made["Live and simulated"][0][3:] == ("660", "693", "+5.0%", "653", "-1.0%")
    tenants = [
        replace(rows[0], tenant=name, goodput=good) for name, good in (("a", 900), ("b", 300))
    ]
    made = {table.caption: table.rows for table in tables([*rows, *tenants], [], [])}
    even = made["How even the tenants are, as clients saw it"]
    assert even == (("migrator", "0", "b", "30.0%", "0.800"),)


def test_the_page_has_the_comparison_and_every_run(tmp_path: Path) -> None:
    live = read_live(BENCHMARKS.parent / "examples" / "live.yaml")
    trained = RetrainingRecord(1, "photos", 1032.0, "done", 1.0, 0.9, 6.0, 7.5, {"epochs_s": 7.0})
    runs, goods = [], {"migrator": 820, "ekya": 640}
    for seed, name in enumerate(goods):
        path = tmp_path / name / "records.db"
        made = Made(policy=name, began_s=1000.0, more=(trained,), ends=True)
        run = read_records(path, write_run(path, made))
        counted = {"in_time": 1170, "goodput": goods[name], "accuracy": goods[name] / 1170}
        sent = {"windows": [{"window": 0, "tenants": {"photos": counted, "gone": counted}}]}
        runs.append(Finished(name, seed, live, LiveRun(run, sent)))
    rows = [_row("migrator", 0, 660), _row("ekya", 1, 600)]
    retrainings = [row for finished in runs for row in retrainings_of(finished)]
    starts = [row for finished in runs for row in starts_of(finished)]
    assert [(retraining.window, retraining.ratio) for retraining in retrainings] == [(1, 1.25)] * 2
    # one start after the first window began: 0.9 s of 3.9 and none of it late
    assert {(start.tenant, start.count, start.hidden) for start in starts} == {
        ("cameras", 1, 1.0),
        ("all", 1, 1.0),
    }
    reported = [row for finished in runs for row in reported_of(finished)]
    assert [(row.tenant, row.is_true) for row in reported] == [("photos", True), ("photos", False)]
    assert [row.goodput for row in reported] == pytest.approx([816.9, 816.9])
    assert "within 2%: 1 of 2" in reported_table(reported).caption
    assert replace(reported[1], goodput=None).is_true
    shown = page(runs, rows, retrainings, starts, reported)
    titles = [section.title for section in shown.sections]
    assert titles[:5] == [
        *("Comparison", "Live and simulated", "What was lost to what"),
        *("Reported and counted", "Planned and taken"),
    ]
    assert sum("Planned and held" in title for title in titles) == 2
    assert len({section.anchor for section in shown.sections}) == len(titles)
    ParsedPage(page_text(shown, ""))


@pytest.mark.parametrize("share_s", [None, 3.0])
def test_a_retraining_that_outlasts_its_run_is_simulated_as_long(
    tmp_path: Path, share_s: float | None
) -> None:
    """On one instance, or continued on another one after some seconds."""
    live = read_live(BENCHMARKS.parent / "examples" / "live.yaml")
    path = tmp_path / "records.db"
    began_s = 1000.0 + WINDOW_S + 2.0
    parts = [(began_s, None)] if share_s is None else [(began_s, share_s), (began_s + 5.0, None)]
    units = tuple(
        UnitRecord(
            f"1g@{number}#9",
            at_s,
            number,
            1,
            "cameras",
            "retraining",
            "training",
            None if s is None else at_s + s,
        )
        for number, (at_s, s) in enumerate(parts)
    )
    made = Made(began_s=1000.0, ends=True, more=units)
    run = LiveRun(read_records(path, write_run(path, made)), {})
    (training,) = _trainings(live.scenario, live.tenant("cameras"), 1, [run], is_own=True)
    ran_s = run.ended_s - units[-1].from_s + (share_s or 0.0)
    assert training.seconds == pytest.approx(ran_s + live.scenario.slot_s)


def test_a_run_is_simulated_ahead_with_the_retraining_on_the_nearest_size(tmp_path: Path) -> None:
    live = read_live(BENCHMARKS.parent / "examples" / "live.yaml")
    began_s, runs = 1000.0 + WINDOW_S + 2.0, []
    for gpcs, seconds in ((4, 3.0), (1, 8.0)):
        path = tmp_path / str(gpcs) / "records.db"
        unit = UnitRecord(
            *(f"{gpcs}g@0#9", began_s, 0, gpcs, "cameras", "retraining", "training"),
            began_s + seconds,
        )
        made = Made(began_s=1000.0, ends=True, more=(unit,))
        counted: Any = {tenant.name: {"in_time": [], "goodput": []} for tenant in live.tenants}
        sent = {"windows": [], "seconds": counted}
        runs.append(LiveRun(read_records(path, write_run(path, made)), sent))
    ours, (large, small) = policy("migrator"), runs
    lent = replace(small.records.run, about={**small.records.run.about, "lends": True})
    simulated = replace(small, records=replace(small.records, run=lent))
    again = measured_run(live, ours, simulated, [large])
    ahead = measured_run(live, ours, large, [small], arrivals=simulated)
    assert again.lends
    assert ahead.lends
    curve, sms = live.tenant("cameras").training_s(1), live.scenario.board.sms_of
    took = [e.durations.training_s(1, "cameras", curve, sms(1)) for e in (again, ahead)]
    assert took == [8.0, 8.0]
    assert ahead.durations.training_s(1, "cameras", curve, sms(4)) == pytest.approx(3.0)
    scaled = again.durations.training_s(1, "cameras", curve, sms(4))
    assert scaled == pytest.approx(8.0 * curve.at(sms(4)) / curve.at(sms(1)))


def test_an_answer_is_the_mean_of_the_views_and_a_training_sees_one() -> None:
    images = torch.rand(2, 3, 16, 16)
    seen = views(images)
    assert seen.shape == (2 * VIEWS, 3, 16, 16)
    torch.testing.assert_close(seen[1], seen[0].flip(-1))
    model = ManyViewsSmall.build(4, 0, 16)
    model.seen[:] = True
    inputs = model.example(2)
    many = model.infer(inputs)
    rows = [model.infer(inputs[[row]]) for row in range(2)]
    np.testing.assert_allclose(many, np.concatenate(rows), rtol=1e-4, atol=1e-5)
    model.expect_training(10)
    assert not np.allclose(model.infer(inputs), many)
