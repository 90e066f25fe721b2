"""A worker's swap in its own process, without the daemon: the lock, and weights exchanged."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from support.waiting import until

from migrator.core.errors import InputError
from migrator.io.child_process import Channel
from migrator.serving.workers.messages import Assignment, ToWorker, WorkerReady
from migrator.serving.workers.worker import FairLock, Worker

THREADS = """
import threading, time
from migrator.serving.workers.forkserver_process import _warn_of_threads
threading.Thread(target=time.sleep, args=(0.02,)).start()
_warn_of_threads()
print("nothing yet", flush=True)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
_warn_of_threads()
print("goes on", flush=True)
"""


def test_threads_that_stay_are_warned_of() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "nothing yet\ngoes on\n"
    assert "started 1 threads" in done.stderr


def test_a_waiting_thread_gets_the_lock_next() -> None:
    lock, turns = FairLock(), list[str]()

    def wait() -> None:
        with lock:
            turns.append("the thread that waited")

    thread = threading.Thread(target=wait)
    with lock:
        thread.start()
        until(lock._next.locked)  # it waits
    with lock:
        turns.append("the thread that had it")
    thread.join()
    assert turns == ["the thread that waited", "the thread that had it"]


class Captured:
    """Answers with its one weight, and keeps its own memory when it gets another."""

    def __init__(self) -> None:
        self.weight = np.zeros(1, np.float32)
        self.captured: object | None = None

    def begin_serving(self, batch: int) -> None:
        self.captured = f"graphs for {batch}"

    def load(self, path: Path) -> None:
        self.weight[0] = float(path.read_text(encoding="utf-8"))

    def to(self, device: str) -> None:
        assert device == "cpu"
        self.captured = None

    def example(self, batch: int) -> NDArray[np.uint8]:
        return np.zeros((batch, 1), np.uint8)

    def infer(self, inputs: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.tile(self.weight, (len(inputs), 2))

    def exchange(self, other: Self) -> bool:
        if self.captured is None:
            return False
        before = self.weight.copy()
        self.weight[:], other.weight[:] = other.weight, before
        return True


@pytest.mark.parametrize("is_captured", [True, False])
def test_weights_that_cannot_be_used_are_exchanged_back(tmp_path: Path, is_captured: bool) -> None:
    for name in ("1", "2", "nan"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    model: Any = Captured()  # only what a worker calls
    ours, theirs = socket.socketpair()
    with ours, theirs, ExitStack() as stack:
        worker = Worker(Channel(theirs, ToWorker), model, "w", stack)
        taken = worker._take(Assignment("a", "m", tmp_path / "1", 1, "cpu", {}, 4))
        assert isinstance(taken, WorkerReady)
        if not is_captured:
            model.captured = None
        with pytest.raises(InputError, match="NaN"):
            worker._replace(tmp_path / "nan", 2)
        assert worker._served is not None
        assert (worker._served.model, worker._served.version) == (model, 1)
        assert model.weight == 1
        worker._replace(tmp_path / "2", 2)
        assert worker._served.version == 2
        assert (worker._served.model is model) is is_captured
        assert worker._served.model.infer(model.example(1))[0, 0] == 2
