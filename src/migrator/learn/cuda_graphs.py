"""Training steps and inference as CUDA graphs, launched at once instead of kernel by kernel.

Launching kernels one by one from the host limits small models and small images; a replayed graph
takes only the GPU's own time. The first training steps of a shape run without a graph, because
they choose kernels and create the optimiser's state; the next one is captured. Inference has one
graph per size of batch and uses the next larger one, ignoring spare rows; these graphs
share memory. Weights written into the same memory take effect at the next replay.
"""

from __future__ import annotations

import ctypes
import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]
"""Takes inputs and labels, returns the loss; must not depend on the host."""

_STEPS_BEFORE_CAPTURE = 2
"""They load kernels and create the optimiser's state."""
_MAX_GRAPHS = 2
"""Batches of one training are of one size."""
_CUDA: Any = torch.cuda


@dataclass(frozen=True)
class Graph:
    """A captured graph and the tensors that it reads and writes."""

    replay: Callable[[], None]
    inputs: Tensor
    labels: Tensor
    output: Tensor
    """The loss of a training step, or the scores of an inference."""

    def run(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Replay the step on other inputs of the same shape."""
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.replay()
        return self.output


def capture_graph(step: Step, inputs: Tensor, labels: Tensor, pool: Any = None) -> Graph | None:
    """Capture the step without running it; None if it cannot be captured.

    `pool`: the handle of memory that it shares with other graphs, none of which runs meanwhile.
    """
    generator = _CUDA.default_generators[_CUDA.current_device()]
    before = generator.clone_state()
    try:
        return _capture(step, inputs, labels, pool)
    except RuntimeError:
        # includes out of memory: a graph needs memory of its own, a plain step may still fit
        _CUDA.synchronize()
        # an aborted capture leaves the generator in capture mode, unusable until it is reset
        generator.graphsafe_set_state(before)
    _CUDA.empty_cache()  # only now is the failed graph's memory free
    return None


def _capture(step: Step, inputs: Tensor, labels: Tensor, pool: Any) -> Graph:
    given, wanted = inputs.clone(), labels.clone()
    graph = _CUDA.CUDAGraph()
    # not torch.cuda.graph(): it first collects garbage and empties the memory cache, which takes
    # longer than the few steps of an estimation
    with _on_side_stream(), _no_garbage_collection():
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            loss = step(given, wanted)
        except BaseException:
            with suppress(RuntimeError):  # must not hide a request to end the process
                graph.capture_end()
            raise
        graph.capture_end()
    return Graph(graph.replay, given, wanted, loss)


@cache
def _side_stream() -> Any:
    """The stream of all captures and the runs before them.

    Memory is reused within a stream only: with a stream of its own every step would keep as much
    memory as a whole training needs.
    """
    return _CUDA.Stream()


@contextmanager
def _on_side_stream() -> Iterator[None]:
    """Queue what the GPU does on the side stream, in order with what comes before and after."""
    side = _side_stream()
    side.wait_stream(_CUDA.current_stream())
    with _CUDA.stream(side):
        yield
    _CUDA.current_stream().wait_stream(side)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection during a capture.

    Needed for correctness: freeing an older graph that is part of a cycle is a call that CUDA does
    not permit while a stream is capturing, and the capture fails (seen on an H200 with torch 2.11).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _run_on_side_stream(step: Step, inputs: Tensor, labels: Tensor) -> Tensor:
    """Run the step without a graph. Steps before a capture must not use the default stream."""
    if not inputs.is_cuda:
        return step(inputs, labels)
    with _on_side_stream():
        return step(inputs, labels)


class CapturedSteps:
    """Training steps that are captured once their shape has occurred a few times.

    The step is passed to every run instead of being stored: it is a method of the model that owns
    this object, and the cycle would keep the GPU's memory until the next garbage collection.
    """

    def __init__(
        self, capture: Callable[[Step, Tensor, Tensor], Graph | None] = capture_graph
    ) -> None:
        self._capture = capture
        self._occurred: Counter[tuple[int, ...]] = Counter()
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._capturing = True

    def run(self, step: Step, inputs: Tensor, labels: Tensor) -> Tensor:
        """Run one step; `step` must be the same every time. The next step overwrites the loss."""
        graph = self._graphs.get(tuple(inputs.shape)) or self._try_capture(step, inputs, labels)
        if graph is None:
            return _run_on_side_stream(step, inputs, labels)
        return graph.run(inputs, labels)

    def _try_capture(self, step: Step, inputs: Tensor, labels: Tensor) -> Graph | None:
        shape = tuple(inputs.shape)
        self._occurred[shape] += 1
        early = self._occurred[shape] <= _STEPS_BEFORE_CAPTURE
        if not self._capturing or early or len(self._graphs) >= _MAX_GRAPHS:
            return None
        graph = self._capture(step, inputs, labels)
        if graph is None:
            self._capturing = False  # a network that depends on the host never captures
        else:
            self._graphs[shape] = graph
        return graph


Forward = Callable[[Tensor], Tensor]


def graph_sizes(batch: int) -> tuple[int, ...]:
    """The batch sizes with a graph: 1, 2, 3, 4, 6, 8, 12, ..., so that less than a third of the
    rows is spare: a batch takes as long as its graph, and the profile says what it takes itself.
    """
    doubled = [2**exponent for exponent in range(batch.bit_length())]
    between = [3 * size // 2 for size in doubled[1:]]
    return (*sorted(size for size in (*doubled, *between) if size < batch), batch)


class CapturedAnswers:
    """Inference of batches of up to `batch` inputs that look like the example."""

    def __init__(
        self,
        forward: Forward,
        example: Tensor,
        batch: int,
        capture: Callable[[Forward, Tensor], Graph | None] | None = None,
    ) -> None:
        """`example`: one row of inputs on the device. RuntimeError if it cannot be captured."""
        self._like = example
        self._graphs: dict[int, Graph] = {}
        # the largest first: the others find room in its memory, as they never run at the same time
        examples = [
            example.repeat(size, *(1,) * (example.ndim - 1)) for size in graph_sizes(batch)[::-1]
        ]
        if capture is None:
            _load_kernels(forward, examples)
            capture = partial(_capture_inference, pool=_CUDA.graph_pool_handle())
        for inputs in examples:
            graph = capture(forward, inputs)
            if graph is None:
                raise RuntimeError("inference cannot be captured as a graph")
            self._graphs[len(inputs)] = graph

    def takes(self, inputs: Tensor) -> bool:
        """Whether there is a graph for these inputs."""
        like = self._like
        alike = inputs.shape[1:] == like.shape[1:] and inputs.dtype == like.dtype
        return alike and 0 < len(inputs) <= max(self._graphs)

    def answer(self, inputs: Tensor) -> Tensor:
        """Scores of the inputs, which may be on the host."""
        rows = len(inputs)
        graph = self._graphs[min(size for size in self._graphs if size >= rows)]
        graph.inputs[:rows].copy_(inputs)
        graph.replay()
        return graph.output[:rows]


def _load_kernels(forward: Forward, examples: Iterable[Tensor]) -> None:
    """Choose and load the kernels for these inputs, which a capture must not do."""
    with _on_side_stream():
        for inputs in examples:
            forward(inputs)
    _CUDA.empty_cache()  # graphs have memory of their own


def _capture_inference(forward: Forward, inputs: Tensor, pool: Any) -> Graph | None:
    nothing = torch.empty(0, device=inputs.device)
    return capture_graph(lambda given, _: forward(given), inputs, nothing, pool)


def load_cudnn() -> None:
    """Load the parts of cuDNN, which it otherwise loads with the first answer.

    They are hundreds of megabytes. Loading them does not touch the GPU.
    """
    packages = Path(torch.__file__).parent.parent / "nvidia"
    for path in sorted(packages.glob("*/lib/libcudnn_*.so.*")):
        with suppress(OSError):  # cuDNN loads it itself, or says what is wrong
            ctypes.CDLL(str(path))


def convert_to_bf16(network: nn.Module) -> None:
    """Convert weights, and floating-point inputs of every call, to bf16."""

    def converted(value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(torch.bfloat16) if floating else value

    def hook(_network: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return tuple(map(converted, given)), {n: converted(value) for n, value in named.items()}

    network.to(torch.bfloat16)
    network.register_forward_pre_hook(hook, with_kwargs=True)
