"""CUDA graphs of training steps and inference.

Without a GPU: a stand-in for the capture runs the step on its own tensors. On an H200 real graphs
gave the same losses (ConvNeXt-B to the last bit, BERT to 0.004).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.tiny_model import Tiny
from torch import Tensor

import migrator.learn.cuda_graphs as captured_module
from migrator.learn.cuda_graphs import (
    CapturedAnswers,
    CapturedSteps,
    Forward,
    Graph,
    Step,
    capture_graph,
    graph_sizes,
)

Shapes = list[tuple[int, ...]]


def _sum(inputs: Tensor, labels: Tensor) -> Tensor:
    return inputs.sum() + labels.sum()


def _recording(captured: Shapes) -> CapturedSteps:
    def capture(step: Step, inputs: Tensor, labels: Tensor) -> Graph:
        captured.append(tuple(inputs.shape))
        fixed, wanted, loss = inputs.clone(), labels.clone(), torch.zeros(())

        def replay() -> None:
            loss.copy_(step(fixed, wanted))

        return Graph(replay, fixed, wanted, loss)

    return CapturedSteps(capture)


def _run(steps: CapturedSteps, size: int, value: float) -> float:
    return float(steps.run(_sum, torch.full((size,), value), torch.zeros(size)))


def test_a_shape_is_captured_once_it_has_come_a_few_times() -> None:
    captured: Shapes = []
    steps = _recording(captured)
    losses = [_run(steps, 4, value) for value in range(6)]
    assert captured == [(4,)]
    assert losses == [4.0 * value for value in range(6)]


def test_what_cannot_be_captured_is_not_tried_again() -> None:
    tried: list[int] = []

    def refuse(_step: Step, inputs: Tensor, _labels: Tensor) -> None:
        tried.append(len(inputs))

    steps = CapturedSteps(refuse)
    assert [_run(steps, 4, 1.0) for _ in range(8)] == [4.0] * 8
    assert tried == [4]


def test_a_model_and_its_captured_steps_go_without_a_collection() -> None:
    """A cycle would hold a GPU's memory until the next garbage collection."""
    model = Tiny.build(4, 0)
    model._new_optimiser()
    model._captured = CapturedSteps()  # as on a GPU
    labels = np.arange(4, dtype=np.int64)
    model.train_step(model.example(4), labels, 1e-3)
    gone = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


class _Cuda:
    """Stands in for torch.cuda where there is no GPU; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def graph(self) -> SimpleNamespace:
        def note(word: str) -> Callable[..., None]:
            return lambda **_: self.asked.append(word)

        return SimpleNamespace(
            capture_begin=note("begin"), capture_end=note("end"), replay=note("replay")
        )

    def stand_in(self) -> SimpleNamespace:
        stream = SimpleNamespace(wait_stream=lambda _other: None)
        return SimpleNamespace(
            CUDAGraph=self.graph,
            Stream=lambda: stream,
            current_stream=lambda: stream,
            stream=lambda _side: nullcontext(),
            synchronize=lambda: self.asked.append("synchronize"),
            current_device=lambda: 0,
            default_generators=[
                SimpleNamespace(
                    clone_state=lambda: "before",
                    graphsafe_set_state=lambda state: self.asked.append(f"drawing as {state}"),
                )
            ],
            empty_cache=lambda: self.asked.append("empty_cache"),
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Cuda:
    cuda = _Cuda()
    monkeypatch.setattr(captured_module, "_CUDA", cuda.stand_in())
    return cuda


def test_a_capture_that_runs_out_of_memory_leaves_plain_steps(cuda: _Cuda) -> None:
    """Its graph would have needed memory of its own; only a plain step's fault is the user's."""

    def step(inputs: Tensor, _labels: Tensor) -> Tensor:
        if cuda.asked and cuda.asked[-1] == "begin":
            raise torch.OutOfMemoryError("private pool")
        return inputs.sum()

    steps = CapturedSteps()
    ones, none = torch.ones(4), torch.zeros(4)
    assert [float(steps.run(step, ones, none)) for _ in range(5)] == [4.0] * 5
    assert cuda.asked == ["begin", "end", "synchronize", "drawing as before", "empty_cache"]

    def full(_inputs: Tensor, _labels: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        steps.run(full, ones, none)


@pytest.mark.usefixtures("cuda")
def test_nothing_is_collected_during_a_capture() -> None:
    collecting: list[bool] = []

    def step(inputs: Tensor, _labels: Tensor) -> Tensor:
        collecting.append(gc.isenabled())
        return inputs.sum()

    assert capture_graph(step, torch.ones(2), torch.zeros(2)) is not None
    assert collecting == [False]
    assert gc.isenabled()


def replayed(forward: Forward, inputs: Tensor) -> Graph:
    """As a GPU would: the same memory is read and written by every replay."""
    fixed, output = inputs.clone(), forward(inputs).clone()

    def replay() -> None:
        output.copy_(forward(fixed))

    return Graph(replay, fixed, torch.empty(0), output)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (1, (1,)),
        (4, (1, 2, 3, 4)),
        (7, (1, 2, 3, 4, 6, 7)),
        (32, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)),
    ],
)
def test_small_batches_have_graphs_of_their_own_and_large_ones_few_spare_rows(
    batch: int, expected: tuple[int, ...]
) -> None:
    """On an H200 three requests took as long as four as long as their graph had four rows."""
    sizes = graph_sizes(batch)
    assert sizes == expected
    for rows in range(1, batch + 1):
        size = min(size for size in sizes if size >= rows)
        assert size - rows < size / 3


def test_every_size_gets_the_answers_of_its_own_rows() -> None:
    answers = CapturedAnswers(lambda batch: 2.0 * batch, torch.zeros(1, 3), 6, replayed)
    for rows in (1, 2, 3, 5, 6, 4, 1):
        inputs = torch.rand(rows, 3)
        assert answers.takes(inputs)
        assert torch.equal(answers.answer(inputs), 2.0 * inputs)


def test_what_it_was_not_captured_for_is_left_to_others() -> None:
    answers = CapturedAnswers(lambda batch: batch, torch.zeros(1, 3), 2, replayed)
    assert not answers.takes(torch.zeros(3, 3)), "too many"
    assert not answers.takes(torch.zeros(0, 3)), "none"
    assert not answers.takes(torch.zeros(1, 4)), "of another shape"
    assert not answers.takes(torch.zeros(1, 3, dtype=torch.int32)), "of another type"


def test_what_does_not_capture_says_so() -> None:
    with pytest.raises(RuntimeError, match="cannot be captured"):
        CapturedAnswers(lambda batch: batch, torch.zeros(1, 3), 2, lambda *_: None)
