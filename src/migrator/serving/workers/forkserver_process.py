"""The forkserver process: `python -m migrator.serving.workers.forkserver_process`.

It imports and builds the tenants' models once, on the host and in one thread, and forks a worker or
a training on request: that has its model at once, as memory is copied only where it is written to.
For a tenant that is added later it forks another forkserver, which imports and builds that model.
It never touches CUDA, opens no network socket, and exits with the daemon.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from migrator.core.errors import InputError
from migrator.io.child_process import Channel, Fault, FaultKind, Release
from migrator.io.spawn import exit_status, exit_with_parent, one_line
from migrator.learn.model import Modality, Model
from migrator.learn.named_tensors import NamedTensorModel
from migrator.learn.registry import build, model_class
from migrator.learn.tokens import HASHED, PADDING, VOCABULARY, tokenizer_of
from migrator.serving.logs import FORMAT_VARIABLE, configure
from migrator.serving.workers.messages import (
    Build,
    Built,
    Duplicate,
    Fork,
    Forked,
    FromForkserver,
    ModelInterface,
    ModelSpec,
    Reap,
    Reaped,
    ToForkserver,
)
from migrator.serving.workers.worker import run_worker

_THREAD_ENDS_S = 1.0
"""A thread that was joined is listed until the system has removed it."""


def main() -> None:
    """Build models and fork processes until the daemon is gone or releases this process."""
    faulthandler.enable()
    code = [1]
    atexit.register(lambda: _exit_at_once(code[0]))  # after what the models register
    # a model that asks torch for a GPU must not open CUDA before the fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    configure(os.environ.get(FORMAT_VARIABLE, "text"))
    control, handles = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    with suppress(ConnectionError):
        ForkserverLoop(Channel(control, ToForkserver), handles).run()
    code[0] = 0


class ForkserverLoop:
    """Answers the daemon's requests, one at a time."""

    def __init__(self, channel: Channel[ToForkserver], handles: socket.socket) -> None:
        """`handles`: where the children's ends of their connections arrive."""
        self._channel, self._handles = channel, handles
        self._models: dict[str, Model] = {}

    def run(self) -> None:
        """Return at the end of the stream or when released."""
        while (frame := self._channel.receive()) is not None:
            answer: FromForkserver | None
            match frame.message:
                case Release():
                    return
                case Build() as request:
                    answer = self._build(request)
                case Fork() as request:
                    answer = self._fork(request)
                case Duplicate():
                    answer = self._duplicate()
                case Reap(pid):
                    answer = Reaped(_status(pid))
            if answer is not None:
                self._channel.send(frame.number, answer)

    def _build(self, request: Build) -> FromForkserver:
        try:
            # the thread that watches the parent is gone before the next fork
            with exit_with_parent(self._channel.socket.fileno()):
                for name in request.ahead:
                    model_class(name)
                    if has_opened_gpu():
                        raise InputError(
                            f"importing {name} uses the GPU, which forked processes cannot use "
                            "then; let its class use the GPU in `to` and later only"
                        )
                built = build_all(request.models)
                for name in request.prepare:
                    _function(name)()
                if has_opened_gpu():
                    raise InputError(
                        f"preparing trainings ({', '.join(request.prepare)}) uses the GPU, which "
                        "forked processes cannot use then"
                    )
        except InputError as error:
            return Fault(FaultKind.INPUT, str(error))
        self._models |= built
        _warn_of_threads()
        gc.collect()
        # A collection writes to the header of every object that it looks at: a worker would get a
        # copy of nearly every page that it shares with this process.
        gc.freeze()
        return Built(
            {
                tenant: model_interface(tenant, model, request.models[tenant])
                for tenant, model in built.items()
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

    def _duplicate(self) -> FromForkserver | None:
        """None in the other forkserver, which has these connections in place of the present."""
        _, handles, _, _ = socket.recv_fds(self._handles, 1, 2)
        with ExitStack() as stack:
            ends = [stack.enter_context(socket.socket(fileno=handle)) for handle in handles]
            if len(ends) < 2:
                return Fault(FaultKind.PROCESS, "too many open files")
            try:
                pid = os.fork()
            except OSError as error:
                return Fault(FaultKind.PROCESS, one_line(error))
            if pid == 0:
                stack.pop_all()
                self._channel.socket.close()
                self._handles.close()
                self._channel, self._handles = Channel(ends[0], ToForkserver), ends[1]
                return None
        return Forked(pid)


def model_interface(name: str, model: Model, spec: ModelSpec) -> ModelInterface:
    """The inputs and outputs of a tenant's model."""
    example, classes, names = model.example(1), spec.classes, spec.class_names
    judges = hasattr(model, "is_correct")
    if isinstance(model, NamedTensorModel):
        return ModelInterface(
            *(name, "", (), classes),
            given_names=names,
            inputs=model.inputs,
            outputs=model.outputs,
            labels=model.labels,
            judges=judges,
        )
    if model.modality == Modality.TEXT:
        # a class of the user's own may read the packaged models' hashed words
        values = getattr(model, "vocabulary", VOCABULARY)
        tokenizer = tokenizer_of(type(model))
        if tokenizer == HASHED and values < VOCABULARY:
            tokenizer = None
        padding = int(getattr(model, "padding", PADDING))
        return ModelInterface(
            *(name, "INT32", example.shape[1:], classes, values, tokenizer, padding, names),
            judges=judges,
        )
    return ModelInterface(
        name, "UINT8", example.shape[1:], classes, given_names=names, judges=judges
    )


def build_all(specs: Mapping[str, ModelSpec]) -> dict[str, Model]:
    """The models by tenant, equal ones built once; InputError for one that cannot be built."""
    for spec in specs.values():
        model_class(spec.model)
    if "torch" in sys.modules:
        # a pool of threads would not survive the fork, and a worker that waits for it would hang
        sys.modules["torch"].set_num_threads(1)
        import_module("migrator.learn.cuda_graphs").load_cudnn()
    models: dict[ModelSpec, Model] = {}
    for tenant, spec in specs.items():
        if spec not in models:
            models[spec] = _build_one(tenant, spec)
    return {tenant: models[spec] for tenant, spec in specs.items()}


def _build_one(tenant: str, spec: ModelSpec) -> Model:
    try:
        pretrained = spec.weights is None
        model = build(
            spec.model,
            spec.classes,
            spec.seed,
            spec.pixels,
            input_pixels=spec.input_pixels,
            pretrained=pretrained,
        )
        if spec.weights is not None:
            model.load(spec.weights)
        # a class without a usable example is reported like one that raises
        model_interface(tenant, model, spec)
        if has_opened_gpu():
            raise InputError(
                f"tenant {tenant}: importing or building {spec.model} uses the GPU, which forked "
                "processes cannot use then; let its class use the GPU in `to` and later only"
            )
        return model
    except InputError:
        raise
    except Exception as error:
        given = "" if spec.weights is None else f" with {spec.weights}"
        raise InputError(
            f"tenant {tenant}: building {spec.model}{given} failed ({one_line(error)}); correct "
            f"the class{' or the file' if given else ''}"
        ) from error


def _warn_of_threads() -> None:
    """A forked process hangs on a lock that was held by a thread which it did not inherit."""
    until_s = time.monotonic() + _THREAD_ENDS_S
    while more := sum(1 for _ in Path("/proc/self/task").iterdir()) - 1:
        if time.monotonic() > until_s:
            break
        time.sleep(0.01)
    else:
        return
    warning = (
        f"importing the models started {more} threads, which forked processes do not have; "
        "start none before the first batch\n"
    )
    with suppress(OSError):  # a full disk; unbuffered, so that nothing is written again later
        os.write(sys.stderr.fileno(), warning.encode())


def has_opened_gpu(folder: Path = Path("/proc/self/fd")) -> bool:
    """Whether this process uses CUDA, which a process that forks must not."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            with suppress(OSError):
                if str(path.readlink()).startswith("/dev/nvidia-uvm"):
                    return True
    return False


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


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
        _exit_at_once(code)


def _exit_at_once(code: int) -> None:
    """Exit without the interpreter's end, which takes torch apart."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a full disk
            stream.flush()
    os._exit(code)


def _write_to(log: Path) -> None:
    """Append the output of this process to that file, or to the forkserver's if that fails."""
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        with suppress(OSError):  # a full disk
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
