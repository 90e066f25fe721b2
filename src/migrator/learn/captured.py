"""Training steps as CUDA graphs: launched at once, not kernel by kernel.

A small model, or a large one on small images, is trained as fast as the host can launch kernels;
replayed as a graph a step takes what the GPU needs for it. The first steps of a shape are run as
they are, for they choose kernels and make the optimiser's state; the next is captured.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]
"""Inputs and labels in, the loss out; nothing in it may depend on the host."""

_FIRST = 2
"""So many steps before a capture: they load kernels and make the optimiser's state."""
_MOST = 2
"""Graphs kept: for whole batches and for the rest at the end of an epoch."""
_CUDA: Any = torch.cuda


@dataclass(frozen=True)
class Graph:
    """Something captured, and the tensors it reads and writes."""

    replay: Callable[[], None]
    inputs: Tensor
    labels: Tensor
    said: Tensor
    """The loss of a step, the scores of an answer."""

    def run(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The step on other inputs of the same shape."""
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.replay()
        return self.said


def graph_of(step: Step, inputs: Tensor, labels: Tensor) -> Graph | None:
    """The step as a graph, not run yet; None where it cannot be captured."""
    drawing = _CUDA.default_generators[_CUDA.current_device()]
    before = drawing.clone_state()
    try:
        return _graph_of(step, inputs, labels)
    except RuntimeError:
        # out of memory too: a graph has memory of its own, a plain step may do with what there is
        _CUDA.synchronize()
        # a capture that broke off leaves the generator capturing, and nobody could draw any more
        drawing.graphsafe_set_state(before)
    _CUDA.empty_cache()  # here, where the failed graph is gone
    return None


def _graph_of(step: Step, inputs: Tensor, labels: Tensor) -> Graph:
    given, wanted = inputs.clone(), labels.clone()
    graph, side = _CUDA.CUDAGraph(), _CUDA.Stream()
    side.wait_stream(_CUDA.current_stream())
    # not torch.cuda.graph(): it first collects garbage and gives all spare memory back, which
    # takes longer than the few steps of an estimation
    with _CUDA.stream(side), _uncollected():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            loss = step(given, wanted)
        finally:
            graph.capture_end()
    _CUDA.current_stream().wait_stream(side)
    return Graph(graph.replay, given, wanted, loss)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection inside: one that frees an older graph would spoil the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _aside(step: Step, inputs: Tensor, labels: Tensor) -> Tensor:
    """The step as it is, on a stream of its own: what a capture follows must not be on torch's."""
    if not inputs.is_cuda:
        return step(inputs, labels)
    side = _CUDA.Stream()
    side.wait_stream(_CUDA.current_stream())
    with _CUDA.stream(side):
        loss = step(inputs, labels)
    _CUDA.current_stream().wait_stream(side)
    return loss


class CapturedSteps:
    """A training step that is captured once its shape has come a few times.

    It is given with every run and not kept: a model that keeps its captured steps, which keep a
    method of the model, would hold the GPU's memory until somebody collects garbage.
    """

    def __init__(self, capture: Callable[[Step, Tensor, Tensor], Graph | None] = graph_of) -> None:
        self._capture = capture
        self._come: Counter[tuple[int, ...]] = Counter()
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._capturing = True

    def run(self, step: Step, inputs: Tensor, labels: Tensor) -> Tensor:
        """One step, always the same one; the loss is overwritten by the next."""
        graph = self._graphs.get(tuple(inputs.shape)) or self._captured(step, inputs, labels)
        return graph.run(inputs, labels) if graph else _aside(step, inputs, labels)

    def _captured(self, step: Step, inputs: Tensor, labels: Tensor) -> Graph | None:
        shape = tuple(inputs.shape)
        self._come[shape] += 1
        if not self._capturing or self._come[shape] <= _FIRST or len(self._graphs) >= _MOST:
            return None
        graph = self._capture(step, inputs, labels)
        if graph is None:
            self._capturing = False  # a network that asks the host will always do so
        else:
            self._graphs[shape] = graph
        return graph
