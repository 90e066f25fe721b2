"""The object of a worker process on one share: prepares, repeats and times jobs.

The process starts after its share exists, and imports torch itself, so that the start is measured
as well. `workers` has the parent's side.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from migrator.core.profiles import CONTEXT_MIB
from migrator.gpu.drivers.nvidia_smi import process_mib
from migrator.learn.registry import model_class
from migrator.profiling.measurements import ProcessJob, Repetition, WorkKind

if TYPE_CHECKING:
    from migrator.profiling.steps import InferenceModel, PreparedStep

Json = dict[str, Any]
Step = Callable[[], None]


class ProfileWorker:
    """The work of one process. It keeps one model and one step for a similar next request.

    The parent calls `hello`, `check`, `prepare`, `forget`, `run`, `watch` and `start`.
    """

    def __init__(self, device: str, memory_gib: float | None, spawned_s: float) -> None:
        """`spawned_s`: when the process was started, by the monotonic clock."""
        began = time.monotonic()
        self._torch: Any = import_module("torch")
        self._torch.set_num_threads(1)
        self._steps: Any = import_module("migrator.profiling.steps")
        imported = time.monotonic()
        self._device = device
        if device == "cuda":
            self._open_gpu(memory_gib)
        self._parts_s = {
            "python_s": began - spawned_s,
            "import_s": imported - began,
            "context_s": time.monotonic() - imported,
        }
        self._job: ProcessJob | None = None
        self._description: Json = {}
        self._serving: tuple[ProcessJob, InferenceModel] | None = None
        """The job that it was built for, and the model."""
        self._step: Step | None = None

    def hello(self, sms: int) -> Json:
        """Description of this process, with the SMs that it sees.

        Under MPS these are the SMs of its share.
        """
        cuda = None
        if self._device == "cuda":
            sms = self._torch.cuda.get_device_properties(0).multi_processor_count
            cuda = self._torch.version.cuda
        return {"sms": sms, "torch": self._torch.__version__, "cuda": cuda}

    def check(self, models: list[str]) -> Json:
        """Raise InputError for a model that does not exist or lacks methods."""
        for model in models:
            model_class(model)
        return {}

    def prepare(self, job: ProcessJob) -> Json:
        """Prepare to repeat the job."""
        if job == self._job:
            return self._description
        self._make_room(job)
        if job.task in (WorkKind.WORKER, WorkKind.RETRAINING, WorkKind.ESTIMATE):
            self._steps.occupy(job, self._device)
            return self._held()
        prepared: PreparedStep
        if job.task is WorkKind.INFERENCE:
            prepared = self._served(job).prepared(job.batch)
        elif job.task is WorkKind.COPY:
            prepared = self._steps.copying(job, self._device)
        else:
            prepared = self._steps.training(job, self._device)
        self._job, self._step = job, prepared.step
        self._description = {"graph": prepared.graph, "finite": prepared.finite}
        if prepared.note is not None:
            self._description["note"] = prepared.note
        return self._description

    def forget(self) -> Json:
        """Free the memory."""
        self._serving = None
        self._make_room(None)
        return {}

    def run(self, start_s: float, pace: Repetition) -> Json:
        """Repeat the job from `start_s` on and return its durations."""
        assert self._step is not None, "nothing has been prepared"
        figures = percentiles(time_steps(self._step, start_s, pace))
        self._steps.synchronize(self._device)
        return figures | self._memory() | self._device_memory()

    def watch(self, seconds: float) -> Json:
        """Repeat the job for some time; when every step began and how long it took."""
        assert self._step is not None, "nothing has been prepared"
        began_s: list[float] = []
        took_s: list[float] = []
        now = time.monotonic()
        until_s = now + seconds
        while now < until_s:
            began_s.append(now)
            self._step()
            now = time.monotonic()
            took_s.append(now - began_s[-1])
        self._steps.synchronize(self._device)
        return {"began_s": began_s, "took_s": took_s}

    def start(self, job: ProcessJob) -> Json:
        """Measure the start from the class to the first answer, in parts.

        Then measure the capture and the memory.
        """
        self._make_room(job)
        serving = self._served(job)
        first_s = serving.first_s()
        began = time.monotonic()
        graph = serving.prepared(job.batch).graph
        parts_s = {"first_s": first_s, "capture_s": time.monotonic() - began}
        process = process_mib(os.getpid()) if self._device == "cuda" else _resident_mib()
        return {
            **self._parts_s,
            **serving.parts_s,
            **parts_s,
            "graph": graph,
            "process_mib": process,
            **self._memory(),
        }

    def _open_gpu(self, memory_gib: float | None) -> None:
        cuda = self._torch.cuda
        self._torch.zeros(1, device="cuda")
        cuda.synchronize()
        if memory_gib is not None:
            whole_gib = cuda.get_device_properties(0).total_memory / 2**30
            cuda.set_per_process_memory_fraction(
                min(1.0, max(0.01, (memory_gib - CONTEXT_MIB / 1024) / whole_gib))
            )

    def _make_room(self, job: ProcessJob | None) -> None:
        """Free the kept model unless the job uses the same one.

        Its memory would otherwise count as the job's.
        """
        self._job = self._step = None
        served = job is not None and job.task is WorkKind.INFERENCE and self._serves(job)
        if not served:
            self._serving = None
        if self._device == "cuda":
            gc.collect()  # a captured step in a cycle keeps its memory
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats()

    def _serves(self, job: ProcessJob) -> bool:
        """Whether the kept model is the job's."""
        kept = None if self._serving is None else self._serving[0]
        return kept is not None and (kept.model, kept.images) == (job.model, job.images)

    def _served(self, job: ProcessJob) -> InferenceModel:
        if self._serving is None or not self._serves(job):
            self._serving = (job, self._steps.InferenceModel(job, self._device))
        return self._serving[1]

    def _held(self) -> Json:
        """What this process has taken from the GPU for its job.

        The driver does not count what the MPS server takes for it, hence at least `CONTEXT_MIB`
        beside what torch allocated.
        """
        if self._device != "cuda":
            return {"held_mib": _resident_mib()}
        cuda, mib = self._torch.cuda, 2**20
        process = process_mib(os.getpid())
        context = max(CONTEXT_MIB, (process or 0.0) - cuda.memory_reserved() / mib)
        held = {
            "context_mib": round(context, 1),
            "held_mib": round(context + cuda.max_memory_reserved() / mib, 1),
            **self._memory(),
        }
        self._make_room(None)
        return held

    def _device_memory(self) -> Json:
        """The memory of the instance; under MPS that of the whole GPU."""
        if self._device != "cuda":
            return {}
        total = self._torch.cuda.get_device_properties(0).total_memory
        return {"device_mib": round(total / 2**20, 1)}

    def _memory(self) -> Json:
        if self._device != "cuda":
            return {"memory_mib": _resident_mib()}
        return {"memory_mib": round(self._torch.cuda.max_memory_allocated() / 2**20, 1)}


def time_steps(step: Step, start_s: float, pace: Repetition) -> list[float]:
    """Seconds of each step that began and ended in the measured interval.

    `start_s` is on the monotonic clock, which all processes of a machine share.
    """
    begin_s = start_s + pace.warm_s
    end_s = begin_s + pace.measured_s
    times: list[float] = []
    time.sleep(max(0.0, start_s - time.monotonic()))
    now = time.monotonic()
    # A step that is longer than the interval would give no result, so continue until there is one.
    while now < end_s + pace.after_s or not times:
        began = now
        step()
        now = time.monotonic()
        if began >= begin_s and (now <= end_s or not times):
            times.append(now - began)
    return times


def percentiles(times_s: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile and mean in milliseconds, and the number of steps."""
    ordered = sorted(times_s)
    figures_s = {
        "p50_ms": statistics.median(ordered),
        "p95_ms": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "p99_ms": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "mean_ms": statistics.fmean(ordered),
    }
    # Nanosecond precision, because a step on a fast CPU takes a few microseconds.
    rounded = {name: round(figure_s * 1e3, 6) for name, figure_s in figures_s.items()}
    return {**rounded, "steps": len(ordered)}


def _resident_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)
