"""The shares of one GPU, measured by the processes of `drivers.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu.drivers_judged import Product, faults, pair, sizes, table
from migrator.core.catalogue import MigProfile, Place
from migrator.core.errors import GpuError
from migrator.gpu.drivers.base import GpuInstance, InUseError
from migrator.gpu.drivers.mps import PERCENTAGE, MpsDriver, safe_sms, share_sms

SIDE, PRODUCT_S = 8192, 1.0
LIMITED_PARTS = (0.5, 1.5)
"""Of a limited share's memory: what must be had, and what must not."""

Json = dict[str, Any]


class Worker:
    """A process that gets ready for a share; see drivers_worker.py."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, message: Mapping[str, object]) -> None:
        """Its share, or that it may begin."""
        assert self.process.stdin is not None
        try:
            print(json.dumps(message), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise self._has_ended() from None

    def receive(self) -> Json:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self._has_ended()
        parsed_json: Json = json.loads(line)
        return parsed_json

    def _has_ended(self) -> GpuError:
        return GpuError(f"a worker ended with {self.process.wait()}; see what it printed above")

    def left_alone(self) -> None:
        """It is told nothing more and goes when it has done what it was told."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def ended(self) -> None:
        """Gone; only one that stays is killed, since MPS dislikes it."""
        self.left_alone()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Watch:
    """What each step took."""

    def __init__(self) -> None:
        self.took_s: dict[str, float] = {}
        self._since_s = time.monotonic()

    def seen(self, step: str) -> None:
        """The step ends here."""
        now_s = time.monotonic()
        self.took_s[step] = round(now_s - self._since_s, 3)
        self._since_s = now_s


class Bench:
    """The shares of one GPU, measured."""

    def __init__(self, driver: MpsDriver, workers: Iterator[Worker]) -> None:
        self._driver, self._workers = driver, workers
        self.board = driver.gpu().board
        self.clients_listed = False
        self.refused_in_use = False
        self.seconds: list[Json] = []
        """How long each step took, per measurement."""

    def measured(self, places: Sequence[Place], within: MpsDriver | None = None) -> list[Json]:
        """Processes in these shares at the same time; their results with what they are."""
        watch = Watch()
        made = [self._driver.create(place) for place in places]
        watch.seen("create_s")
        with ExitStack() as stack:
            for share in made:
                stack.callback(self._driver.destroy, share)
            tasks = [
                self._task(within or self._driver, instance, within is not None)
                for instance in made
            ]
            workers = [next(self._workers) for _ in made]
            for worker in workers:  # gone before the shares are destroyed
                stack.callback(worker.ended)
            results = self._results(workers, tasks, watch)
        watch.seen("destroy_s")
        self.seconds.append({"shares": [str(place) for place in places], **watch.took_s})
        return [
            {"place": place, "percentage": task["environment"][PERCENTAGE], **result}
            for place, task, result in zip(places, tasks, results, strict=True)
        ]

    def _task(self, driver: MpsDriver, share: GpuInstance, limited: bool) -> Json:
        gib = self.board.profile(share.place.profile).memory_gib
        return {
            "environment": dict(driver.environment(share)),
            "side": SIDE,
            "for_s": PRODUCT_S,
            "allocate_gib": [gib * part for part in LIMITED_PARTS] if limited and gib else [],
        }

    def _results(self, workers: Sequence[Worker], tasks: list[Json], watch: Watch) -> list[Json]:
        """All get ready before any begins."""
        for worker, task in zip(workers, tasks, strict=True):
            worker.send(task)
        ready = [worker.receive() for worker in workers]
        watch.seen("ready_s")
        self._look_who_holds([message["pid"] for message in ready])
        for worker in workers:
            worker.send({})
        results = [
            {**message, **worker.receive()} for message, worker in zip(ready, workers, strict=True)
        ]
        watch.seen("measure_s")
        return results

    def _sms(self, profile: MigProfile) -> int:
        """Of its share: on some numbers of SMs libraries do not compute right."""
        gpu, device_sms = self._driver.gpu(), self._driver.device_sms
        return safe_sms(gpu.name, share_sms(self.board, profile, device_sms), device_sms)

    def product(self, row: Json, beside: str | None = None) -> Product:
        """A result as it is judged."""
        profile = self.board.profile(row["place"].profile)
        return Product(
            profile=profile.name,
            sms=self._sms(profile),
            percentage=row["percentage"],
            sms_seen=row["sms"],
            tflops=row["tflops"],
            clock_mhz=row["clock_mhz"],
            beside=beside,
        )

    def _look_who_holds(self, pids: list[int]) -> None:
        """Whether the daemon tells its clients, and a share in use is left alone for it."""
        there = self._driver.instances()
        seen = {holder.pid for instance in there for holder in instance.holders}
        self.clients_listed = set(pids) <= seen
        if self.clients_listed:
            try:
                self._driver.destroy(there[0])
            except InUseError:
                self.refused_in_use = True


@contextmanager
def prepared(count: int, program: Path) -> Iterator[Iterator[Worker]]:
    """So many workers, importing torch at once; none is left."""
    workers: list[Worker] = []
    try:
        workers.extend(Worker(program) for _ in range(count))
        yield iter(workers)
    finally:
        for worker in workers:
            worker.left_alone()
        for worker in workers:
            worker.ended()


def measure(driver: MpsDriver, limited: MpsDriver, workers: Iterator[Worker], into: Json) -> None:
    """Every size alone, the two that fill the board side by side, one with its memory limited.

    What has been measured is in `into` at once; a measurement that fails is a fault there.
    """
    bench = Bench(driver, workers)
    alone, together = _alone(bench, into), _together(bench, into)
    with _fault(into, "memory limit"):
        (small,) = bench.measured([Place(0, bench.board.plain_profiles[1].name)], limited)
        into["allocated_of_limit"] = dict(zip(LIMITED_PARTS, small["allocated"], strict=False))
        if small["allocated"] not in ([], [True, False]):
            into["faults"].append(f"memory limit: could allocate {into['allocated_of_limit']}")
    into["device_sms"] = driver.device_sms
    into["daemon_tells_clients"] = bench.clients_listed
    into["refused_while_in_use"] = bench.refused_in_use
    into["seconds"] = bench.seconds
    if alone:
        into["table"] = list(table([*alone, *together]))
        into["faults"] += faults(alone, together)


def _alone(bench: Bench, into: Json) -> list[Product]:
    done: list[Product] = []
    for profile in sizes(bench.board):
        with _fault(into, profile.name):
            (row,) = bench.measured([Place(min(profile.starts), profile.name)])
            done.append(bench.product(row))
            into["alone"].append(asdict(done[-1]))
            print(f"{profile.name}: {row['tflops']:.1f} TFLOP/s, {bench.seconds[-1]}", flush=True)
    return done


def _together(bench: Bench, into: Json) -> list[Product]:
    both = pair(bench.board)
    with _fault(into, "side by side"):
        rows = bench.measured(both)
        done = [
            bench.product(row, other.profile) for row, other in zip(rows, both[::-1], strict=True)
        ]
        into["side_by_side"] = [asdict(product) for product in done]
        return done
    return []


@contextmanager
def _fault(into: Json, what: str) -> Iterator[None]:
    try:
        yield
    except GpuError as error:
        into["faults"].append(f"{what}: {error}")
        print(into["faults"][-1], flush=True)
