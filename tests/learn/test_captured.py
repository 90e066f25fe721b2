"""When a training step is captured, and that a captured one learns the same.

There is no GPU here, so the capture itself is stood in for by one that runs the step on its own
tensors; that real graphs give the same losses is measured (docs/profiles.md).
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from migrator.learn.captured import CapturedSteps, Graph, Step
from migrator.learn.zoo.small import SmallCnn

Shapes = list[tuple[int, ...]]


def _recording(captured: Shapes) -> CapturedSteps:
    def capture(step: Step, inputs: Tensor, labels: Tensor) -> Graph:
        captured.append(tuple(inputs.shape))
        given, wanted, loss = inputs.clone(), labels.clone(), torch.zeros(())

        def replay() -> None:
            loss.copy_(step(given, wanted))

        return Graph(replay, given, wanted, loss)

    return CapturedSteps(lambda inputs, labels: inputs.sum() + labels.sum(), capture)


def _run(steps: CapturedSteps, size: int, value: float) -> float:
    return float(steps.run(torch.full((size,), value), torch.zeros(size)))


def test_a_shape_is_captured_once_it_has_come_a_few_times() -> None:
    captured: Shapes = []
    steps = _recording(captured)
    found = [_run(steps, 4, value) for value in range(6)]
    assert captured == [(4,)]
    assert found == [4.0 * value for value in range(6)]


def test_the_rest_of_an_epoch_has_a_graph_of_its_own_and_nobody_else_has() -> None:
    captured: Shapes = []
    steps = _recording(captured)
    for size in (4, 3, 2) * 5:
        assert _run(steps, size, 1.0) == size
    assert captured == [(4,), (3,)]


def test_what_cannot_be_captured_is_not_tried_again() -> None:
    tried: list[int] = []

    def refuse(_step: Step, inputs: Tensor, _labels: Tensor) -> None:
        tried.append(len(inputs))

    steps = CapturedSteps(lambda inputs, _labels: inputs.sum(), refuse)
    assert [_run(steps, 4, 1.0) for _ in range(8)] == [4.0] * 8
    assert tried == [4]


def test_a_copy_and_loaded_weights_begin_their_own_training() -> None:
    model = SmallCnn.build(4, 0, pixels=8)
    inputs, labels = model.example(4), np.arange(4, dtype=np.int64)
    model.train_step(inputs, labels, 1e-3)
    again = copy.deepcopy(model)
    assert again.train_step(inputs, labels, 1e-3) == model.train_step(inputs, labels, 1e-3)
    assert again._captured is None
