"""The drivers by name: what can divide a GPU, opened where it can be used here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.core import catalogue
from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.gpu import mig
from migrator.gpu.driver import GpuDriver
from migrator.gpu.emulated import EmulatedDriver
from migrator.gpu.mps import MpsDriver
from migrator.gpu.names import Driver

PACE = "MIGRATOR_EMULATED_PACE"
"""Factor on the time that emulated instances take to come and go; 0 never waits."""


@dataclass(frozen=True)
class Wish:
    """Which GPU, and what only some drivers care about."""

    index: int
    state: Path
    board: str | None
    limit_memory: bool


@dataclass(frozen=True)
class Kind:
    """A driver by name."""

    name: Driver
    opened: Callable[[Wish], AbstractContextManager[GpuDriver]]


def opened(
    name: str, index: int, *, state: Path, board: str | None = None, limit_memory: bool = False
) -> AbstractContextManager[GpuDriver]:
    """The driver called `name` on that GPU; InputError where it cannot be used here.

    `board` is what an emulated GPU is; it remembers that in the `state` folder. `limit_memory`
    gives MPS shares no more memory than the instance would have, as MIG always does.
    """
    kind = pick("--driver", name, DRIVERS)
    if index < 0:
        raise InputError(f"--gpu: {index} is no GPU's number; they begin with 0")
    if board is not None and name != Driver.EMULATED:
        raise InputError(
            f"--board: {name} divides the GPU that is there; leave --board out, or use "
            "--driver emulated"
        )
    return kind.opened(Wish(index, state, board, limit_memory))


@contextmanager
def _mig(wish: Wish) -> Iterator[GpuDriver]:
    with mig.opened(wish.index) as driver:
        yield driver


@contextmanager
def _mps(wish: Wish) -> Iterator[GpuDriver]:
    yield MpsDriver.found(wish.index, wish.state, limit_memory=wish.limit_memory)


@contextmanager
def _emulated(wish: Wish) -> Iterator[GpuDriver]:
    board = None if wish.board is None else catalogue.board(wish.board)
    yield EmulatedDriver(wish.state, wish.index, board, pace=_pace())


def _pace() -> float:
    text = os.environ.get(PACE, "1")
    try:
        pace = float(text)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 100:
        raise InputError(f"{PACE}: {text[:50]!r} is no factor; use a number from 0 to 100")
    return pace


DRIVERS = {
    each.name.value: each
    for each in (
        Kind(Driver.MIG, _mig),
        Kind(Driver.MPS, _mps),
        Kind(Driver.EMULATED, _emulated),
    )
}
