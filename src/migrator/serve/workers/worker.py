"""Worker processes, and the forkserver: `python -m migrator.serve.workers.worker`.

The forkserver imports and builds the tenants' models once, on the host and in one thread, and forks
a worker or a training on request: that has its model at once, as memory is copied only where it is
written to. It never touches CUDA, opens no network socket, and exits with the daemon.

A worker takes one instance, answers batches, swaps weights, exits. It touches CUDA only once the
instance is known. Other weights are prepared in a thread beside the serving and take over between
two batches.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

from migrator.core.errors import InputError
from migrator.gpu.drivers.virtual_board import register_use
from migrator.io.child_process import (
    Channel,
    Fault,
    FaultKind,
    Release,
    decode_array,
    encode_array,
    end_on_request,
    exit_status,
    exit_with_parent,
    one_line,
)
from migrator.learn.model import Modality, Model
from migrator.learn.registry import build, model_class
from migrator.learn.text import HASHED, PADDING, VOCABULARY, tokenizer_of
from migrator.serve.logs import FORMAT_VARIABLE, LineLimiter, configure
from migrator.serve.workers.messages import (
    Assignment,
    Build,
    Built,
    Fork,
    Forked,
    FromForkserver,
    FromWorker,
    GpuUsed,
    Infer,
    ModelInterface,
    ModelSpec,
    Ready,
    Reap,
    Reaped,
    Scores,
    Swap,
    Swapped,
    ToForkserver,
    ToWorker,
)

_EMPTY = memoryview(b"")

_log = logging.getLogger("migrator.serve.workers.worker")  # this module runs as __main__


@dataclass(frozen=True)
class ServedModel:
    """The model that answers now."""

    model: Model
    version: int


def run_worker(end: socket.socket, model: Model, name: str) -> None:
    """Answer requests; returns when released or when the daemon is gone."""
    with suppress(OSError):  # the name that `ps` shows
        Path("/proc/self/comm").write_text(f"migrator {name}"[:15], encoding="utf-8")
    with exit_with_parent(end), end_on_request(), suppress(BrokenPipeError), ExitStack() as stack:
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
        self._served: ServedModel | None = None
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
            else:
                answer, payload = self._infer(frame.message, frame.payload)
            self._send(frame.number, answer, payload)
            if isinstance(answer, Fault) and answer.kind is FaultKind.PROCESS:
                return

    def _take(self, assignment: Assignment) -> FromWorker:
        try:
            os.environ.update(assignment.environment)
            self._stack.enter_context(register_use(os.environ, f"migrator {self._name}"))
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
        self._served, self._assignment = ServedModel(model, assignment.version), assignment
        return Ready({**parts_s, "total": sum(parts_s.values())})

    def _infer(self, request: Infer, payload: memoryview) -> tuple[FromWorker, memoryview]:
        began = time.perf_counter()
        served, assignment = self._served, self._assignment
        if served is None or assignment is None:
            return Fault(FaultKind.PROCESS, "got a batch before it took an instance"), _EMPTY
        inputs = decode_array(request.shape, request.dtype, payload)
        try:
            with self._answering:
                served = self._served or served
                shape, _, scores = encode_array(np.asarray(served.model.infer(inputs), np.float32))
        except InputError as error:
            return self._report_failure(request, FaultKind.INPUT, error), _EMPTY
        except Exception as error:
            lost = assignment.device == "cuda" and _cuda_is_broken()
            kind = FaultKind.PROCESS if lost else FaultKind.MODEL
            return self._report_failure(request, kind, error), _EMPTY
        if assignment.latency_ms is not None:
            least_s = emulated_s(assignment.latency_ms, len(inputs))
            time.sleep(max(0.0, least_s - (time.perf_counter() - began)))
        return Scores(shape, served.version), scores

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
        if served is None or assignment is None:
            raise InputError("weights can be swapped only once the worker has taken an instance")
        with self._beside(assignment.device):
            fresh = copy.deepcopy(served.model)
            load_weights(fresh, weights)
            fresh.to(assignment.device)
            if self._exchange(served.model, fresh, version):
                return
            warm_up(fresh, assignment.batch)
        with self._answering:
            self._served = ServedModel(fresh, version)

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
            self._served = ServedModel(old, version)
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
        if scores.ndim != 2 or len(scores) != size or np.isnan(scores).any():
            raise InputError(
                f"{type(model).__name__} answers {size} inputs with an array of {scores.shape}"
                f"{' that contains NaN' if np.isnan(scores).any() else ''}; correct its weights or "
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
    """Create the CUDA context."""
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


class GpuUsedError(InputError):
    """A model used the GPU when it was built."""


def main() -> None:
    """Build models and fork processes until the daemon is gone or releases this process."""
    faulthandler.enable()
    # a model that asks torch for a GPU must not open CUDA before the fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    configure(os.environ.get(FORMAT_VARIABLE, "text"))
    control, handles = (socket.socket(fileno=int(each)) for each in sys.argv[1:3])
    with suppress(ConnectionError):
        ForkserverLoop(Channel(control, ToForkserver), handles).run()


class ForkserverLoop:
    """Answers the daemon's requests, one at a time."""

    def __init__(self, channel: Channel[ToForkserver], handles: socket.socket) -> None:
        """`handles`: where the children's ends of their connections arrive."""
        self._channel, self._handles = channel, handles
        self._models: dict[str, Model] = {}

    def run(self) -> None:
        """Return at the end of the stream or when released."""
        for frame in iter(self._channel.receive, None):
            answer: FromForkserver
            match frame.message:
                case Release():
                    return
                case Build() as request:
                    answer = self._build(request)
                case Fork() as request:
                    answer = self._fork(request)
                case Reap(pid):
                    answer = Reaped(_status(pid))
            self._channel.send(frame.number, answer)

    def _build(self, request: Build) -> FromForkserver:
        try:
            # the thread that watches the parent is gone before the next fork
            with exit_with_parent(self._channel.socket):
                for each in request.ahead:
                    model_class(each)
                built = build_all(request.models)
                for each in request.prepare:
                    _function(each)()
        except GpuUsedError as error:
            return GpuUsed(str(error))
        except InputError as error:
            return Fault(FaultKind.INPUT, str(error))
        self._models |= built
        _warn_of_threads()
        gc.collect()
        gc.freeze()  # a collection in a worker would write to every page it inherited
        return Built(
            {
                tenant: model_interface(tenant, each, request.models[tenant].classes)
                for tenant, each in built.items()
            }
        )

    def _fork(self, request: Fork) -> FromForkserver:
        _, handles, _, _ = socket.recv_fds(self._handles, 1, 1)
        if not handles:  # the kernel drops what a process at its limit of open files cannot take
            return Fault(FaultKind.PROCESS, "too many open files")
        with socket.socket(fileno=handles[0]) as end:
            if request.tenant not in self._models:
                return Fault(FaultKind.INPUT, f"tenant {request.tenant} has no model here; add it")
            try:
                pid = os.fork()
            except OSError as error:
                return Fault(FaultKind.PROCESS, one_line(error))
            if pid == 0:
                self._channel.socket.close()
                self._handles.close()
                _run_forked(end, self._models[request.tenant], request)
        return Forked(pid)


