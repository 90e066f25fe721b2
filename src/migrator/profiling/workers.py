"""The parent's side of worker processes: start on a share, send requests, always end them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import migrator
from migrator.core.errors import MigratorError
from migrator.profiling.measurements import Measurement, Partition
from migrator.profiling.shares import Driver, Share

Json = dict[str, Any]

Place = tuple[Partition, int, int]
"""Division of the GPU, SMs of a process, and its number among the processes of its size."""

ANSWER_S = 240.0
"""Seconds after which a process without an answer counts as lost."""
_END_S = 10.0
_LAST_BYTES = 4096


class WorkerLostError(MigratorError):
    """A worker process exited or does not answer."""


class WorkerProcess:
    """One process on one share."""

    def __init__(self, share: Share, device: str) -> None:
        self._share = share
        self._log, path = tempfile.mkstemp(prefix="worker")
        Path(path).unlink()  # the file exists only while a process has it open
        self._rest = b""
        source = str(Path(migrator.__file__).parent.parent)
        paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        about = {"device": device, "sms": share.sms, "memory_gib": share.memory_gib}
        told = json.dumps(about | {"spawned_s": time.monotonic()})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "migrator.profiling.worker", told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **share.environment, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self.hello: Json | None = None

    def ready(self) -> Json:
        """The process's description. Raises an error if its share is not the requested one."""
        if self.hello is None:
            self.hello = self.answer()["ok"]
            seen = self.hello["sms"]
            if seen != self._share.sms:
                raise MigratorError(
                    f"a share of {self._share.sms} SMs was asked for and {seen} were given; see "
                    "that nobody else tells CUDA what it sees (another MPS daemon, "
                    "CUDA_VISIBLE_DEVICES), and try again"
                )
        return self.hello

    def ask(self, message: Json) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost() from error

    def answer(self, timeout_s: float = ANSWER_S) -> Json:
        """The next answer. Raises WorkerLostError if none arrives."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
                raise WorkerLostError(f"a worker did not answer within {timeout_s:g} s")
            chunk = os.read(pipe, 65536)
            if not chunk:
                raise self._lost()
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        found: Json = json.loads(line)
        return found

    def hang_up(self) -> None:
        """Close the pipes, which makes the process exit."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # it exited with unread input
                if pipe is not None:
                    pipe.close()

    def end(self) -> None:
        """Wait until the process has exited; kill it if it does not."""
        self.hang_up()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._log)

    def _lost(self) -> WorkerLostError:
        try:
            code: int | None = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = None
        end = os.fstat(self._log).st_size
        written = os.pread(self._log, _LAST_BYTES, max(0, end - _LAST_BYTES))
        lines = written.decode(errors="replace").strip().splitlines()
        said = f": {lines[-1][:300]}" if lines else ""
        return WorkerLostError(f"a worker process ended (exit code {code}){said}")


class Pool:
    """Processes by share, started when first needed and kept for later measurements."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._open: dict[Place, tuple[WorkerProcess, ExitStack]] = {}
        self.hello: Json = {}
        """Description that the first process sent."""

    def workers(self, wanted: Sequence[Measurement]) -> list[list[WorkerProcess]]:
        """The processes for the jobs of all measurements.

        Starts all missing ones at the same time.
        """
        wanted_places = [places(each) for each in wanted]
        needed = {place for each in wanted_places for place in each}
        self._make_room(needed)
        for place in sorted(needed - self._open.keys()):
            self._start(place)
        for place in needed:
            self.hello = self.hello or self._open[place][0].ready()
            self._open[place][0].ready()
        return [[self._open[place][0] for place in each] for each in wanted_places]

    def forget(self) -> None:
        """Make all processes free their memory."""
        everybody = [worker for worker, _ in self._open.values()]
        for each in everybody:
            each.ask({"do": "forget"})
        for each in everybody:
            each.answer()

    def close(self) -> None:
        """End all processes."""
        self._end(set(self._open))

    def _make_room(self, needed: set[Place]) -> None:
        """End processes that must not run beside the needed ones.

        Work without shares runs beside no other process, and some drivers have space only for the
        needed ones.
        """
        partitions = {partition for partition, _, _ in needed}
        self._end(
            {
                place
                for place in self._open
                if place not in needed and (place[0] not in partitions or not self._driver.coexist)
            }
        )

    def _start(self, place: Place) -> None:
        partition, sms, _ = place
        with ExitStack() as stack:
            share = (
                self._driver.whole()
                if partition is Partition.NONE
                else stack.enter_context(self._driver.share(sms))
            )
            worker = WorkerProcess(share, self._driver.device)
            stack.callback(worker.end)
            self._open[place] = (worker, stack.pop_all())

    def _end(self, places: set[Place]) -> None:
        with ExitStack() as stack:
            for place in places:
                worker, opened = self._open.pop(place)
                worker.hang_up()
                stack.push(opened)


def places(measurement: Measurement) -> list[Place]:
    """The process of each job.

    Processes of one size are numbered, starting at the round's number.
    """
    used: dict[int, int] = {}
    found = []
    for sms, _ in measurement.jobs:
        number = used.get(sms, measurement.round)
        used[sms] = number + 1
        found.append((measurement.partition, sms, number))
    return found
