"""The profiler's drivers by name: mechanisms that divide a GPU among worker processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.registry import pick
from migrator.profiling.mig import Mig
from migrator.profiling.mps import Mps
from migrator.profiling.shares import Cpu, Driver


@dataclass(frozen=True)
class Kind:
    """A driver by name."""

    name: str
    coexist: bool
    """Whether its shares can coexist, which decides what can be measured."""
    found: Callable[[int, Board | None], Driver]
    """Open the driver, given the GPU's index and, if it is known already, its board."""


def _cpu(_gpu: int, board: Board | None) -> Driver:
    if board is None:
        raise InputError("--driver: cpu has no sizes of its own; name a board")
    return Cpu(board)


def _mps(gpu: int, _board: Board | None) -> Driver:
    return Mps.found(gpu)


def _mig(gpu: int, _board: Board | None) -> Driver:
    return Mig.found(gpu)


DRIVERS = {
    each.name: each
    for each in (
        Kind(Mps.name, Mps.coexist, _mps),
        Kind(Mig.name, Mig.coexist, _mig),
        Kind(Cpu.name, Cpu.coexist, _cpu),
    )
}


def driver(name: str, gpu: int, board: Board | None) -> Driver:
    """The driver called `name` on this GPU. Raises InputError if it cannot be used here."""
    found = pick("--driver", name, DRIVERS).found(gpu, board)
    if board is not None and board.name != found.board.name:
        raise InputError(
            f"gpu: the scenario is of a {board.name}, GPU {gpu} is a {found.board.name}; write "
            f"gpu: {found.board.name}, or run this on the other machine"
        )
    return found