def model_interface(name: str, model: Model, classes: int) -> ModelInterface:
    """The inputs and outputs of a tenant's model."""
    example = model.example(1)
    if model.modality == Modality.TEXT:
        # a class of the user's own may read the packaged models' hashed words
        values = getattr(model, "vocabulary", VOCABULARY)
        tokenizer = tokenizer_of(type(model))
        if tokenizer == HASHED and values < VOCABULARY:
            tokenizer = None
        padding = int(getattr(model, "padding", PADDING))
        return ModelInterface(name, "INT32", example.shape[1:], classes, values, tokenizer, padding)
    return ModelInterface(name, "UINT8", example.shape[1:], classes)


def build_all(specs: Mapping[str, ModelSpec]) -> dict[str, Model]:
    """The models by tenant, equal ones built once; InputError for one that cannot be built."""
    for each in specs.values():
        model_class(each.model)
    if "torch" in sys.modules:
        # a pool of threads would not survive the fork, and a worker that waits for it would hang
        sys.modules["torch"].set_num_threads(1)
        import_module("migrator.learn.cuda_graphs").load_cudnn()
    made: dict[ModelSpec, Model] = {}
    for tenant, spec in specs.items():
        if spec not in made:
            made[spec] = _build_one(tenant, spec)
    return {tenant: made[spec] for tenant, spec in specs.items()}


def _build_one(tenant: str, spec: ModelSpec) -> Model:
    try:
        pretrained = spec.weights is None
        model = build(spec.model, spec.classes, spec.seed, spec.pixels, pretrained=pretrained)
        if spec.weights is not None:
            model.load(spec.weights)
        if spec.input_pixels is not None:
            _set_input_pixels(model, spec)
        # a class without a usable example is reported like one that raises
        model_interface(tenant, model, spec.classes)
        if has_opened_gpu():
            raise GpuUsedError(
                f"tenant {tenant}: importing or building {spec.model} uses the GPU, which forked "
                "processes cannot use then; let its class use the GPU in `to` and later only"
            )
        return model
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"tenant {tenant}: building {spec.model} failed ({one_line(error)}); correct the class"
        ) from error


def _set_input_pixels(model: Model, spec: ModelSpec) -> None:
    if not hasattr(model, "input_pixels"):
        raise InputError(
            f"live.input_pixels: {spec.model} does not resize images; leave the key out"
        )
    model.input_pixels = spec.input_pixels


def _warn_of_threads() -> None:
    """A forked process hangs on a lock that was held by a thread which it did not inherit."""
    more = sum(1 for _ in Path("/proc/self/task").iterdir()) - 1
    if more:
        print(
            f"importing the models started {more} threads, which forked processes do not have; "
            "start none before the first batch",
            file=sys.stderr,
            flush=True,
        )


def has_opened_gpu(folder: Path = Path("/proc/self/fd")) -> bool:
    """Whether this process uses CUDA, which a process that forks must not."""
    with suppress(OSError):
        for each in list(folder.iterdir()):
            with suppress(OSError):
                if str(each.readlink()).startswith("/dev/nvidia-uvm"):
                    return True
    return False


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _run_forked(end: socket.socket, model: Model, request: Fork) -> None:
    """The forked process; never returns."""
    code = 1
    try:
        if request.log is not None:
            _write_to(request.log)
        run = run_worker if request.runs is None else _function(request.runs)
        run(end, model, request.name)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a regular exit would take torch apart first


def _write_to(log: Path) -> None:
    """Append the output of this process to that file, or to the forkserver's if that fails."""
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        print(f"{log} cannot be written: {one_line(error)}", file=sys.stderr, flush=True)
        return
    for standard in (sys.stdout, sys.stderr):
        standard.flush()
        os.dup2(file, standard.fileno())
    os.close(file)


def _status(pid: int) -> str:
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return "ended"  # forked by the forkserver before this one
    return exit_status(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
