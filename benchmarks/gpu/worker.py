"""One process of `interference.py`: builds models, repeats a job when told, says how long it took.

torch is imported here and nowhere else: in the process, after its share has been set.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from phases import Job, Pace

IMAGE_MODELS = {
    "mobilenet-v2": "mobilenet_v2",
    "resnet-50": "resnet50",
    "inception-v3": "inception_v3",
    "convnext-b": "convnext_base",
    "vit-b-16": "vit_b_16",
}
TOKENS = 128

Row = dict[str, Any]
Step = Callable[[], None]


@dataclass(frozen=True)
class Captured:
    """Work as a CUDA graph; the work is kept because the graph uses its tensors."""

    graph: Any
    work: Step

    def __call__(self) -> None:
        self.graph.replay()


class Worker:
    """The jobs of one process, prepared once; of trainings it keeps only the last."""

    def __init__(self) -> None:
        self.torch: Any = import_module("torch")
        self.torch.set_num_threads(1)
        self.torch.manual_seed(0)
        self.finite: dict[Job, bool] = {}
        """Whether an inference's first answer was: wrong answers have been seen under MPS."""
        self._serving: dict[str, Any] = {}
        self._steps: dict[Job, Step] = {}
        self._training: tuple[Job, Step] | None = None

    def sms(self) -> int:
        """The SMs this process sees, which under MPS are those of its share."""
        return int(self.torch.cuda.get_device_properties(0).multi_processor_count)

    def step(self, job: Job) -> Step:
        """The job's step, ready to be repeated."""
        if job.task == "inference":
            if job not in self._steps:
                self._steps[job] = self._inference_step(job)
            return self._steps[job]
        if self._training is None or self._training[0] != job:
            self._training = None
            self.torch.cuda.empty_cache()
            self._training = (job, self._training_step(job))
        return self._training[1]

    def _build(self, model: str) -> Any:
        """Random weights, made on the GPU."""
        with self.torch.device("cuda"):
            if model == "bert-base":
                transformers: Any = import_module("transformers")
                return transformers.BertForSequenceClassification(transformers.BertConfig())
            models: Any = import_module("torchvision.models")
            plain = {"init_weights": False} if model == "inception-v3" else {}
            return models.get_model(IMAGE_MODELS[model], weights=None, **plain)

    def _inputs(self, model: str, batch: int, dtype: Any) -> Any:
        if model == "bert-base":
            return self.torch.randint(0, 30000, (batch, TOKENS), device="cuda")
        side = 299 if model == "inception-v3" else 224
        return self.torch.randn(batch, 3, side, side, device="cuda", dtype=dtype)

    def _settled(self, model: str) -> Any:
        """The model with its normalisation fitted to one batch: else random weights overflow."""
        built = self._build(model).train()
        for layer in built.modules():
            if isinstance(layer, self.torch.nn.BatchNorm2d):
                layer.momentum = 1.0
        with self.torch.no_grad():
            built(self._inputs(model, 8, self.torch.float32))
        return built

    def _inference_step(self, job: Job) -> Step:
        torch = self.torch
        if job.model not in self._serving:
            self._serving[job.model] = self._settled(job.model).half().eval()
        model, inputs = self._serving[job.model], self._inputs(job.model, job.batch, torch.float16)
        answer: list[Any] = []

        def forward() -> None:
            with torch.no_grad():
                answer[:] = [_logits(model(inputs))]

        replay = self._captured(forward)
        replay()
        self.finite[job] = bool(torch.isfinite(answer[0]).all())

        def step() -> None:
            replay()
            torch.cuda.current_stream().synchronize()

        return step

    def _training_step(self, job: Job) -> Step:
        torch = self.torch
        model = self._build(job.model).train()
        inputs = self._inputs(job.model, job.batch, torch.float32)
        labels = torch.randint(0, 2, (job.batch,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
        eager = job.task == "training-eager"

        def launch() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16, cache_enabled=eager):
                loss = self._loss(model(inputs), labels)
            loss.backward()
            optimizer.step()

        if not eager:
            return self._one_ahead(self._captured(launch))
        launch()
        return self._one_ahead(launch)

    def _loss(self, output: Any, labels: Any) -> Any:
        entropy = self.torch.nn.functional.cross_entropy
        loss = entropy(_logits(output), labels)
        # Inception-v3 is trained with a second, auxiliary head.
        if hasattr(output, "aux_logits"):
            loss = loss + 0.4 * entropy(output.aux_logits, labels)
        return loss

    def _captured(self, work: Step) -> Captured:
        """The work as a CUDA graph, after the warm-up on a side stream that capture asks for."""
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(3):
                work()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            work()
        return Captured(graph, work)

    def _one_ahead(self, launch: Step) -> Step:
        """Launch a step, then wait for the one before: the GPU never waits for the host's loop."""
        before = self.torch.cuda.Event()
        before.record()
        waiting = [before]

        def step() -> None:
            launch()
            done = self.torch.cuda.Event()
            done.record()
            waiting.append(done)
            waiting.pop(0).synchronize()

        return step


def _logits(output: Any) -> Any:
    return output.logits if hasattr(output, "logits") else output


def serve(connection: Connection, environment: dict[str, str]) -> None:
    """A process: answers each message with what came of it, or with the error."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker()
    connection.send(worker.sms())
    while (message := connection.recv()) is not None:
        try:
            connection.send(_answer(worker, *message))
        except Exception as error:
            connection.send(f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _answer(worker: Worker, jobs: list[Job], start_s: float, pace: Pace | None) -> Row:
    """Prepare the jobs; with a pace, run the one job from `start_s` on and time it."""
    steps = [worker.step(job) for job in jobs]
    worker.torch.cuda.synchronize()
    if pace is None:
        return {}
    times = sorted(timed(steps[0], start_s, pace))
    worker.torch.cuda.synchronize()
    return {
        "median_ms": round(statistics.median(times) * 1e3, 4),
        "mean_ms": round(statistics.fmean(times) * 1e3, 4),
        "p99_ms": round(times[math.ceil(0.99 * len(times)) - 1] * 1e3, 4),
        "steps": len(times),
        **({"finite": worker.finite[jobs[0]]} if jobs[0] in worker.finite else {}),
    }


def timed(step: Step, start_s: float, pace: Pace) -> list[float]:
    """Seconds of every step that began and ended in the measured interval."""
    begin_s = start_s + pace.warm_s
    end_s = begin_s + pace.measured_s
    times: list[float] = []
    time.sleep(max(0.0, start_s - time.monotonic()))
    now = time.monotonic()
    # A step longer than the interval would leave nothing to report: go on until there is one.
    while now < end_s + pace.after_s or not times:
        began = now
        step()
        now = time.monotonic()
        if began >= begin_s and (now <= end_s or not times):
            times.append(now - began)
    return times
