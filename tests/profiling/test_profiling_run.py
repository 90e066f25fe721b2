"""The whole flow on a CPU, with real processes: measured, resumed, left out, written, read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from migrator.core.catalogue import Board
from migrator.core.errors import InputError, MigratorError
from migrator.profiling import run as profiling_run
from migrator.profiling.drivers import Cpu, Driver
from migrator.profiling.measurements import Measurement, Study, measurements
from migrator.profiling.results import Results
from migrator.profiling.run import Profiled, profile
from migrator.workload.profile_file import read_profile, read_profiles

TINY, PLAIN = "support.tiny_model:Tiny", "support.profiled_models:Plain"
GREEDY, FATAL = "support.profiled_models:Greedy", "support.profiled_models:Fatal"
QUICK = 0.05


def cpu(board: Board) -> Driver:
    return Cpu.find(0, board)


def planned(
    board: Board, models: list[str], batches: tuple[int, ...] = (1, 4), **options: Any
) -> list[Measurement]:
    """Everything, but only one cold start: each takes seconds."""
    listed = measurements(board, models, list(batches), pace=QUICK, **options)
    starts = of(Study.START, listed)
    return [measurement for measurement in listed if measurement not in starts[1:]]


def of(study: Study, listed: list[Measurement]) -> list[Measurement]:
    return [measurement for measurement in listed if measurement.study is study]


def latencies(board: Board, models: list[str], batches: list[int]) -> list[Measurement]:
    return of(Study.LATENCY, measurements(board, models, batches, pace=QUICK))


def everything(board: Board) -> list[Measurement]:
    """Of the greedy one only what has to be left out.

    Neighbours need no torch: each process takes more than a second to prepare for training with it.
    """
    plain = planned(board, [PLAIN], (1,))
    return [
        *latencies(board, [GREEDY], [1, 4]),
        *planned(board, [TINY]),
        *(measurement for measurement in plain if measurement.study is not Study.START),
        *of(Study.INTERFERENCE, planned(board, [PLAIN], (1,), interference=True)),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiled")


@pytest.fixture(scope="module")
def done(folder: Path, board: Board) -> Profiled:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        results = Results(folder / "rows.jsonl", {})
        return profile(everything(board), cpu(board), results, folder / "found.json")


def by_model(done: Profiled) -> dict[str, dict[str, Any]]:
    return {entry["model"]: entry for entry in done.profiles}


def test_the_file_is_read_back_as_profiles(done: Profiled, folder: Path) -> None:
    profiles = read_profiles(folder / "found.json")
    assert [read.model for read in profiles] == [GREEDY, TINY, PLAIN]
    assert read_profile(folder / "found.json", PLAIN).model == PLAIN
    for read, entry in zip(profiles, done.profiles, strict=True):
        for batch, curve in read.latency_ms.items():
            assert [sms for sms, _ in curve.points] == [10]
            p50 = entry["latency_ms"][str(batch)]["10"]
            p95, p99 = (entry[f"latency_p{part}_ms"][str(batch)]["10"] for part in (95, 99))
            assert 0 < p50 <= p95 <= p99
    with pytest.raises(InputError, match="profiles: which is meant is not said; name support"):
        read_profile(folder / "found.json")
    with pytest.raises(InputError, match="profiles: none is of 'other'"):
        read_profile(folder / "found.json", "other")


def test_training_and_start_are_measured_in_their_parts(done: Profiled) -> None:
    tiny, plain = by_model(done)[TINY], by_model(done)[PLAIN]
    assert tiny["training_ms"].keys() == {"10"}
    assert tiny["training_memory_mib"] > 0
    assert tiny["worker_held_mib"].keys() == {"1", "4"}
    for held_mib in (tiny["retraining_held_mib"], tiny["estimate_held_mib"]):
        assert held_mib >= tiny["worker_held_mib"]["1"] > 0
    assert tiny["training_ratio"] > 0
    assert plain["training_ms"].keys() == {"10"}
    parts = tiny["overhead_parts_s"]
    assert parts["import_s"] > parts["copy_s"] >= 0
    start_s = parts["python_s"] + parts["import_s"] + parts["build_s"]
    assert tiny["overhead"]["start_s"] == pytest.approx(start_s, abs=2e-3)
    assert "start_s and load_s assumed" in plain["provenance"]
    assert "start_s" not in tiny["provenance"]
    assert tiny["memory_mib"]["4"] > 0


def test_what_does_not_fit_is_left_out_with_a_sentence(done: Profiled) -> None:
    greedy = by_model(done)[GREEDY]
    assert greedy["latency_ms"].keys() == {"1"}
    said = (
        f"{GREEDY}: inference of 4 on 10 SMs left out, it does not fit the 1 GiB of that instance"
    )
    assert said in greedy["left_out"]
    assert said in done.faults
    assert "training_ratio assumed" in greedy["provenance"]


def test_neighbours_are_measured_beside_one_another(done: Profiled, folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    beside = [row for row in rows if row.get("study") == "interference" and "jobs" in row]
    assert {len(row["jobs"]) for row in beside} == {1, 2}
    for row in beside:
        assert all(job["p50_ms"] > 0 and job["finite"] for job in row["jobs"])
    profiles = by_model(done)
    assert "interference" in profiles[TINY]["provenance"]
    plain = profiles[PLAIN]
    assert "interference" not in plain["provenance"]
    assert plain["interference"] >= 0
    assert plain["contention"] >= 0


def test_a_second_run_measures_nothing_and_writes_the_same(
    done: Profiled, folder: Path, board: Board
) -> None:
    todo = everything(board)
    again = profile(todo, cpu(board), Results(folder / "rows.jsonl", {}), folder / "again.json")
    assert (again.measured, again.left, again.taken_over) == (0, 0, len(todo))
    assert again.profiles == done.profiles


def test_after_a_crash_the_next_run_goes_on(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling = tmp_path / "falling"
    falling.touch()
    monkeypatch.setenv("MIGRATOR_TEST_FATAL", str(falling))
    todo = latencies(board, [TINY, FATAL], [1])
    rows, out = tmp_path / "rows.jsonl", tmp_path / "found.json"
    first = profile(todo, cpu(board), Results(rows, {"gpu": "a"}), out)
    assert (first.measured, first.left) == (1, 1)
    assert "lost, a worker process exited with 3: the sky is falling" in first.faults[0]
    assert [entry["model"] for entry in first.profiles] == [TINY]
    falling.unlink()
    with rows.open("a") as file:
        file.write('{"key": "cut o')
    second = profile(todo, cpu(board), Results(rows, {"gpu": "a"}), out)
    assert (second.measured, second.taken_over, second.left) == (1, 1, 0)
    assert [entry["model"] for entry in second.profiles] == [TINY, FATAL]
    assert not second.faults
    with pytest.raises(InputError, match=r"another GPU, driver or version; give --fresh"):
        Results(rows, {"gpu": "b"})
    assert not Results(rows, {"gpu": "b"}, fresh=True).rows


def test_several_losses_in_a_row_end_the_run_and_its_workers(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_TEST_FATAL", os.fspath(tmp_path))
    monkeypatch.setattr(profiling_run, "MOST_LOST", 2)
    todo = latencies(board, [FATAL], [1, 4, 8])
    results = Results(tmp_path / "rows.jsonl", {})
    with pytest.raises(MigratorError, match=r"2 workers were lost in a row, .* run the same"):
        profile(todo, cpu(board), results, tmp_path / "found.json")
    assert not (tmp_path / "found.json").exists()
    assert not any(results.has(measurement.key) for measurement in todo)


def test_a_model_that_does_not_exist_ends_the_run_before_it_begins(
    tmp_path: Path, board: Board
) -> None:
    todo = planned(board, [TINY, "support.tiny_model:Huge"])
    results = Results(tmp_path / "rows.jsonl", {})
    with pytest.raises(InputError, match=r"support.tiny_model has no Huge"):
        profile(todo, cpu(board), results, tmp_path / "found.json")
    assert list(results.rows) == ["about"]


def test_without_time_nothing_is_started(tmp_path: Path, board: Board) -> None:
    results = Results(tmp_path / "rows.jsonl", {})
    with pytest.raises(MigratorError, match="no time to measure anything; raise --budget-s"):
        profile(planned(board, [TINY]), cpu(board), results, tmp_path / "x.json", budget_s=0.01)
    assert list(results.rows) == ["about end"]
