"""Models on torch: the same seed gives the same model, and files give back what was saved."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from migrator.core.errors import InputError
from migrator.learn.torch_model import TorchModel
from migrator.learn.zoo import SmallCnn, SmallText

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (16, 3, 16, 16), dtype=np.uint8)
LABELS = RNG.integers(0, 4, 16).astype(np.int64)


def model(seed: int = 0) -> SmallCnn:
    return SmallCnn.build(4, seed, 16)


def trained(steps: int, trainee: TorchModel | None = None) -> TorchModel:
    trainee = trainee or model()
    for _ in range(steps):
        trainee.train_step(IMAGES, LABELS, 1e-2)
    return trainee


def test_the_seed_decides_and_nobody_outside_notices() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = trained(3), trained(3), trained(3, model(1))
    assert torch.equal(torch.rand(3), expected)
    np.testing.assert_array_equal(first.infer(IMAGES), second.infer(IMAGES))
    assert not np.array_equal(first.infer(IMAGES), other.infer(IMAGES))


def test_classes_never_seen_are_not_answered_and_not_unlearned() -> None:
    trainee = model()
    head = trainee.network.state_dict()["classifier.bias"][3].clone()
    for _ in range(5):
        trainee.train_step(IMAGES, LABELS % 3, 1e-2)
    assert np.isneginf(trainee.infer(IMAGES)[:, 3]).all()
    assert set(trainee.infer(IMAGES).argmax(1)) <= {0, 1, 2}
    # weight decay is all that happens to what is still to come
    assert abs(float(trainee.network.state_dict()["classifier.bias"][3] - head)) < 1e-3


@pytest.mark.parametrize("name", ["weights.safetensors", "."])
def test_a_file_or_a_folder_gives_the_weights_back(tmp_path: Path, name: str) -> None:
    trainee = trained(3)
    trainee.save(tmp_path / "weights.safetensors")
    again = model(7)
    again.load(tmp_path / name)
    np.testing.assert_array_equal(again.infer(IMAGES), trainee.infer(IMAGES))


def test_weights_with_another_head_leave_the_head_random(tmp_path: Path) -> None:
    larger = SmallCnn.build(9, 3, 16)
    # as another program would have written it: without our note
    save_file(dict(larger.network.state_dict()), tmp_path / "theirs.safetensors")
    trainee = model()
    assert trainee.weights == "random, seed 0"
    with pytest.raises(InputError, match="its head is not for the 4 classes of the model"):
        trainee.load(tmp_path / "theirs.safetensors")
    assert trainee.weights == "random, seed 0"
    trainee.begin_with(tmp_path / "theirs.safetensors")
    assert trainee.weights == "loaded from theirs.safetensors, head random"
    own, theirs = trainee.network.state_dict(), larger.network.state_dict()
    assert torch.equal(own["0.weight"], theirs["0.weight"])
    assert own["classifier.weight"].shape == (4, 128)


def test_beginning_with_a_file_of_ours_takes_its_weights_alone(tmp_path: Path) -> None:
    trainee = trained(3)
    trainee.save(tmp_path / "mine", training=True)
    begun = model(7)
    begun.begin_with(tmp_path / "mine")
    assert (begun.weights, begun.steps) == ("loaded from mine", 0)
    assert begun._optimiser is None
    np.testing.assert_array_equal(begun.infer(IMAGES), trainee.infer(IMAGES))
    assert begun.seen.tolist() == trainee.seen.tolist()
    # going on keeps where it stood
    again = model(7)
    again.load(tmp_path / "mine")
    assert (again.weights, again.steps) == ("random, seed 0", 3)


@pytest.mark.parametrize("taking", ["begin_with", "load"])
def test_a_head_for_fewer_classes_gives_the_first_rows(tmp_path: Path, taking: str) -> None:
    smaller = SmallCnn.build(2, 3, 16)
    smaller.train_step(IMAGES, LABELS % 2, 1e-3)
    smaller.save(tmp_path / "two", training=True)
    trainee = model()
    getattr(trainee, taking)(tmp_path / "two")
    assert trainee.weights == "loaded from two, head extended from 2 classes"
    assert trainee.seen.tolist() == [True, True, False, False]
    np.testing.assert_allclose(trainee.infer(IMAGES)[:, :2], smaller.infer(IMAGES), atol=1e-6)
    assert trainee.train_step(IMAGES, LABELS, 1e-3) > 0


NOTE = {"steps": 1, "seen": [0], "weights": "x"}


@pytest.mark.parametrize(
    "note",
    [
        "x",
        "{}",
        *(json.dumps({**NOTE, **change}) for change in ({"steps": "a"}, {"seen": "all"})),
        *(json.dumps({**NOTE, **change}) for change in ({"seen": [-1]}, {"weights": 3})),
    ],
)
def test_a_damaged_note_is_one_sentence_and_nothing_is_taken(tmp_path: Path, note: str) -> None:
    save_file(dict(model(3).network.state_dict()), tmp_path / "bad", {"migrator": note})
    refused(tmp_path / "bad")


def refused(path: Path) -> None:
    trainee = model()
    before = trainee.infer(IMAGES)
    with pytest.raises(InputError, match="damaged or not a safetensors file; copy it again"):
        trainee.load(path)
    np.testing.assert_array_equal(trainee.infer(IMAGES), before)


@pytest.mark.parametrize("shape", [(3, 16, 24), (1, 16, 16), (3, 1, 1), (16, 16)])
def test_what_is_no_square_image_in_colour_is_refused(shape: tuple[int, ...]) -> None:
    inputs = np.zeros((2, *shape), np.uint8)
    trainee = model()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: trainee.infer(inputs),
        lambda: trainee.train_step(inputs, LABELS[:2], 1e-3),
    )
    for attempt in attempts:
        with pytest.raises(InputError, match="images are"):
            attempt()


def test_weights_of_another_model_are_refused_and_nothing_is_taken(tmp_path: Path) -> None:
    SmallText.build(4, 0).save(tmp_path / "text")
    trainee = model()
    before = trainee.infer(IMAGES)
    with pytest.raises(InputError, match="do not fit SmallCnn"):
        trainee.load(tmp_path / "text")
    np.testing.assert_array_equal(trainee.infer(IMAGES), before)


def test_weights_whose_reading_would_never_end_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="this is a FIFO, socket or device"):
        model().load(tmp_path / "weights.safetensors")


def test_a_model_larger_than_the_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    trainee = model()
    monkeypatch.setattr(trainee, "logits", full)
    for attempt in (
        lambda: trainee.infer(IMAGES),
        lambda: trainee.train_step(IMAGES, LABELS, 1e-3),
    ):
        with pytest.raises(InputError, match="does not fit into the memory"):
            attempt()
