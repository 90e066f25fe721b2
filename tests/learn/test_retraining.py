"""Retraining: learns new classes, keeps the old, repeats, goes on where it was cut off."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.tiny_model import Hot, Tiny

from migrator.core.errors import InputError
from migrator.core.training import Layers
from migrator.learn import checkpoint
from migrator.learn.benchmarks.benchmark import Origin, limit_samples, window_data
from migrator.learn.checkpoint import Checkpoints
from migrator.learn.model import Inputs, Labels, Model, Scores
from migrator.learn.registry import benchmark
from migrator.learn.retraining import (
    RetrainingSettings,
    accuracy,
    balanced_order,
    batches,
    best_epoch,
    retrain,
    steps_per_epoch,
)
from migrator.learn.samples import WindowData
from migrator.learn.zoo import SmallCnn

KNOWN = benchmark("nc-synthetic")
SETTINGS = RetrainingSettings(epochs=4, batch=32)
Pretrained = tuple[Model, WindowData, float]


@pytest.fixture(autouse=True)
def checkpoints_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that is too busy to write them quickly."""
    monkeypatch.setattr(checkpoint, "FREE_S", math.inf)


@pytest.fixture(scope="module")
def pretrained() -> Pretrained:
    material = limit_samples(KNOWN.load(Origin()), 100, 0)
    first, second = (window_data(KNOWN, material, scenario, 40, 0) for scenario in (0, 1))
    model, done = retrain(Tiny.build(10, 0), first, 0.0, SETTINGS)
    assert done.accuracy_after > 0.8
    return model, second, accuracy(model, second.held_out)


def no_warning(sentence: str) -> None:
    raise AssertionError(sentence)


def same(left: Model, right: Model, data: WindowData) -> bool:
    inputs = data.held_out.inputs[:50]
    return np.array_equal(left.infer(inputs), right.infer(inputs))


def test_new_classes_are_learned_and_old_ones_kept(pretrained: Pretrained) -> None:
    model, data, before = pretrained
    first = model.infer(data.held_out.inputs)
    new, done = retrain(model, data, before, SETTINGS)
    assert done.accuracy_new_before == 0
    assert done.accuracy_new_after > 0.6
    assert done.accuracy_after > before + 0.2
    assert done.adopted
    assert new is not model
    assert len(done.curve) == 4
    assert max(done.curve) == accuracy(new, data.validation)
    assert done.accuracy_after == accuracy(new, data.held_out)
    # the serving model was not touched
    np.testing.assert_array_equal(model.infer(data.held_out.inputs), first)


def test_a_worse_model_is_not_adopted(pretrained: Pretrained) -> None:
    model, data, _ = pretrained
    kept, done = retrain(model, data, 1.0, replace(SETTINGS, epochs=1))
    assert kept is model
    assert not done.adopted
    assert done.accuracy_after < 1 == done.accuracy_served


class CutOffError(Exception):
    pass


def cut_off_after(steps: int) -> Callable[[], None]:
    counted = itertools.count(1)

    def step() -> None:
        if next(counted) == steps:
            raise CutOffError

    return step


@pytest.mark.parametrize("damaged", [False, True])
def test_what_was_cut_off_goes_on_to_the_very_same_model(
    pretrained: Pretrained, tmp_path: Path, damaged: bool
) -> None:
    model, data, before = pretrained
    warnings: list[str] = []
    checkpoints = Checkpoints(tmp_path / "run", warnings.append)
    steps = steps_per_epoch(len(data.training), SETTINGS.batch)
    with pytest.raises(CutOffError):
        retrain(model, data, before, SETTINGS, checkpoints, cut_off_after(3 * steps - 2))
    if damaged:
        (tmp_path / "run" / "000001.weights").write_bytes(b"")
    counted = itertools.count()
    again, done = retrain(
        model, data, before, SETTINGS, checkpoints, lambda: (next(counted), None)[1]
    )
    assert next(counted) == (3 if damaged else 2) * steps
    assert len(warnings) == damaged
    straight, expected = retrain(model, data, before, SETTINGS)
    assert same(again, straight, data)
    assert done.curve == expected.curve


