"""What the recorder makes of a simulated run: the units as the executor had them.

A new instance takes 0.5 s to create and 1 s to warm, a destroyed one no time. Requests take
milliseconds, and so does draining.
"""

from __future__ import annotations

import pytest
from support.scenarios import Fixed, Flat, drift, scenario, serves, share, tenant, trains
from support.simulated_records import recorded, spans, states

from migrator.core.problem import Holding
from migrator.policies.policy import Sharing
from migrator.records.rows import RunRecords
from migrator.records.runs import recorded_run
from migrator.records.simulated import BEGAN_S
from migrator.report.page import Use
from migrator.report.slices import held_chart
from migrator.simulation.run import run

Slot = tuple[Holding, ...]
BEFORE_S = 4.0
"""When the second layout is due."""


def moved(first: Slot, then: Slot, sharing: Sharing = Sharing.MIG) -> RunRecords:
    """A window in which one layout follows the other after four slots."""
    this = scenario(tenant("a", [20] * 12), tenant("b", [8] * 12), window_s=12.0)
    return recorded(this, Fixed(*([first] * 4), *([then] * 8), sharing=sharing))


def uses(records: RunRecords) -> set[tuple[str | None, Use, float]]:
    """Tenant, use and start of what the page draws as held."""
    run = recorded_run(records)
    chart = held_chart(run, run.windows[0], H200)
    return {(slab.tenant, slab.use, slab.start) for slab in chart.slabs}


H200 = scenario(tenant("a", [1])).board


def test_an_instance_that_waits_for_slices_starts_late() -> None:
    records = moved((serves("a", 0, 3), serves("b", 4, 3)), (serves("a", 0, 2), serves("b", 2, 2)))
    unit_spans = spans(records, "2g@2")
    assert [state for *_, state in unit_spans] == ["creating", "warming", "ready"]
    # its slices are used until the slot begins, so it serves one and a half seconds after that
    assert unit_spans[2][0] == pytest.approx(BEFORE_S + 1.5, abs=0.05)
    (start,) = [row for row in records.units if row.unit.startswith("2g@2") and row.parts_s]
    assert start.parts_s["create_s"] == pytest.approx(0.5)
    assert start.parts_s["warm_s"] == pytest.approx(1.0)
    assert start.parts_s["late_s"] == pytest.approx(1.5, abs=0.05)
    assert (None, Use.CREATED, 2) in uses(records)
    assert recorded_run(records).overheads_s["b"] == pytest.approx(1.5)


def test_a_temporary_instance_is_in_the_records_though_no_plan_has_it() -> None:
    # b's only instance is in the way of the next one
    records = moved((serves("a", 0, 2), serves("b", 4, 2)), (serves("a", 0, 2), serves("b", 4, 3)))
    assert {block["start"] for plan in records.plans for block in plan.blocks} == {0, 4}
    unit_spans = spans(records, "2g@2")
    assert [(tenant, state) for *_, tenant, state in unit_spans] == [
        *((None, "creating"), ("b", "warming"), ("b", "ready"), ("b", "draining")),
    ]
    # it serves while the other is replaced
    assert unit_spans[2][0] <= spans(records, "2g@4")[-1][0]
    assert unit_spans[2][1] >= spans(records, "3g@4")[-1][0]
    assert {("b", Use.SERVING, 2), ("b", Use.DRAINING, 2)} <= uses(records)


def test_a_gap_in_serving_is_in_the_records() -> None:
    # the board is full, so nobody can be served elsewhere while both change places
    records = moved((serves("a", 0, 4), serves("b", 4, 3)), (serves("b", 0, 4), serves("a", 4, 3)))
    gap_s = BEFORE_S + 0.5
    assert states(records, gap_s) == {(0, 4, "b", "warming"), (4, 3, "a", "warming")}
    assert {state for *_, state in states(records, BEFORE_S - 0.5)} == {"ready"}
    assert {state for *_, state in states(records, BEFORE_S + 1.5)} == {"ready"}
    assert {("a", Use.WARMING, 4), ("b", Use.WARMING, 0)} <= uses(records)


def test_a_share_drains_once_its_successor_is_warm() -> None:
    halves, quarters, other = share("a", 50.0), share("a", 25.0), share("b", 40.0)
    first = [(halves, other)] * 8
    this = scenario(tenant("a", [20] * 16), tenant("b", [8] * 16), window_s=16.0)
    slots = (*first, *([(quarters, other)] * 8))
    records = recorded(this, Fixed(*slots, sharing=Sharing.MPS))
    assert {row.start for row in records.units} == {None}
    warmed = next(at for at, _, _, state in spans(records, "25%") if state == "ready")
    (drained,) = [span for span in spans(records, "50%") if span[3] == "draining"]
    assert warmed <= drained[0] == 8.0 < drained[1] < 8.1


def test_a_retraining_has_its_durations_and_its_versions() -> None:
    serving, training = serves("a", 0, 3), trains("a", 4, 3)
    this = scenario(tenant("a", [20] * 20, drifts=(drift(seconds=9.0),) * 2), windows=2)
    records = recorded(this, Fixed((serving, training)))
    first, second = [row for row in records.versions if row.number > 1]
    (begun,) = [
        row for row in records.units if row.state == "training" and row.from_s < BEGAN_S + 1
    ]
    assert begun.to_s == first.at_s < BEGAN_S + 10.0 < second.at_s
    assert (first.accuracy, first.adopted) == (0.9, True)
    row, profile = records.retrainings[0], drift(seconds=9.0).seconds
    assert profile is not None
    assert (row.window, row.phase, row.progress) == (0, "done", 1.0)
    # the start of its process, and what the profile says within the spread of durations
    assert row.parts_s["start_s"] == pytest.approx(1.0)
    assert row.taken_s == pytest.approx(first.at_s - begun.from_s - 1.0, abs=0.002)
    assert row.planned_s == pytest.approx(profile.at(H200.sms_of(3)), abs=0.002)
    # the plan holds its instance longer, the controller destroys it at once
    assert states(records, first.at_s - BEGAN_S + 1.0) == {(0, 3, "a", "ready")}


def test_recording_changes_nothing_that_is_decided() -> None:
    this = scenario(tenant("a", [20] * 20, drifts=(drift(seconds=9.0),) * 2), windows=2)
    slots = (serves("a", 0, 3), trains("a", 4, 3)), (serves("a", 0, 2),)
    plain, watched = (
        run(this, Fixed(*slots), Flat(), record=is_recorded) for is_recorded in (False, True)
    )
    assert plain.records is None
    untimed = [
        [(window.slots, window.tenants, window.fluid) for window in outcome.windows]
        for outcome in (plain, watched)
    ]
    assert untimed[0] == untimed[1]


def test_the_forecast_of_every_slot_is_that_of_the_decision_in_force() -> None:
    this = scenario(tenant("a", [20] * 10))
    policy = Fixed((serves("a", 0, 3),))  # it sees the true arrivals
    records = recorded(this, policy)
    assert [row.received for row in records.seconds] == [20] * 10
    assert {row.forecast_mean for row in records.seconds} == {20.0}
