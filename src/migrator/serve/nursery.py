"""Where workers come from: `python -m migrator.serve.nursery`, started by the daemon.

It imports and builds the tenants' models once, on the host and in one thread, and forks a worker
whenever it is asked to: the worker has its model at once, for memory is copied only where
somebody writes. It never touches CUDA, opens no network socket, and ends with the daemon.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from migrator.core.errors import InputError
from migrator.learn.model import Modality, Model
from migrator.learn.registry import build, model_class
from migrator.learn.text import VOCABULARY
from migrator.serve.assignment import InputKind, ModelSpec
from migrator.serve.ending import ending_with
from migrator.serve.logs import FORMAT_VARIABLE, configure
from migrator.serve.messages import (
    Build,
    Built,
    Fault,
    Fork,
    Forked,
    Kind,
    Reap,
    Reaped,
    ToNursery,
)
from migrator.serve.wire import PACKET, packed, unpacked
from migrator.serve.worker import in_words, work


def main() -> None:
    """Build, then fork on request until the daemon is gone."""
    faulthandler.enable()
    # whoever asks torch whether there is a GPU must not open CUDA before the fork
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    configure(os.environ.get(FORMAT_VARIABLE, "text"))
    control = socket.socket(fileno=int(sys.argv[1]))
    began, models = time.perf_counter(), None
    # a model may take long to build; the watching thread is gone before the first fork
    with ending_with(control), suppress(ConnectionError):
        models = _built(control)
    if models is None:  # the daemon ended before it said what to build
        return
    _tell_threads()
    gc.collect()
    gc.freeze()  # a collection in a worker would write to every page it inherited
    with suppress(ConnectionError):  # gone between question and answer
        inputs = {tenant: input_kind(each) for tenant, each in models.items()}
        _send(control, Built(time.perf_counter() - began, inputs))
        _forking(control, models)


def input_kind(model: Model) -> InputKind:
    """What one row of the model's inputs looks like."""
    example = model.example(1)
    if model.modality == Modality.TEXT:
        return InputKind("INT32", example.shape[1:], VOCABULARY)
    return InputKind("UINT8", example.shape[1:], 256)


def _forking(control: socket.socket, models: dict[str, Model]) -> None:
    while True:
        packet, handles, _, _ = socket.recv_fds(control, PACKET, 1)
        if not packet:
            return
        asked = unpacked(ToNursery, packet)
        if isinstance(asked, Fork):
            if handles:
                _fork(control, handles[0], models[asked.tenant], asked.worker)
            else:  # the kernel drops what a process at its limit of open files cannot take
                _send(control, Fault(0, Kind.PROCESS, "too many open files"))
        elif isinstance(asked, Reap):
            _send(control, Reaped(_how(asked.pid)))
        else:
            _build_more(control, models, asked)


def _build_more(control: socket.socket, models: dict[str, Model], asked: Build) -> None:
    """Models of tenants that came later; what is built stays whatever becomes of these."""
    began = time.perf_counter()
    try:
        with ending_with(control):
            more = build_all(asked.models)
    except InputError as error:
        _send(control, Fault(0, Kind.INPUT, str(error)))
        return
    models |= more
    _tell_threads()
    gc.collect()
    gc.freeze()
    inputs = {tenant: input_kind(each) for tenant, each in more.items()}
    _send(control, Built(time.perf_counter() - began, inputs))


def _built(control: socket.socket) -> dict[str, Model] | None:
    """Every tenant's model; ends here when one cannot be built, after saying so.

    None: the daemon is gone.
    """
    packet = control.recv(PACKET)
    if not packet:
        return None
    asked = unpacked(ToNursery, packet)
    assert isinstance(asked, Build)
    try:
        for each in asked.ahead:
            model_class(each)
        return build_all(asked.models)
    except InputError as error:
        _send(control, Fault(0, Kind.INPUT, str(error)))
        sys.exit(2)


def _tell_threads() -> None:
    """Into the log: a worker may hang where a lock was held by a thread it did not inherit."""
    more = sum(1 for _ in Path("/proc/self/task").iterdir()) - 1
    if more:
        print(
            f"importing the models started {more} threads, without which workers must do; see "
            "that none starts before the first batch",
            file=sys.stderr,
            flush=True,
        )


def build_all(specs: Mapping[str, ModelSpec]) -> dict[str, Model]:
    """The models by tenant, equal ones built once; InputError names what cannot be built."""
    for each in specs.values():
        model_class(each.model)
    if "torch" in sys.modules:
        # a pool of threads would not survive the fork, and whoever waits for it hangs
        sys.modules["torch"].set_num_threads(1)
    made: dict[ModelSpec, Model] = {}
    for tenant, spec in specs.items():
        if spec not in made:
            made[spec] = _one(tenant, spec)
    return {tenant: made[spec] for tenant, spec in specs.items()}


def _one(tenant: str, spec: ModelSpec) -> Model:
    try:
        model = build(spec.model, spec.classes, spec.seed, spec.pixels)
        input_kind(model)  # so that a class without a usable example is named like one that raises
        return model
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"tenant {tenant}: building {spec.model} failed ({in_words(error)}); correct the class"
        ) from error


def _fork(control: socket.socket, handle: int, model: Model, name: str) -> None:
    end = socket.socket(fileno=handle)
    try:
        pid = os.fork()
    except OSError as error:
        end.close()
        _send(control, Fault(0, Kind.PROCESS, in_words(error)))
        return
    if pid == 0:
        control.close()
        _live(end, model, name)
    end.close()
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _send(control, Fault(0, Kind.PROCESS, in_words(error)))
        return
    socket.send_fds(control, [packed(Forked(pid))], [process])
    os.close(process)


def _live(end: socket.socket, model: Model, name: str) -> None:
    """The forked process; it never returns into the nursery's loop."""
    code = 1
    try:
        work(end, model, name)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # at once: a regular end would take torch apart first


def _how(pid: int) -> str:
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return "ended"  # a worker of the nursery before this one
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def _send(control: socket.socket, message: Struct) -> None:
    control.send(packed(message))


if __name__ == "__main__":
    main()
