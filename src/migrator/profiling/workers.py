"""The parent's side of worker processes: start on a share, send requests, always end them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack

from migrator.core.errors import MigratorError
from migrator.io.object_process import CallFailedError, ObjectProcess
from migrator.io.spawn import ChildLostError
from migrator.profiling.drivers import Driver, GpuShare, Json
from migrator.profiling.measurements import Measurement, Partition
from migrator.profiling.worker import ProfileWorker

WorkerKey = tuple[Partition, int, int]
"""Division of the GPU, SMs of a process, and its number among the processes of its size."""

ANSWER_S = 240.0
"""Seconds after which a process without an answer counts as lost."""
_END_S = 10.0
START_S = 4.0
"""Seconds in which processes start, until that was measured."""


class ProfileWorkerLostError(MigratorError):
    """A worker process exited or does not answer."""

    measurement: Measurement | None = None
    """The measurement in which it was lost, if that is known."""


class ProfileWorkerProcess:
    """One process on one share."""

    def __init__(self, share: GpuShare, device: str) -> None:
        self._share = share
        self._process = ObjectProcess(
            "a worker process",
            ProfileWorker,
            *(device, share.memory_gib, time.monotonic()),
            environment={**os.environ, **share.environment},
            keeps_output=True,
            finishes_calls=True,  # under MPS the exit of a busy process breaks its neighbours
        )
        self.ask("hello", share.sms)
        self.hello: Json | None = None

    def ready(self) -> Json:
        """The process's description. Raises an error if its share is not the requested one."""
        if self.hello is None:
            self.hello = self.answer()
            seen = self.hello["sms"]
            if seen != self._share.sms:
                raise MigratorError(
                    f"a share of {self._share.sms} SMs was asked for and {seen} were given; see "
                    "that no other program sets what CUDA sees (another MPS daemon, "
                    "CUDA_VISIBLE_DEVICES), and try again"
                )
        return self.hello

    def ask(self, request: str, *arguments: object) -> None:
        """Send a request, which is a method of `ProfileWorker`."""
        self._process.call(request, *arguments)

    def answer(self, timeout_s: float = ANSWER_S) -> Json:
        """The next answer, which for a failed request says why: "fault" and "said".

        Raises ProfileWorkerLostError if none arrives.
        """
        try:
            answer: Json = self._process.answer(timeout_s)
        except ChildLostError as error:
            raise ProfileWorkerLostError(str(error)) from error
        except CallFailedError as error:
            return {"fault": _kind(error), "said": str(error).partition("\n")[0][:300]}
        return answer

    def hang_up(self) -> None:
        """Close the connection, which makes the process exit."""
        self._process.hang_up()

    def end(self) -> None:
        """Wait until the process has exited; kill it if it does not."""
        self._process.end(_END_S)


def _kind(error: CallFailedError) -> str:
    """Too little memory, invalid input, or another error."""
    if "OutOfMemoryError" in error.types:
        return "memory"
    return "input" if "InputError" in error.types else "error"


class Pool:
    """Processes by share, started when first needed and kept for later measurements."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._open: dict[WorkerKey, tuple[ProfileWorkerProcess, ExitStack]] = {}
        self.hello: Json = {}
        """Description that the first process sent."""
        self.start_s = START_S
        """Seconds in which processes were started last."""

    def workers(self, wanted: Sequence[Measurement]) -> list[list[ProfileWorkerProcess]]:
        """The processes for the jobs of all measurements.

        Starts all missing ones at the same time.
        """
        began_s = time.monotonic()
        needed = {key for measurement in wanted for key in self.keys(measurement)}
        missing = needed - self._open.keys()
        self._make_room(needed)
        # The largest instances have the fewest places.
        for key in sorted(missing, reverse=True):
            with ExitStack() as stack:
                worker = self.start(key, stack)
                self._open[key] = (worker, stack.pop_all())
        for key in needed:
            hello = self._open[key][0].ready()
            self.hello = self.hello or hello
        if missing:
            self.start_s = time.monotonic() - began_s
        return [[self._open[key][0] for key in self.keys(measurement)] for measurement in wanted]

    def has_started(self, measurement: Measurement) -> bool:
        """Whether its processes run."""
        return self._open.keys() >= set(self.keys(measurement))

    def keys(self, measurement: Measurement) -> list[WorkerKey]:
        """The process of each job; where all sizes are alike, one stands for all of them."""
        return worker_keys(measurement, self._driver.board.sms if self._driver.alike else None)

    def start(self, key: WorkerKey, stack: ExitStack) -> ProfileWorkerProcess:
        """Start a process on a share of its own. `stack` ends both."""
        partition, sms, _ = key
        share = (
            self._driver.whole()
            if partition is Partition.NONE
            else stack.enter_context(self._driver.share(sms))
        )
        worker = ProfileWorkerProcess(share, self._driver.device)
        stack.callback(worker.end)
        return worker

    def forget(self) -> None:
        workers = [worker for worker, _ in self._open.values()]
        for process in workers:
            process.ask("forget")
        for process in workers:
            process.answer()

    def close(self) -> None:
        self._end(set(self._open))

    def _make_room(self, needed: set[WorkerKey]) -> None:
        """End processes that must not run beside the needed ones.

        Work without shares runs beside no other process, and some drivers have space only for the
        needed ones.
        """
        partitions = {partition for partition, _, _ in needed}
        unneeded = self._open.keys() - needed
        if self._driver.coexist:
            unneeded = {key for key in unneeded if key[0] not in partitions}
        self._end(unneeded)

    def _end(self, keys: set[WorkerKey]) -> None:
        with ExitStack() as stack:
            for key in keys:
                worker, opened = self._open.pop(key)
                worker.hang_up()
                stack.push(opened)


def worker_keys(measurement: Measurement, size: int | None = None) -> list[WorkerKey]:
    """The process of each job; `size`: the SMs of all of them, instead of their own.

    Processes of one size are numbered, starting at the round's number.
    """
    used: dict[int, int] = {}
    keys = []
    for own, _ in measurement.jobs:
        sms = own if size is None else size
        number = used.get(sms, measurement.round)
        used[sms] = number + 1
        keys.append((measurement.partition, sms, number))
    return keys
