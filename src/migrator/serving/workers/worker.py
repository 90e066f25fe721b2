"""A worker process: takes one instance, answers batches, swaps weights, exits.

It touches CUDA only once the instance is known. Other weights are prepared in a thread beside the
serving and take over between two batches.
"""

from __future__ import annotations

import copy
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

from migrator.core.errors import InputError
from migrator.core.tensors import has_nan
from migrator.gpu.drivers.virtual_board import register_use, take_memory
from migrator.io.child_process import Channel, Fault, FaultKind, Release, decode_array, encode_array
from migrator.io.spawn import one_line, running_as_child
from migrator.learn.held_memory import held_mib
from migrator.learn.model import Model
from migrator.learn.named_tensors import compare
from migrator.serving.logs import LineLimiter
from migrator.serving.tracing import exporters
from migrator.serving.workers.messages import (
    Assignment,
    FromWorker,
    Infer,
    Judge,
    Judged,
    Scores,
    Swap,
    Swapped,
    ToWorker,
    WorkerReady,
)

_EMPTY = memoryview(b"")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """The model that answers now."""

    model: Model
    version: int


def run_worker(end: socket.socket, model: Model, name: str) -> None:
    """Answer requests; returns when released or when the daemon is gone."""
    with running_as_child(end.fileno(), f"migrator {name}"), ExitStack() as stack:
        Worker(Channel(end, ToWorker), model, name, stack).run()


class FairLock:
    """A lock that a waiting thread gets before the one that has just released it."""

    def __init__(self) -> None:
        self._next, self._held = Lock(), Lock()

    def __enter__(self) -> None:
        with self._next:
            self._held.acquire()

    def __exit__(self, *_: object) -> None:
        self._held.release()


class Worker:
    """One model on one instance."""

    def __init__(
        self, channel: Channel[ToWorker], model: Model, name: str, stack: ExitStack
    ) -> None:
        """`stack`: closed when the worker ends."""
        self._channel, self._built, self._name, self._stack = channel, model, name, stack
        self._sending, self._log_lines = Lock(), LineLimiter()
        # batch follows batch under load: with a plain lock a swap might never get its turn
        self._answering = FairLock()
        self._served: LoadedModel | None = None
        self._assignment: Assignment | None = None
        self._stream: Any = None
        """For copies beside the serving, on a GPU."""

    def run(self) -> None:
        """Answer until released, at the end of the stream, or when the process cannot continue."""
        for frame in iter(self._channel.receive, None):
            if isinstance(frame.message, Release):
                return
            if isinstance(frame.message, Swap):
                # beside the serving: the daemon requests one at a time
                Thread(target=self._swap, args=(frame.number, frame.message), daemon=True).start()
                continue
            if isinstance(frame.message, Assignment):
                answer, payload = self._take(frame.message), _EMPTY
            elif isinstance(frame.message, Judge):
                answer, payload = self._judge(frame.message, frame.payload), _EMPTY
            else:
                answer, payload = self._infer(frame.message, frame.payload)
            self._send(frame.number, answer, payload)
            if isinstance(answer, Fault) and answer.kind is FaultKind.PROCESS:
                return

    def _take(self, assignment: Assignment) -> FromWorker:
        try:
            if exporters():  # imported now, not for the first traced batch
                import_module("migrator.serving.spans")
            os.environ.update(assignment.environment)
            self._stack.enter_context(register_use(os.environ, f"migrator {self._name}"))
            take_memory(*assignment.emulated_mib)
            model = self._built
            parts_s = {
                "load_s": _seconds(lambda: load_weights(model, assignment.weights)),
                "context_s": _seconds(lambda: _open_device(assignment.device)),
                "copy_s": _seconds(lambda: model.to(assignment.device)),
                "first_s": _seconds(lambda: warm_up(model, assignment.batch, begin=True)),
            }
        except InputError as error:
            return Fault(FaultKind.INPUT, str(error))
        except Exception as error:
            return Fault(FaultKind.PROCESS, one_line(error))
        self._served, self._assignment = LoadedModel(model, assignment.version), assignment
        total = {**parts_s, "total": sum(parts_s.values())}
        return WorkerReady(total, held_mib(assignment.device))

    def _infer(self, request: Infer, payload: memoryview) -> tuple[FromWorker, memoryview]:
        began_s = time.monotonic()
        served, assignment = self._served, self._assignment
        assert served is not None
        assert assignment is not None
        inputs = decode_array(request.shape, request.dtype, payload)
        try:
            with self._answering, _in_trace(request.trace_context):
                served = self._served or served
                outputs = np.asarray(served.model.infer(inputs))
                if outputs.dtype.names is None:
                    outputs = outputs.astype(np.float32, copy=False)
                shape, dtype, scores = encode_array(outputs)
        except InputError as error:
            return self._report_failure(request, FaultKind.INPUT, error), _EMPTY
        except Exception as error:
            lost = assignment.device == "cuda" and _cuda_is_broken()
            kind = FaultKind.PROCESS if lost else FaultKind.MODEL
            return self._report_failure(request, kind, error), _EMPTY
        if assignment.latency_ms is not None:
            least_s = emulated_s(assignment.latency_ms, len(inputs))
            time.sleep(max(0.0, least_s - (time.monotonic() - began_s)))
        return Scores(shape, served.version, began_s, time.monotonic(), dtype), scores

    def _judge(self, request: Judge, payload: memoryview) -> FromWorker:
        served = self._served
        assert served is not None
        answers = decode_array(request.shape, request.dtype, payload)
        try:
            correct, _ = compare(served.model, answers["outputs"], answers["label"])
        except InputError as error:
            return Fault(FaultKind.INPUT, str(error))
        except Exception as error:
            return Fault(FaultKind.MODEL, one_line(error))
        return Judged(tuple(correct.tolist()))

    def _report_failure(self, request: Infer, kind: FaultKind, error: Exception) -> Fault:
        """The answer to a batch that failed; the traceback goes into the worker's own log."""
        reason = str(error) if kind is FaultKind.INPUT else one_line(error)
        self._log_lines.log(
            _log,
            logging.WARNING,
            kind,
            f"worker {self._name} could not answer {request.request_ids or 'a batch'}: {reason}",
            error=None if kind is FaultKind.INPUT else error,
            worker=self._name,
            request_ids=request.request_ids,
            fault=kind,
        )
        return Fault(kind, reason)

    def _swap(self, number: int, request: Swap) -> None:
        answer: FromWorker
        try:
            answer = Swapped(_seconds(lambda: self._replace(request.weights, request.version)))
        except InputError as error:
            answer = Fault(FaultKind.INPUT, str(error))
        except Exception as error:
            answer = Fault(FaultKind.MODEL, one_line(error))
        self._send(number, answer, _EMPTY)

    def _replace(self, weights: Path, version: int) -> None:
        """Load the weights into a copy beside the serving, and try them before they serve."""
        served, assignment = self._served, self._assignment
        assert served is not None
        assert assignment is not None
        with self._beside(assignment.device):
            fresh = copy.deepcopy(served.model)
            load_weights(fresh, weights)
            fresh.to(assignment.device)
            if self._exchange(served.model, fresh, version):
                return
            warm_up(fresh, assignment.batch)
        with self._answering:
            self._served = LoadedModel(fresh, version)

    def _exchange(self, old: Any, fresh: Model, version: int) -> bool:
        """Whether the model that serves keeps what it optimised and takes the weights of the copy.

        Between two batches: loading them there, tensor by tensor, would wait for a batch each time.
        """
        with self._answering:
            if not hasattr(old, "exchange") or not old.exchange(fresh):
                return False
            try:
                warm_up(old, 1)
            except BaseException:
                old.exchange(fresh)
                if self._stream is not None:
                    self._stream.synchronize()  # the next batch must not see a part of it
                raise
            self._served = LoadedModel(old, version)
        return True

    @contextmanager
    def _beside(self, device: str) -> Iterator[None]:
        """Copies of another thread on a GPU need not wait for the batches that are answered."""
        if device != "cuda":
            yield
            return
        cuda: Any = import_module("torch").cuda
        self._stream = self._stream or cuda.Stream(priority=-1)
        with cuda.stream(self._stream):
            yield
            self._stream.synchronize()

    def _send(self, number: int, message: FromWorker, payload: memoryview) -> None:
        with self._sending, suppress(ConnectionError):  # the reader sees the end of the stream
            self._channel.send(number, message, payload)


