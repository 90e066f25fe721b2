"""What a forked worker does: waits, takes an instance for good, answers batches, ends.

The model was built by the nursery and is there already. CUDA is touched only once the instance
is known. Other weights are made ready in a thread beside the serving and take over between two
batches.
"""

from __future__ import annotations

import copy
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

from migrator.core.errors import InputError
from migrator.gpu.virtual_board import held
from migrator.learn.model import Model
from migrator.serve.assignment import Assignment
from migrator.serve.ending import ending_with
from migrator.serve.logs import Sparing, and_more
from migrator.serve.messages import (
    Fault,
    FromWorker,
    Infer,
    Kind,
    Release,
    Scores,
    Swap,
    Swapped,
    Take,
    Took,
    ToWorker,
)
from migrator.serve.wire import Line, flat, shaped

_NOTHING = memoryview(b"")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """The model that answers now."""

    model: Model
    version: int


def work(end: socket.socket, model: Model, name: str) -> None:
    """A worker's whole life; returns when it is released or the daemon is gone."""
    with suppress(OSError):  # so that `ps` tells workers apart
        Path("/proc/self/comm").write_text(f"migrator {name}"[:15], encoding="utf-8")
    with ending_with(end), suppress(BrokenPipeError), ExitStack() as stack:
        Worker(Line(end, ToWorker), model, name, stack).run()


class Worker:
    """One model on one instance."""

    def __init__(self, line: Line[ToWorker], model: Model, name: str, stack: ExitStack) -> None:
        """`stack`: what is to be undone when it ends."""
        self._line, self._built, self._name, self._stack = line, model, name, stack
        self._sending, self._sparing = Lock(), Sparing()
        self._answering = Lock()
        self._served: Served | None = None
        self._assignment: Assignment | None = None

    def run(self) -> None:
        """Answer until there is nobody to answer, or nothing to answer with."""
        for frame in iter(self._line.receive, None):
            if isinstance(frame.message, Release):
                return
            if isinstance(frame.message, Swap):
                # beside the serving: the daemon asks for one at a time
                Thread(target=self._swap, args=(frame.message,), daemon=True).start()
                continue
            if isinstance(frame.message, Take):
                said, payload = self._take(frame.message), _NOTHING
            else:
                said, payload = self._infer(frame.message, frame.payload)
            self._send(said, payload)
            if isinstance(said, Fault) and said.kind is Kind.PROCESS:
                return

    def _take(self, asked: Take) -> FromWorker:
        try:
            return Took(asked.number, self._taken(asked.assignment))
        except InputError as error:
            return Fault(asked.number, Kind.INPUT, str(error))
        except Exception as error:
            return Fault(asked.number, Kind.PROCESS, in_words(error))

    def _taken(self, assignment: Assignment) -> dict[str, float]:
        os.environ.update(assignment.environment)
        self._stack.enter_context(held(os.environ, f"migrator {self._name}"))
        model = self._built
        parts_s = {
            "load_s": _timed(lambda: loaded(model, assignment.weights)),
            "context_s": _timed(lambda: _open(assignment.device)),
            "copy_s": _timed(lambda: model.to(assignment.device)),
            "first_s": _timed(lambda: _begun(model, assignment.batch)),
        }
        self._served, self._assignment = Served(model, assignment.version), assignment
        return {**parts_s, "total": sum(parts_s.values())}

    def _infer(self, asked: Infer, payload: memoryview) -> tuple[FromWorker, memoryview]:
        began = time.perf_counter()
        served, assignment = self._served, self._assignment
        if served is None or assignment is None:
            said = "it was asked before it took an instance"
            return Fault(asked.number, Kind.PROCESS, said), _NOTHING
        inputs = shaped(asked.shape, asked.dtype, payload)
        try:
            with self._answering:
                served = self._served or served
                shape, _, scores = flat(np.asarray(served.model.infer(inputs), np.float32))
        except InputError as error:
            return self._failed(asked, Kind.INPUT, error), _NOTHING
        except Exception as error:
            lost = assignment.device == "cuda" and _cuda_is_broken()
            return self._failed(asked, Kind.PROCESS if lost else Kind.MODEL, error), _NOTHING
        if assignment.latency_ms is not None:
            least_s = emulated_s(assignment.latency_ms, len(inputs))
            time.sleep(max(0.0, least_s - (time.perf_counter() - began)))
        return Scores(asked.number, shape, served.version, time.perf_counter() - began), scores

    def _failed(self, asked: Infer, kind: Kind, error: Exception) -> Fault:
        """The answer to a batch that failed; told here too, with the place where it did."""
        said = str(error) if kind is Kind.INPUT else in_words(error)
        left_out = self._sparing.admit(kind)
        if left_out is not None:
            _log.warning(
                "worker %s could not answer %s: %s%s",
                self._name,
                asked.request_ids or "a batch",
                said,
                and_more(left_out),
                exc_info=None if kind is Kind.INPUT else error,
                extra={"worker": self._name, "request_ids": asked.request_ids, "fault": kind},
            )
        return Fault(asked.number, kind, said)

    def _swap(self, asked: Swap) -> None:
        try:
            seconds = _timed(lambda: self._replace(asked.weights, asked.version))
            self._send(Swapped(asked.number, seconds), _NOTHING)
        except InputError as error:
            self._send(Fault(asked.number, Kind.INPUT, str(error)), _NOTHING)
        except Exception as error:
            self._send(Fault(asked.number, Kind.MODEL, in_words(error)), _NOTHING)

    def _replace(self, weights: Path, version: int) -> None:
        """Read, moved and tried in full before it takes over; until then nothing has changed."""
        if self._served is None or self._assignment is None:
            raise InputError("weights are swapped where a worker serves; let it take an instance")
        fresh = copy.deepcopy(self._served.model)
        loaded(fresh, weights)
        fresh.to(self._assignment.device)
        warmed(fresh, self._assignment.batch)
        with self._answering:
            self._served = Served(_heir(self._served.model, fresh), version)

    def _send(self, message: FromWorker, payload: memoryview) -> None:
        with self._sending, suppress(ConnectionError):  # its end is noticed by who reads
            self._line.send(message, payload)


