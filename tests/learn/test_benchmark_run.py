"""A whole run: rows that repeat, a folder to go on from, and what does not fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tiny_model import Tiny

from migrator.core.errors import InputError
from migrator.core.training import Layers
from migrator.learn import checkpoint
from migrator.learn.benchmark_run import BenchmarkResult, BenchmarkRun, BenchmarkSettings, WindowRow
from migrator.learn.benchmarks.benchmark import Material, Origin
from migrator.learn.checkpoint import Checkpoints, RunFolder
from migrator.learn.registry import benchmark
from migrator.learn.retraining import RetrainingSettings

TINY = "support.tiny_model:Tiny"
SETTINGS = BenchmarkSettings(
    "nc-synthetic", TINY, RetrainingSettings(epochs=3, batch=32), memory=30, per_class=60
)


@pytest.fixture(autouse=True)
def checkpoints_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that is too busy to write them quickly."""
    monkeypatch.setattr(checkpoint, "FREE_S", math.inf)


@pytest.fixture(scope="module")
def material() -> Material:
    return benchmark("nc-synthetic").load(Origin())


@pytest.fixture(scope="module")
def straight(material: Material) -> BenchmarkResult:
    return BenchmarkRun(SETTINGS, material).run(2)


@pytest.fixture
def warnings() -> list[str]:
    return []


def timeless(rows: tuple[WindowRow, ...]) -> list[WindowRow]:
    return [replace(row, retraining_s=0, estimation_s=0) for row in rows]


class CutOffError(Exception):
    pass


def cut_off_after(steps: int) -> Any:
    counted = itertools.count(1)

    @contextmanager
    def progress(_steps: int, _what: str) -> Iterator[Callable[[], None]]:
        def step() -> None:
            if next(counted) == steps:
                raise CutOffError

        yield step

    return progress


def test_a_run_says_what_every_window_brought(straight: BenchmarkResult) -> None:
    assert [row.window for row in straight.rows] == [1, 2]
    assert [row.classes for row in straight.rows] == [4, 6]
    assert straight.weights == "random, seed 0"
    assert straight.source == "made from seed 0"
    for row in straight.rows:
        assert row.accuracy_new_post > row.accuracy_new_pre + 0.2
        assert row.accuracy_post >= row.accuracy_pre
        assert row.accuracy_estimated >= row.accuracy_pre
        assert row.error == row.accuracy_estimated - row.accuracy_post
        assert len(row.curve) == 3
    errors = [abs(row.error) for row in straight.rows]
    assert straight.median_error == pytest.approx(sum(errors) / 2)
    assert max(errors) < 0.2
    assert straight.estimation_part is not None


@pytest.mark.parametrize("steps", [2, 30])
def test_a_run_that_was_cut_off_goes_on_to_the_same_rows(
    material: Material, straight: BenchmarkResult, tmp_path: Path, warnings: list[str], steps: int
) -> None:
    """Cut off in pre-training and in the second window."""
    folder = RunFolder(tmp_path / "run", warnings.append)
    with pytest.raises(CutOffError):
        BenchmarkRun(SETTINGS, material, folder=folder).run(2, cut_off_after(steps))
    again = BenchmarkRun(SETTINGS, material, folder=folder, resume=True).run(2)
    assert timeless(again.rows) == timeless(straight.rows)
    assert again.accuracy_pretrained == straight.accuracy_pretrained
    assert warnings == []
    assert not list((tmp_path / "run").glob("window-*"))


def test_a_damaged_checkpoint_costs_a_window_not_the_run(
    material: Material, straight: BenchmarkResult, tmp_path: Path, warnings: list[str]
) -> None:
    folder = RunFolder(tmp_path, warnings.append)
    BenchmarkRun(SETTINGS, material, folder=folder).run(1)
    (tmp_path / "course" / "000001.weights").write_bytes(b"half")
    again = BenchmarkRun(SETTINGS, material, folder=folder, resume=True).run(2)
    assert timeless(again.rows) == timeless(straight.rows)
    assert len(warnings) == 1
    assert "damaged; trying the one before it" in warnings[0]
    for path in (tmp_path / "course").glob("*.weights"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="all its checkpoints are damaged"):
        BenchmarkRun(SETTINGS, material, folder=folder, resume=True)