def _in_trace(trace_context: Mapping[str, str] | None) -> AbstractContextManager[None]:
    """What the model calls through OpenTelemetry's API belongs to the trace of its batch."""
    if not trace_context:
        return nullcontext()
    within: AbstractContextManager[None] = import_module("migrator.serving.spans").continued(
        trace_context
    )
    return within


def load_weights(model: Model, weights: Path | None) -> None:
    """InputError also where a user's own class raises something else."""
    if weights is None:
        return
    try:
        model.load(weights)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{weights}: cannot be loaded ({one_line(error)}); save the model's weights again"
        ) from error


def warm_up(model: Model, batch: int, *, begin: bool = False) -> None:
    """Run the smallest and the largest batch once; InputError if the scores are unusable.

    `begin`: first let the model optimise itself for serving where it can (`begin_serving`).
    """
    if begin and hasattr(model, "begin_serving"):
        model.begin_serving(batch)
    for size in sorted({1, batch}):
        scores = np.asarray(model.infer(model.example(size)))
        is_named = scores.dtype.names is not None  # their shapes were compared with the declared
        if (scores.ndim != 2 and not is_named) or len(scores) != size or has_nan(scores).any():
            raise InputError(
                f"{type(model).__name__} answers {size} inputs with an array of {scores.shape}"
                f"{' that contains NaN' if has_nan(scores).any() else ''}; correct its weights or "
                "its class"
            )


def emulated_s(latency_ms: Mapping[int, float], batch: int) -> float:
    """The least seconds of a batch: those of the next larger batch that was measured."""
    if not latency_ms:
        return 0.0
    enough = [size for size in latency_ms if size >= batch]
    return latency_ms[min(enough) if enough else max(latency_ms)] / 1000


def _seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _open_device(device: str) -> None:
    if device != "cuda":
        return
    torch: Any = import_module("torch")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def _cuda_is_broken() -> bool:
    """After some faults every later CUDA call fails too: the process must be replaced."""
    torch: Any = import_module("torch")
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