def loaded(model: Model, weights: Path | None) -> None:
    """Weights into the model; InputError also where a user's own class raises something else."""
    if weights is None:
        return
    try:
        model.load(weights)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{weights}: cannot be loaded ({in_words(error)}); save the model's weights again"
        ) from error


def warmed(model: Model, batch: int) -> None:
    """The smallest and the largest batch once; InputError if the answers are none."""
    for size in sorted({1, batch}):
        scores = np.asarray(model.infer(model.example(size)))
        if scores.ndim != 2 or len(scores) != size or np.isnan(scores).any():
            raise InputError(
                f"{type(model).__name__} answers {size} inputs with an array of {scores.shape}"
                f"{' that is no number in places' if np.isnan(scores).any() else ''}; its weights "
                "or its class must be corrected"
            )


def _begun(model: Model, batch: int) -> None:
    """Ready to answer and to do nothing else, where it can be told so; and tried."""
    begin = getattr(model, "begin_serving", None)
    if begin is not None:
        begin(batch)
    warmed(model, batch)


def _heir(old: Model, new: Model) -> Model:
    """Who answers from now on: the old one with the new one's weights, or the new one."""
    take_over = getattr(old, "take_over", None)
    return old if take_over is not None and take_over(new) else new


def emulated_s(latency_ms: Mapping[int, float], batch: int) -> float:
    """What a batch takes at least: as the next larger one that was measured."""
    if not latency_ms:
        return 0.0
    enough = [size for size in latency_ms if size >= batch]
    return latency_ms[min(enough) if enough else max(latency_ms)] / 1000


def in_words(error: BaseException) -> str:
    """An error in one line."""
    said = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _open(device: str) -> None:
    """The first touch of CUDA, where it is one."""
    if device != "cuda":
        return
    torch: Any = import_module("torch")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def _cuda_is_broken() -> bool:
    """After some faults every later call fails too: only another process can go on."""
    torch: Any = import_module("torch")
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
