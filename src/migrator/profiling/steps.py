"""The work that a worker repeats with torch: an inference or a training step.

Uses a CUDA graph if possible. Imported in worker processes only. A torch model is served with
weights in bf16 on a GPU and in single precision on a CPU. Images that are not resized are already
normalised, which otherwise takes a few microseconds. For a class that only has the methods of a
model, `infer` and `train_step` are measured as they are, including copies to and from the GPU.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from migrator.core.tensors import record_dtype
from migrator.learn.cuda_graphs import convert_to_bf16
from migrator.learn.estimation import estimate
from migrator.learn.image_model import ImageModel
from migrator.learn.model import Model
from migrator.learn.named_tensors import NamedTensorModel
from migrator.learn.registry import build
from migrator.learn.retraining import RetrainingSettings, accuracy, retrain
from migrator.learn.samples import Samples, WindowData
from migrator.learn.torch_model import TorchModel
from migrator.profiling.measurements import ProcessJob, WorkKind

CLASSES = 10
_LEARNING_RATE = 1e-4
_STEPS_BEFORE = 5
"""Number of training steps before the first measured one.

By then a model on a GPU has captured its own graph.
"""
_EPOCHS, _BATCHES = 2, 4
"""Of the retraining whose memory is read: its steps are captured, and its evaluations full."""
_MANY_STEPS = 10_000
"""A retraining this long is prepared for speed."""
_CUDA: Any = torch.cuda
_WARMING = 3
"""Number of runs on a side stream before a capture."""

Forward = Callable[[Tensor], Tensor]
Step = Callable[[], None]


@dataclass(frozen=True)
class PreparedStep:
    """A step that is ready to repeat, and its description."""

    step: Step
    graph: bool
    """Whether it is a CUDA graph."""
    note: str | None
    """Reason if it is not."""
    finite: bool


def synchronize(device: str) -> None:
    """Wait until the GPU has completed its work."""
    if device == "cuda":
        torch.cuda.synchronize()


class InferenceModel:
    """A model as it is served."""

    def __init__(self, job: ProcessJob, device: str) -> None:
        self.device = device
        began = time.monotonic()
        self.model = _build(job)
        if isinstance(self.model, TorchModel) and device == "cuda":
            convert_to_bf16(self.model.network)
        built = time.monotonic()
        self.model.to(device)
        synchronize(device)
        self.parts_s = {"build_s": built - began, "copy_s": time.monotonic() - built}

    def first_s(self) -> float:
        """Seconds of the first answer, in which kernels are selected and loaded."""
        began = time.monotonic()
        self._work(1)()
        synchronize(self.device)
        return time.monotonic() - began

    def prepared(self, batch: int) -> PreparedStep:
        """Inference of a batch. Each call waits for its result."""
        answer: list[Any] = []
        work = self._work(batch, answer)
        graph, note = _graph(work, self.device, isinstance(self.model, TorchModel))
        repeated = work if graph is None else graph.replay
        repeated()
        synchronize(self.device)
        said = answer[0]
        finite = torch.isfinite(said) if isinstance(said, Tensor) else np.isfinite(said)

        def step() -> None:
            repeated()
            if self.device == "cuda":
                torch.cuda.current_stream().synchronize()

        return PreparedStep(step, graph is not None, note, bool(finite.all()))

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


def training(job: ProcessJob, device: str) -> PreparedStep:
    """A training step of a new model, as in a retraining."""
    model = _build(job)
    model.to(device)
    inputs = model.example(job.batch)
    labels = _labels(model, job.batch)

    def step() -> None:
        model.train_step(inputs, labels, _LEARNING_RATE)

    losses = [model.train_step(inputs, labels, _LEARNING_RATE) for _ in range(_STEPS_BEFORE)]
    return PreparedStep(step, False, "the model's own train_step", bool(np.isfinite(losses).all()))


def copying(job: ProcessJob, device: str) -> PreparedStep:
    """Device memory that is read and written by a kernel, not by the copy engines."""
    source = torch.ones(job.batch << 18, device=device)  # of 4 bytes each
    target = torch.empty_like(source)

    def step() -> None:
        torch.mul(source, 2.0, out=target)
        synchronize(device)

    step()
    return PreparedStep(step, False, "a kernel that reads and writes", bool(target[-1] == 2.0))


def occupy(job: ProcessJob, device: str) -> None:
    """Do once what a process of the daemon does, so that its memory can be read afterwards."""
    model = _build(job)
    model.to(device)
    if job.task is WorkKind.WORKER:
        _serve(model, job.batch, device)
        return
    retrains = job.task is WorkKind.RETRAINING
    if hasattr(model, "expect_training"):
        model.expect_training(_MANY_STEPS if retrains else 0)
    settings, data = RetrainingSettings(epochs=_EPOCHS, batch=job.batch), _samples(model, job.batch)
    before = accuracy(model, data.held_out, job.batch)
    if retrains:
        retrain(model, data, before, settings)
    else:
        estimate(model, data, before, settings, ())


def _serve(model: Any, batch: int, device: str) -> None:
    """The start of a worker, and a change of its weights."""
    if hasattr(model, "begin_serving"):
        model.begin_serving(batch)
    for size in sorted({1, batch}):
        model.infer(model.example(size))
    fresh = copy.deepcopy(model)
    fresh.to(device)
    if not hasattr(model, "exchange") or not model.exchange(fresh):
        fresh.infer(fresh.example(batch))


def _samples(model: Model, batch: int) -> WindowData:
    """Enough samples for full batches of every kind."""

    def some(batches: int) -> Samples:
        count = batches * batch
        return Samples(model.example(count), _labels(model, count), np.ones(count, np.int64))

    return WindowData(some(_BATCHES), some(1), some(_BATCHES), some(_BATCHES), frozenset({0}))


def _labels(model: Model, count: int) -> NDArray[Any]:
    """Labels of all classes, or of the kind that the model declares."""
    if isinstance(model, NamedTensorModel) and model.labels:
        return np.zeros(count, record_dtype(model.labels))
    return np.arange(count, dtype=np.int64) % CLASSES


def _build(job: ProcessJob) -> Model:
    """The job's model, with random weights."""
    images = job.images
    return build(
        job.model,
        CLASSES,
        0,
        images.pixels,
        input_pixels=images.input_pixels,
        pretrained=False,
    )


def _forward(model: TorchModel, batch: int) -> tuple[Forward, Tensor]:
    """Scores of a batch on the device.

    Images are in the network's own format, or resized as those that clients send.
    """
    if isinstance(model, ImageModel) and model.input_pixels == model.pixels:
        size = (batch, 3, model.pixels, model.pixels)
        images = torch.randn(size, device=model.device)
        return model.image_logits, images.contiguous(memory_format=model.memory_format)
    return model.logits, torch.from_numpy(model.example(batch)).to(model.device)


def _graph(work: Step, device: str, torch_model: bool) -> tuple[Any, str | None]:
    """The work as a CUDA graph, or None and the reason. Runs the work at least once."""
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
