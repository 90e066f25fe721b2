"""The grid of live settings: its scenarios, what is computed from rows, and peers that lend."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.gpu.live import PROFILES, adapt, asked_for, set_rates
from benchmarks.live_cells import PROFILE, TENANTS, Cell, cells, documents
from benchmarks.live_daemon import write_scenario
from benchmarks.live_grid import (
    ALL,
    OWN,
    PEERS,
    STATIC,
    Row,
    policies_of,
    results,
    rows_in,
    scenario_of,
    simulate,
    summary,
    table,
)
from migrator.forecast.selection import forecaster
from migrator.policies.policy import lends
from migrator.policies.registry import policy
from migrator.simulation.run import run
from migrator.workload.live import read_live

NAMES = ["uneven-mixed-0.8-30", "two-bursty-1.1-60"]


def test_cells_are_all_combinations_in_an_order_that_stays() -> None:
    assert len(set(cells())) == 4 * 3 * 3 * 3
    assert [cell.name for cell in cells()[:2]] == ["three-steady-0.5-60", "three-steady-0.5-30"]


@pytest.mark.parametrize("name", [*NAMES, "three-ten-windows"])
def test_every_scenario_can_be_served(tmp_path: Path, name: str) -> None:
    document = documents()[name]
    loads = [tenant["arrivals"]["load"] for tenant in document["tenants"]]
    adapt(document, asked_for(["--out", "x"]))
    set_rates(document, PROFILE)
    (tmp_path / PROFILES).write_bytes(PROFILE.read_bytes())
    live = read_live(write_scenario(tmp_path / "live.yaml", document))
    kind = name.partition("-")[0]
    assert len(live.tenants) == len(loads) == len(TENANTS[kind])
    assert live.scenario.windows == (10 if "ten" in name else 4)
    assert live.scenario.board.is_of_shares
    if kind == "uneven" and "0.8" in name:
        assert loads == [0.9, 0.3]


def test_a_retraining_takes_its_part_of_a_window_on_a_third_of_the_board() -> None:
    scenario = scenario_of(Cell("three", "mixed", 0.8, 30), 0)
    for tenant in scenario.tenants:
        (seconds,) = {drift.seconds for drift in tenant.drifts[:4]}
        assert seconds is not None
        assert seconds.at(scenario.board.sms / 3) == pytest.approx(0.3 * scenario.window_s, rel=0.1)


def test_rows_are_kept_and_not_run_again(tmp_path: Path) -> None:
    keep, cell = tmp_path / "rows.jsonl", Cell("two", "steady", 0.5, 15)
    for lending, chosen in policies_of(cell, 0):
        layout = chosen.name if chosen.name.startswith("split") else None
        row = Row(cell.name, 0, lending, STATIC if layout else chosen.name, layout, {}, {})
        if (lending, chosen.name) != (OWN, "equal-mig"):
            with keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    before = len(rows_in(keep))
    assert len(simulate([cell], [0], keep, 0.0, 1)) == before
    rows = simulate([cell], [0], keep, 60.0, 1)
    assert (rows[-1].policy, rows[-1].lending) == ("equal-mig", OWN)
    assert 0.3 < rows[-1].share < 1
    assert rows_in(keep) == rows


def _row(policy: str, goodput: float, lending: str = OWN, layout: str | None = None) -> Row:
    received = {"a": 100, "b": 300}
    return Row("cell", 0, lending, policy, layout, received, {"a": 20.0, "b": goodput - 20.0})


def test_leads_are_over_the_best_peer_and_the_best_static_split() -> None:
    rows = [_row("migrator", 220.0), *(_row(peer, 200.0) for peer in PEERS)]
    rows += [_row(STATIC, 210.0, layout="x"), _row(STATIC, 225.0, layout="y")]
    rows += [_row("equal-mig", 230.0, ALL), _row(STATIC, 215.0, ALL, layout="x")]
    (own,), (lent,) = results(rows, OWN), results(rows, ALL)
    assert (own.best, lent.best) == (STATIC, "equal-mig")
    assert own.lead(STATIC) == pytest.approx(220 / 225 - 1)
    assert lent.lead("equal-mig") == pytest.approx(220 / 230 - 1)
    assert lent.lead(STATIC) == pytest.approx(220 / 215 - 1)
    assert lent.lead("ekya") == own.lead("ekya") == pytest.approx(0.1)
    found = summary([own])
    assert found["below"] == [("cell, seed 0", STATIC, round(220 / 225 - 1, 4))]
    assert found["worst_share"]["migrator"] == 0.2
    assert "| cell | 0 | 55.0% |" in list(table([own]))[-1]


def test_a_cell_without_all_policies_is_not_counted() -> None:
    assert results([_row("migrator", 200.0), _row("ekya", 200.0)], OWN) == []
    own = [_row(name, 200.0) for name in ("migrator", *PEERS)]
    lent = [replace(_row("equal-mig", 200.0, ALL), cell="another")]
    assert len(results([*own, *lent], OWN)) == 1
    splits = [_row(STATIC, 100.0, layout=layout) for layout in ("x", "y")]
    other = [replace(row, cell="other") for row in (*own, splits[0])]
    assert [result.cell for result in results([*own, *splits, *other], OWN)] == ["cell"]
    assert results([*own, *lent], ALL) == []


@pytest.mark.parametrize(
    ("path", "peer"),
    [
        ("benchmarks.gpu.lending:EqualMig", "equal-mig"),
        ("benchmarks.gpu.lending:ParisReconfiguring", "paris-reconfiguring"),
    ],
)
def test_a_peer_with_lending_answers_more_and_decides_alike(path: str, peer: str) -> None:
    scenario = scenario_of(Cell("two", "bursty", 1.1, 30), 0)
    lending, own = pickle.loads(pickle.dumps(policy(path))), policy(peer)
    assert lends(lending, scenario.board)
    assert not lends(own, scenario.board)
    outcomes = [run(scenario, chosen, forecaster("last-mean")) for chosen in (lending, own)]
    slots = [[window.slots for window in outcome.windows] for outcome in outcomes]
    assert slots[0] == slots[1]
    received, other = (outcome.tally for outcome in outcomes)
    assert received.goodput > 1.02 * other.goodput
