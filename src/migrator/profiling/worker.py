"""One process on one share: `python -m migrator.profiling.worker`. Requests and answers are JSON.

Each request and each answer is one line. The end of the input ends the process. The process starts
after its share exists, and imports torch itself, so that the start is measured as well.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from migrator.core.errors import InputError
from migrator.gpu.drivers.nvidia_smi import process_mib
from migrator.learn.registry import model_class
from migrator.profiling.measurements import Job, Task
from migrator.profiling.timing import Pace, Step, percentiles, timed

if TYPE_CHECKING:
    from migrator.profiling.steps import Prepared, Serving

Json = dict[str, Any]

CONTEXT_GIB = 0.5
"""GiB of an instance that a CUDA context occupies before torch allocates memory."""


class Worker:
    """The work of one process. It keeps one model and one step for a similar next request."""

    def __init__(self, device: str, memory_gib: float | None) -> None:
        began = time.monotonic()
        self._torch: Any = import_module("torch")
        self._torch.set_num_threads(1)
        self._steps: Any = import_module("migrator.profiling.steps")
        imported = time.monotonic()
        self._device = device
        if device == "cuda":
            self._open_gpu(memory_gib)
        self.parts_s = {"import_s": imported - began, "context_s": time.monotonic() - imported}
        self._job: Job | None = None
        self._told: Json = {}
        self._serving: tuple[str, Serving] | None = None
        self._step: Step | None = None

    def hello(self, sms: int) -> Json:
        """Description of this process, with the SMs that it sees.

        Under MPS these are the SMs of its share.
        """
        seen = sms
        if self._device == "cuda":
            seen = self._torch.cuda.get_device_properties(0).multi_processor_count
        cuda = self._torch.version.cuda if self._device == "cuda" else None
        return {"sms": seen, "torch": self._torch.__version__, "cuda": cuda, **self.parts_s}

    def check(self, models: list[str]) -> Json:
        """Raise InputError for a model that does not exist or lacks methods."""
        for each in models:
            model_class(each)
        return {}

    def prepare(self, job: Job) -> Json:
        """Prepare to repeat the job."""
        if job == self._job:
            return self._told
        self._make_room(job)
        prepared: Prepared = (
            self._served(job.model).prepared(job.batch)
            if job.task is Task.INFERENCE
            else self._steps.training(job, self._device)
        )
        self._job, self._step = job, prepared.step
        told: Json = {"graph": prepared.graph, "finite": prepared.finite}
        if prepared.note is not None:
            told["note"] = prepared.note
        self._told = told
        return told

    def forget(self) -> Json:
        """Free the memory."""
        self._serving = None
        self._make_room(None)
        return {}

    def run(self, start_s: float, pace: Pace) -> Json:
        """Repeat the job from `start_s` on and return its durations."""
        if self._step is None:
            raise InputError("nothing has been prepared")
        found = percentiles(timed(self._step, start_s, pace))
        self._steps.synchronised(self._device)
        return found | self._memory()

    def start(self, job: Job) -> Json:
        """Measure the start from the class to the first answer, in parts.

        Then measure the capture and the memory.
        """
        self._make_room(job)
        serving = self._served(job.model)
        first_s = serving.first_s()
        began = time.monotonic()
        graph = serving.prepared(job.batch).graph
        capture_s = time.monotonic() - began
        told = {**self.parts_s, **serving.parts_s, "first_s": first_s, "capture_s": capture_s}
        return {**told, "graph": graph, "process_mib": self._process_mib(), **self._memory()}

    def _open_gpu(self, memory_gib: float | None) -> None:
        cuda = self._torch.cuda
        self._torch.zeros(1, device="cuda")
        cuda.synchronize()
        if memory_gib is not None:
            whole_gib = cuda.get_device_properties(0).total_memory / 2**30
            cuda.set_per_process_memory_fraction(
                min(1.0, max(0.01, (memory_gib - CONTEXT_GIB) / whole_gib))
            )

    def _make_room(self, job: Job | None) -> None:
        """Free the kept model unless the job uses the same one.

        Its memory would otherwise count as the job's.
        """
        self._job = self._step = None
        served = None if job is None or job.task is not Task.INFERENCE else job.model
        if self._serving is not None and self._serving[0] != served:
            self._serving = None
        if self._device == "cuda":
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats()

    def _served(self, model: str) -> Serving:
        if self._serving is None or self._serving[0] != model:
            self._serving = (model, self._steps.Serving(model, self._device))
        return self._serving[1]

    def _memory(self) -> Json:
        if self._device != "cuda":
            return {"memory_mib": _resident_mib()}
        return {"memory_mib": round(self._torch.cuda.max_memory_allocated() / 2**20, 1)}

    def _process_mib(self) -> float | None:
        return process_mib(os.getpid()) if self._device == "cuda" else _resident_mib()


def _resident_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)


def _job(told: Json) -> Job:
    return Job(Task(told["task"]), told["model"], told["batch"])


def answered(worker: Worker, asked: Json) -> Json:
    """The result of a request, or the fault: invalid input, too little memory, or another error."""
    doing: dict[str, Callable[[], Json]] = {
        "check": lambda: worker.check(asked["models"]),
        "prepare": lambda: worker.prepare(_job(asked["job"])),
        "forget": worker.forget,
        "run": lambda: worker.run(asked["start_s"], Pace(**asked["pace"])),
        "start": lambda: worker.start(_job(asked["job"])),
    }
    try:
        return {"ok": doing[asked["do"]]()}
    except Exception as error:
        return _fault(error)


def _fault(error: Exception) -> Json:
    said = str(error).partition("\n")[0][:300]
    kinds = [type(each).__name__ for each in (error, error.__cause__)]
    if "OutOfMemoryError" in kinds:
        return {"fault": "memory", "said": said}
    if isinstance(error, InputError):
        return {"fault": "input", "said": said}
    return {"fault": "error", "said": f"{type(error).__name__}: {said}"}


def serve(requests: IO[str], answers: IO[str], about: Json) -> None:
    """Answer requests until the input ends. The first answer describes this process."""
    worker = Worker(about["device"], about["memory_gib"])
    started = {"python_s": max(0.0, about["began_s"] - about["spawned_s"])}
    _send(answers, {"ok": worker.hello(about["sms"]) | started})
    for line in requests:
        told = answered(worker, json.loads(line))
        if "ok" in told and "build_s" in told["ok"]:
            told["ok"] |= started
        _send(answers, told)


def _send(answers: IO[str], message: Json) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def main() -> None:
    """Communicate over the standard streams. Output of libraries goes to stderr."""
    began_s = time.monotonic()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, answers, json.loads(sys.argv[1]) | {"began_s": began_s})
    except BrokenPipeError:
        os._exit(0)  # the parent has closed the connection


if __name__ == "__main__":
    main()