def test_a_folder_belongs_to_one_run(
    material: Material, tmp_path: Path, warnings: list[str]
) -> None:
    folder = RunFolder(tmp_path / "run", warnings.append)
    with pytest.raises(InputError, match="holds no run; leave --resume out"):
        BenchmarkRun(SETTINGS, material, folder=folder, resume=True)
    BenchmarkRun(SETTINGS, material, folder=folder).run(0)
    with pytest.raises(InputError, match="holds a run already; add --resume"):
        BenchmarkRun(SETTINGS, material, folder=folder)
    of_head = replace(SETTINGS.retraining, layers=Layers.HEAD)
    for other in (replace(SETTINGS, memory=31), replace(SETTINGS, retraining=of_head)):
        with pytest.raises(
            InputError, match=r"other settings, data or weights, listed in settings\.json"
        ):
            BenchmarkRun(other, material, folder=folder, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be created"):
        BenchmarkRun(SETTINGS, material, folder=RunFolder(tmp_path / "file" / "run", print))
    with pytest.raises(InputError, match="another process writes"):
        BenchmarkRun(SETTINGS, material, folder=RunFolder(tmp_path / "run", print), resume=True)
    folder.close()
    BenchmarkRun(SETTINGS, material, folder=RunFolder(tmp_path / "run", print), resume=True)


def test_a_run_goes_on_with_the_very_same_data_and_weights(
    material: Material, tmp_path: Path
) -> None:
    Tiny.build(10, 0).save(tmp_path / "weights")
    settings = replace(SETTINGS, weights=tmp_path / "weights")
    folder = RunFolder(tmp_path / "run", print)
    BenchmarkRun(settings, material, folder=folder)
    BenchmarkRun(settings, material, folder=folder, resume=True)
    brighter = replace(material.held_out, inputs=material.held_out.inputs ^ 1)
    other = replace(material, held_out=brighter)
    with pytest.raises(InputError, match="other settings, data or weights"):
        BenchmarkRun(settings, other, folder=folder, resume=True)
    Tiny.build(10, 1).save(tmp_path / "weights")
    with pytest.raises(InputError, match="other settings, data or weights"):
        BenchmarkRun(settings, material, folder=folder, resume=True)


def test_a_new_run_takes_up_nothing_it_finds(material: Material, tmp_path: Path) -> None:
    left = "window-1"
    Checkpoints(tmp_path / left, print).write(0, Tiny.build(10, 0), {"curve": [], "seconds": 0})
    with pytest.raises(InputError, match=f"holds {left} of an unknown run"):
        BenchmarkRun(SETTINGS, material, folder=RunFolder(tmp_path, print))
    assert not (tmp_path / "settings.json").exists()


def test_a_run_of_a_model_that_diverges_says_so(material: Material) -> None:
    hot = replace(SETTINGS, model="support.tiny_model:Hot")
    result = BenchmarkRun(hot, material).run(1)
    assert not result.rows[0].adopted
    assert [stop.partition(":")[0] for stop in result.stops] == ["pre-training", "window 1"]
    assert all("the loss became" in stop for stop in result.stops)


def test_a_run_of_pre_training_alone_gives_weights_to_begin_with(
    material: Material, straight: BenchmarkResult, tmp_path: Path
) -> None:
    run = BenchmarkRun(SETTINGS, material)
    result = run.run(0)
    assert result.rows == ()
    assert result.accuracy_pretrained > 0.6
    assert (result.median_error, result.estimation_part) == (None, None)
    run.model.save(tmp_path / "weights")
    begun = BenchmarkRun(replace(SETTINGS, weights=tmp_path / "weights"), material)
    assert begun.weights == "loaded from weights"
    assert begun.run(0).accuracy_pretrained > straight.accuracy_pretrained - 0.05
    with pytest.raises(InputError, match="no such file"):
        BenchmarkRun(replace(SETTINGS, weights=tmp_path / "absent"), material)


def test_a_class_of_ones_own_needs_nothing_of_ours(
    material: Material, tmp_path: Path, warnings: list[str]
) -> None:
    own = replace(SETTINGS, model="support.means_model:Means")
    folder = RunFolder(tmp_path, warnings.append)
    BenchmarkRun(own, material, folder=folder).run(1)
    result = BenchmarkRun(own, material, folder=folder, resume=True).run(2)
    assert result.weights == "the class does not say"
    for row in result.rows:
        assert row.accuracy_new_post > row.accuracy_new_pre + 0.2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "small-text"}, "small-text reads text, but nc-synthetic consists of images"),
        ({"pixels": 32}, "does not take a size"),
        ({"shuffle": True}, "generated in the order of its classes"),
        ({"benchmark": "nc-cifar"}, "did you mean nc-cifar-10"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    material: Material, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        BenchmarkRun(replace(SETTINGS, **changed), material)
