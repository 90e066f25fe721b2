"""The drivers by name: what can divide a GPU among worker processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.profiling.mps import Mps
from migrator.profiling.shares import Cpu, Driver


@dataclass(frozen=True)
class Kind:
    """A driver by name."""

    name: str
    found: Callable[[int, Board | None], Driver]
    """From the GPU's number and, where it is known already, its board."""


def _cpu(_gpu: int, board: Board | None) -> Driver:
    if board is None:
        raise InputError("--driver: cpu has no sizes of its own; name a board")
    return Cpu(board)


def _mps(gpu: int, board: Board | None) -> Driver:
    return Mps.found(gpu, board)


def _mig(_gpu: int, _board: Board | None) -> Driver:
    raise InputError(
        "--driver: MIG instances cannot be created yet; measure shares of the same sizes with "
        "--driver mps"
    )


DRIVERS = {each.name: each for each in (Kind("mps", _mps), Kind("mig", _mig), Kind("cpu", _cpu))}


def driver(name: str, gpu: int, board: Board | None) -> Driver:
    """The driver called `name` on that GPU; InputError where it cannot be used here."""
    return pick("--driver", name, DRIVERS).found(gpu, board)