def test_only_the_head_is_retrained_and_goes_on_where_it_was_cut_off(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    _, data, _ = pretrained
    model, settings = SmallCnn.build(10, 0, 16), replace(SETTINGS, layers=Layers.HEAD, part=0.5)
    trained = data.training_part(settings.part, settings.seed)
    steps = steps_per_epoch(len(trained), SETTINGS.batch)
    straight, done = retrain(model, data, 0.0, settings)
    assert isinstance(straight, SmallCnn)
    before, after = model.network.state_dict(), straight.network.state_dict()
    changed = {name for name, tensor in after.items() if not tensor.equal(before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert all(weight.requires_grad for weight in straight.network.parameters()), "next time"
    checkpoints = Checkpoints(tmp_path, no_warning)
    with pytest.raises(CutOffError):
        retrain(model, data, 0.0, settings, checkpoints, cut_off_after(3 * steps - 2))
    counted = itertools.count()
    again, resumed = retrain(
        model, data, 0.0, settings, checkpoints, lambda: (next(counted), None)[1]
    )
    assert next(counted) == 2 * steps
    assert resumed.curve == done.curve
    assert same(again, straight, data)


def test_a_part_of_the_samples_has_every_class_and_repeats(pretrained: Pretrained) -> None:
    _, data, _ = pretrained
    whole = np.bincount(data.training.labels)
    for part in (1.0, 0.5, 0.1):
        counts = np.bincount(data.training_part(part, 3).labels)
        expected = np.maximum(np.round(part * whole), np.minimum(8, whole))
        np.testing.assert_array_equal(counts, expected)
    first, again, other = (data.training_part(0.5, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert not np.array_equal(first.inputs, other.inputs)
    assert set(data.new_classes) <= set(data.training_part(0.01, 0).labels.tolist())


class Forgetful(Tiny):
    """Unlearns everything after a number of steps."""

    good_steps = 0

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        loss = super().train_step(inputs, labels, lr)
        if self.steps > self.good_steps:
            with torch.no_grad():
                for parameter in self.network.parameters():
                    parameter.zero_()
        return loss


def test_the_best_epoch_serves_and_later_ones_end_early(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    _, data, _ = pretrained
    steps = steps_per_epoch(len(data.training), SETTINGS.batch)
    model = Forgetful.build(10, 0)
    model.good_steps = 2 * steps
    long = replace(SETTINGS, epochs=9)
    best, done = retrain(model, data, 0.0, long)
    # six epochs without improvement, three quarters of nine
    assert len(done.curve) == best_epoch(done.curve) + 7 <= 8
    assert accuracy(best, data.validation) == max(done.curve)
    # the same after an interruption behind the best epoch
    checkpoints = Checkpoints(tmp_path / "run", no_warning)
    with pytest.raises(CutOffError):
        retrain(model, data, 0.0, long, checkpoints, cut_off_after(4 * steps - 2))
    again, resumed = retrain(model, data, 0.0, long, checkpoints)
    assert resumed.curve == done.curve
    assert same(again, best, data)


def test_a_training_whose_best_model_is_damaged_starts_again(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    _, data, _ = pretrained
    steps = steps_per_epoch(len(data.training), SETTINGS.batch)
    model, warnings = Forgetful.build(10, 0), list[str]()
    model.good_steps = steps
    checkpoints = Checkpoints(tmp_path / "run", warnings.append)
    with pytest.raises(CutOffError):
        retrain(model, data, 0.0, SETTINGS, checkpoints, cut_off_after(3 * steps - 2))
    for path in (tmp_path / "run" / "best").glob("*.weights"):
        path.write_bytes(b"")
    with pytest.raises(CutOffError):  # the checkpoints of the new start are not mixed with old ones
        retrain(model, data, 0.0, SETTINGS, checkpoints, cut_off_after(2 * steps - 2))
    again, done = retrain(model, data, 0.0, SETTINGS, checkpoints)
    straight, expected = retrain(model, data, 0.0, SETTINGS)
    assert (done.curve, len(warnings)) == (expected.curve, 1)
    assert same(again, straight, data)


class Sudden(Tiny):
    """All losses are numbers, and after the last step no answer is."""

    def train_step(self, inputs: Inputs, labels: Labels, lr: float) -> float:
        loss = super().train_step(inputs, labels, lr)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.fill_(float("nan"))
        return 0.0 if np.isnan(loss) else loss


@pytest.mark.parametrize("kind", [Hot, Sudden])
def test_a_training_that_leaves_the_numbers_is_stopped_and_the_old_model_serves(
    pretrained: Pretrained, kind: type[Tiny]
) -> None:
    _, data, _ = pretrained
    model = kind.build(10, 0)
    # even where nothing is lost: a model without answers must not serve
    kept, done = retrain(model, data, 0.0, SETTINGS)
    assert kept is model
    assert not done.adopted
    assert done.accuracy_served == 0.0
    assert done.curve == ()
    assert "learning_rate" in done.stopped


class Blind(Tiny):
    """Once trained it has no answer to pictures with a dark corner."""

    def infer(self, inputs: Inputs) -> Scores:
        scores = super().infer(inputs)
        if self.steps:
            scores[is_dark(inputs)] = np.nan
        return scores


def is_dark(inputs: Inputs) -> NDArray[np.bool_]:
    dark: NDArray[np.bool_] = np.asarray(inputs)[:, 0, 0, 0] < 100
    return dark


def test_a_training_after_which_more_answers_are_no_numbers_is_refused(
    pretrained: Pretrained,
) -> None:
    _, data, _ = pretrained
    model, dark = Blind.build(10, 0), int(is_dark(data.held_out.inputs).sum())
    assert 0 < dark < len(data.held_out)
    kept, done = retrain(model, data, 0.0, SETTINGS)
    assert (kept is model, done.adopted) == (True, False)
    assert f"{dark} of {len(data.held_out)} answers to held-out samples are NaN" in done.stopped
    # the samples, and not the training
    model.steps = 1
    assert retrain(model, data, 0.0, SETTINGS)[1].adopted


def test_what_cannot_be_trained_is_one_sentence(pretrained: Pretrained) -> None:
    model, data, before = pretrained
    none = data.new.rows(np.empty(0, np.intp))
    for empty in (replace(data, new=none), replace(data, held_out=none)):
        with pytest.raises(InputError, match="has no samples"):
            retrain(model, empty, before, SETTINGS)
    with pytest.raises(InputError, match="at least 1 epoch"):
        RetrainingSettings(epochs=0)
    for part in (0, 1.5, float("nan")):
        with pytest.raises(InputError, match="give more than 0 and at most 1"):
            RetrainingSettings(part=part)
    with pytest.raises(InputError, match="give one of 'head', 'last block', 'all'"):
        RetrainingSettings(layers=cast(Layers, "middle"))
    assert RetrainingSettings(layers=cast(Layers, "head")).layers is Layers.HEAD


def test_every_class_is_trained_on_as_often() -> None:
    labels = np.repeat([0, 1, 2], [90, 6, 4])
    order = balanced_order(labels, np.random.default_rng(0))
    assert len(order) == 100
    counts = np.bincount(labels[order])
    assert counts.min() >= 32
    # nothing is left out of a small class, and nothing of the large one comes twice
    assert set(order) >= set(range(90, 100))
    assert len(set(order[labels[order] == 0])) == counts[0]


def test_batches_are_of_one_size_and_show_every_row() -> None:
    for rows, batch, size in ((100, 32, 32), (64, 32, 32), (20, 32, 20), (1, 32, 1)):
        chunks = list(batches(np.arange(rows), batch))
        assert len(chunks) == steps_per_epoch(rows, batch)
        assert {len(chunk) for chunk in chunks} == {size}
        assert set(np.concatenate(chunks)) == set(range(rows))
