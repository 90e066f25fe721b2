"""What a share does to a busy neighbour while it comes and goes.

The neighbour repeats an inference. Beside it a share of the same size is created, a process of the
same model starts on it and ends, and the share is destroyed. Each step of the neighbour counts for
the changes during which it ran.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrator.profiling.drivers import Driver, GpuShare, Json
from migrator.profiling.measurements import Measurement, WorkKind
from migrator.profiling.worker import percentiles
from migrator.profiling.workers import ProfileWorkerProcess

_BARE = 5
"""Instances that are created and destroyed without a process."""


class ChangeKind(StrEnum):
    """What happens beside the neighbour."""

    CREATE = "create"
    START = "start"
    """Of a process, until its first answer."""
    STOP = "stop"
    DESTROY = "destroy"


@dataclass(frozen=True)
class ShareChange:
    """A change, on the monotonic clock, which all processes of a machine share."""

    kind: ChangeKind
    begin_s: float
    end_s: float


def make_changes(
    driver: Driver, measurement: Measurement, until_s: float
) -> tuple[list[ShareChange], Json]:
    """Create, use and destroy shares until `until_s`, at least once; the last process's answer.

    Shares of MPS are not created: there only processes start and stop.
    """
    ((sms, served),) = measurement.jobs
    starting = replace(served, task=WorkKind.START)
    changes: list[ShareChange] = []
    for _ in range(0 if driver.coexist else _BARE):
        with _share(driver, sms, changes):
            pass
    answer: Json = {}
    while not answer or ("fault" not in answer and time.monotonic() < until_s):
        with _share(driver, sms, changes) as share:
            process: ProfileWorkerProcess | None = None
            try:
                with _noted(ChangeKind.START, changes):
                    process = ProfileWorkerProcess(share, driver.device)
                    process.ready()
                    process.ask("start", starting)
                    answer = process.answer()
            finally:
                if process is not None:
                    with _noted(ChangeKind.STOP, changes):
                        process.hang_up()
                        process.end()
    return changes, answer


def figures_by_change(
    began_s: Sequence[float],
    took_s: Sequence[float],
    quiet_s: float,
    changes: Sequence[ShareChange],
) -> Json:
    """Figures of the steps from `quiet_s` until the first change, and of those in each change."""
    begin, took = np.asarray(began_s), np.asarray(took_s)
    first_s = min(change.begin_s for change in changes)
    quiet = (begin >= quiet_s) & (begin + took <= first_s)
    during: Json = {}
    for kind in ChangeKind:
        own = [change for change in changes if change.kind is kind]
        inside = [(begin < one.end_s) & (begin + took > one.begin_s) for one in own]
        steps = took[np.any(inside, axis=0)] if own else took[:0]
        if len(steps):
            during[kind] = {"changes": len(own), **_figures(steps)}
    return {**_figures(took[quiet] if quiet.any() else took[:1]), "during": during}


def _figures(took_s: NDArray[np.float64]) -> dict[str, float]:
    return {**percentiles(took_s.tolist()), "longest_ms": round(float(took_s.max()) * 1e3, 6)}


@contextmanager
def _noted(kind: ChangeKind, changes: list[ShareChange]) -> Iterator[None]:
    began_s = time.monotonic()
    try:
        yield
    finally:
        changes.append(ShareChange(kind, began_s, time.monotonic()))


@contextmanager
def _share(driver: Driver, sms: int, changes: list[ShareChange]) -> Iterator[GpuShare]:
    """A share whose creation and destruction are noted if the driver has any."""
    began_s = time.monotonic()
    with driver.share(sms) as share:
        created_s = time.monotonic()
        yield share
        destroying_s = time.monotonic()
    if not driver.coexist:
        changes.append(ShareChange(ChangeKind.CREATE, began_s, created_s))
        changes.append(ShareChange(ChangeKind.DESTROY, destroying_s, time.monotonic()))
