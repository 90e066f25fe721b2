"""What a worker repeats, on torch: an inference or a training step, as a CUDA graph if possible.

Imported in worker processes only. A model of torch is served with its weights in bf16 on a GPU
(in single precision on a CPU); images are normalised already, which takes a few microseconds. Of
a class with the methods of a model and nothing more, `infer` and `train_step` are measured as
they are, copies to the GPU and back included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from migrator.learn.captured_answers import halve
from migrator.learn.image_model import ImageModel
from migrator.learn.registry import build
from migrator.learn.torch_model import TorchModel
from migrator.profiling.measurements import Job
from migrator.profiling.timing import Step

CLASSES = 10
_LEARNING_RATE = 1e-4
_STEPS_BEFORE = 5
"""Training steps before the first that is measured: a model on a GPU captures its own by then."""
_CUDA: Any = torch.cuda
_WARMING = 3
"""So many runs on a side stream before a capture."""

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Prepared:
    """A step ready to be repeated, and what is to be told about it."""

    step: Step
    graph: bool
    """Whether it is a CUDA graph."""
    note: str | None
    """Why not."""
    finite: bool


def synchronised(device: str) -> None:
    """Wait until the GPU has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


class Serving:
    """A model as it is served."""

    def __init__(self, name: str, device: str) -> None:
        self.device = device
        began = time.monotonic()
        self.model = build(name, CLASSES, 0)
        if isinstance(self.model, TorchModel) and device == "cuda":
            halve(self.model.network)
        built = time.monotonic()
        self.model.to(device)
        synchronised(device)
        self.parts_s = {"build_s": built - began, "copy_s": time.monotonic() - built}

    def first_s(self) -> float:
        """Seconds of the first answer: kernels are chosen and loaded."""
        began = time.monotonic()
        self._work(1)()
        synchronised(self.device)
        return time.monotonic() - began

    def prepared(self, batch: int) -> Prepared:
        """Inference of a batch, each waited for."""
        answer: list[Any] = []
        work = self._work(batch, answer)
        graph, note = _graph(work, self.device, isinstance(self.model, TorchModel))
        repeated = work if graph is None else graph.replay
        repeated()
        synchronised(self.device)
        said = answer[0]
        finite = torch.isfinite(said) if isinstance(said, Tensor) else np.isfinite(said)

        def step() -> None:
            repeated()
            if self.device == "cuda":
                torch.cuda.current_stream().synchronize()

        return Prepared(step, graph is not None, note, bool(finite.all()))

    def _work(self, batch: int, answer: list[Any] | None = None) -> Step:
        kept: list[Any] = [] if answer is None else answer
        model = self.model
        if not isinstance(model, TorchModel):
            example = model.example(batch)

            def infer() -> None:
                kept[:] = [model.infer(example)]

            return infer
        model.network.eval()
        forward, inputs = _forward(model, batch)

        def work() -> None:
            with torch.inference_mode():
                kept[:] = [forward(inputs)]

        return work


def training(job: Job, device: str) -> Prepared:
    """A training step of a new model, as a retraining takes it."""
    model = build(job.model, CLASSES, 0)
    model.to(device)
    inputs = model.example(job.batch)
    labels = (np.arange(job.batch) % CLASSES).astype(np.int64)

    def step() -> None:
        model.train_step(inputs, labels, _LEARNING_RATE)

    losses = [model.train_step(inputs, labels, _LEARNING_RATE) for _ in range(_STEPS_BEFORE)]
    return Prepared(step, False, "the model's own train_step", bool(np.isfinite(losses).all()))


def _forward(model: TorchModel, batch: int) -> tuple[Forward, Tensor]:
    """Scores from a batch on the device; images as the network itself takes them."""
    if isinstance(model, ImageModel):
        size = (batch, 3, model.pixels, model.pixels)
        images = torch.randn(size, device=model.device)
        return model.answered, images.contiguous(memory_format=model.memory_format)
    return model.logits, torch.from_numpy(model.example(batch)).to(model.device)


def _graph(work: Step, device: str, torch_model: bool) -> tuple[Any, str | None]:
    """The work as a CUDA graph; or None and why not. The work is done at least once."""
    if device != "cuda":
        work()
        return None, "no GPU"
    if not torch_model:
        work()
        return None, "the class has infer() and train_step() only"
    side = _CUDA.Stream()
    side.wait_stream(_CUDA.current_stream())
    with _CUDA.stream(side):
        for _ in range(_WARMING):
            work()
    _CUDA.current_stream().wait_stream(side)
    graph = _CUDA.CUDAGraph()
    try:
        with _CUDA.graph(graph):
            work()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        _CUDA.synchronize()
        return None, f"does not capture ({str(error).partition(chr(10))[0][:200]})"
    return graph, None
