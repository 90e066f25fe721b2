"""Files of simulated runs: everything the outcome says, and the same every time."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.live_records import Made, write_run
from support.scenarios import Fixed, Flat, drift, scenario, serves, tenant, trains
from support.simulated_records import recorded

from migrator.core.errors import InputError, NotWrittenError
from migrator.core.problem import Holding
from migrator.core.scenario import Scenario
from migrator.records.outcome import RunOutcome
from migrator.records.rows import RunRecords
from migrator.records.simulated import BEGAN_S, write_simulations
from migrator.records.store import Records, read_records, read_runs
from migrator.simulation.run import run

# for some slots nothing is held for cameras
pytestmark = pytest.mark.filterwarnings("ignore::migrator.core.errors.PolicyWarning")

PHOTOS, CAMERAS, TRAINS = serves("photos", 0, 3), serves("cameras", 4, 2), trains("photos", 4, 3)
MOVED = serves("cameras", 4, 3)
SLOTS: tuple[tuple[Holding, ...], ...] = (
    *([(PHOTOS, CAMERAS)] * 3),
    *([(PHOTOS, TRAINS)] * 5),
    *([(PHOTOS, MOVED)] * 2),
)


def made(*, windows: int = 2, slot_s: float = 1.0) -> Scenario:
    learned = (drift(seconds=4.0),) * windows
    return scenario(
        tenant("photos", [20] * 10 * windows, drifts=learned),
        tenant("cameras", [8] * 10 * windows),
        windows=windows,
        slot_s=slot_s,
    )


@pytest.fixture(scope="module")
def outcome() -> RunOutcome:
    return run(made(), Fixed(*SLOTS), Flat(), record=True)


@pytest.fixture
def given(outcome: RunOutcome) -> RunRecords:
    assert outcome.records is not None
    return outcome.records


@pytest.fixture
def records(given: RunRecords, tmp_path: Path) -> RunRecords:
    write_simulations(tmp_path / "run.db", [given])
    return read_records(tmp_path / "run.db")


def test_a_file_has_what_the_run_has(given: RunRecords, records: RunRecords) -> None:
    assert records == given
    assert [len(rows) > 0 for rows in (given.seconds, given.units, given.plans)] == [True] * 3


def test_every_request_is_in_the_records(outcome: RunOutcome, records: RunRecords) -> None:
    assert (records.run.driver, records.run.policy) == ("simulated", "fixed")
    assert records.run.ended_s == BEGAN_S + 20.0
    for window in outcome.windows:
        for served in window.tenants:
            (row,) = [
                row
                for row in records.tenant_windows
                if (row.window, row.tenant) == (window.window, served.tenant)
            ]
            assert row.goodput == pytest.approx(served.tally.goodput)
            assert row.in_time == round(served.tally.in_time)
            assert (row.late, row.dropped) == (served.tally.late, served.tally.dropped)
            assert row.while_reconfiguring == served.tally.while_reconfiguring
            first = window.window * 10
            seconds = [
                second
                for second in records.seconds
                if second.tenant == served.tenant and first <= second.second < first + 10
            ]
            assert sum(second.received for second in seconds) == served.tally.received
            assert {second.in_time for second in seconds} == {None}


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_the_same_run_writes_the_same_records(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        write_simulations(tmp_path / name, [recorded(made(), Fixed(*SLOTS))] * 2)
    assert dump(tmp_path / "one.db") == dump(tmp_path / "two.db")
    assert [row.run for row in read_runs(tmp_path / "one.db")] == [1, 2]
    first, second = (read_records(tmp_path / "one.db", seed) for seed in (1, 2))
    assert first.seconds == second.seconds
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "two.db"]


def test_records_for_which_there_is_no_room_are_refused_and_leave_no_file(
    given: RunRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NotWrittenError("the disk is full")

    monkeypatch.setattr(Records, "_write", full)
    with pytest.raises(NotWrittenError, match=r"--records: cannot write .*run\.db"):
        write_simulations(tmp_path / "run.db", [given])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_may_not_grow_is_refused_and_leaves_nothing(
    given: RunRecords, tmp_path: Path, share: float
) -> None:
    write_simulations(tmp_path / "whole.db", [given])
    most = int(share * (tmp_path / "whole.db").stat().st_size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(NotWrittenError, match=r"--records: .*run\.db.*another file"):
            write_simulations(tmp_path / "run.db", [given])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.db"]


def test_records_of_simulations_are_replaced_and_others_never(
    given: RunRecords, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    write_simulations(path, [given])
    write_simulations(path, [given])
    assert len(read_runs(path)) == 1
    live = tmp_path / "live" / "records.db"
    write_run(live, Made(ends=True))
    (tmp_path / "notes.db").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="records of a live run"):
        write_simulations(live, [given])
    with pytest.raises(InputError, match="no file of records"):
        write_simulations(tmp_path / "notes.db", [given])
    with pytest.raises(InputError, match=r"must end in \.db"):
        write_simulations(tmp_path / "run.html", [given])
    assert (tmp_path / "notes.db").read_text(encoding="utf-8") == "mine"
