"""Seconds of a live run: written when they are over, and again when their last answers came."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live_scenarios import live_scenario

from migrator.control.tenant_state import FEWEST_LABELS, tenant_state_of
from migrator.control.window_clock import WindowClock
from migrator.live.second_rows import SecondRows
from migrator.records.expected_arrivals import ExpectedArrivals
from migrator.records.rows import SecondRecord
from migrator.records.store import Records, read_records
from migrator.serving.queue import QueueSettings
from migrator.serving.router import Router

START = 1000
"""The router's clock when the first window began."""


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[SecondRows]:
    live = live_scenario(tmp_path)
    clock = WindowClock(20.0, 1.0, now_s=lambda: START + 5.0)
    clock.started_s = clock.began_s = float(START)
    tenants = {
        own.name: tenant_state_of(served, own, 1.0, 0.5)
        for served, own in zip(live.scenario.tenants, live.tenants, strict=True)
    }
    records = Records(
        tmp_path / "records.db", scenario="s", board="b", driver="d", policy="p", seed=0
    )
    router = Router({name: QueueSettings(name, 0.1, 4, 100) for name in tenants})
    yield SecondRows(records, router, clock, ExpectedArrivals(clock))
    records.close()


def put(rows: SecondRows, second: int, *, warming: bool = False) -> None:
    (counted,) = rows.router.counts["a"].seconds(START + second, START + second + 1)
    rows.put("a", counted, warming=warming)


def written(rows: SecondRows) -> list[SecondRecord]:
    rows.records.flush()
    return list(read_records(rows.records.path).seconds)


def test_a_second_is_written_again_once_its_requests_are_answered(rows: SecondRows) -> None:
    counts = rows.router.counts["a"]
    counted = counts.receive(START + 0.9, 3)
    counts.answer(counted, 1, 0.01, late=False)
    put(rows, 0)
    assert written(rows) == [SecondRecord("a", 0, 3, 1)]
    counts.answer(counted, 1, 0.2, late=True)
    counts.fail(counted, 1)
    rows.settle(START + 1)
    assert written(rows) == [SecondRecord("a", 0, 3, 1, 1, failed=1)]


def test_what_was_lost_while_an_instance_was_cold_is_counted_once(rows: SecondRows) -> None:
    counts = rows.router.counts["a"]
    counted = counts.receive(START + 0.5, 4)
    counts.drop(counted, 2)
    put(rows, 0, warming=True)
    assert rows.reconfiguring["a"] == 2
    counts.answer(counted, 2, 0.2, late=True)
    rows.settle(START + 1)
    assert rows.reconfiguring["a"] == 4
    assert written(rows)[0].reconfiguring == 4
    counts.drop(counts.receive(START + 1.5, 1), 1)
    put(rows, 1)
    assert rows.reconfiguring["a"] == 4


def test_labels_of_its_window_say_how_many_are_wrong(rows: SecondRows) -> None:
    counts = rows.router.counts["a"]
    counted = counts.receive(START + 0.5, 40)
    counts.answer(counted, 40, 0.01, late=False)
    put(rows, 0)
    assert written(rows)[0].wrong is None
    for number in range(FEWEST_LABELS):
        counts.judge(counted, correct=number % 4 > 0)
    counts.begin_window()
    rows.settle(START + 1)
    assert written(rows)[0].wrong == 10.0
    assert not rows._unsettled
