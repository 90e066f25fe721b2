"""A task's holding: a MIG instance, or an MPS share of the whole GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from migrator.core.catalogue import Board
from migrator.core.instance import Instance, Task


@dataclass(frozen=True, order=True)
class Share:
    """A worker process that may use `percent` of the board's SMs under MPS.

    A process cannot change its share, so another percentage is another process.
    """

    number: int
    """Index among the processes of a task."""
    percent: float
    task: Task
    duty: float = 1.0
    """The share of the time for which it has the SMs, if several tasks take turns on them."""

    def __str__(self) -> str:
        return f"{self.percent:g}%"


Holding = Instance | Share
"""An instance or share of a task, used by one worker process."""


def sms_of(board: Board, holding: Holding) -> float:
    """The number of SMs of a holding."""
    if isinstance(holding, Share):
        return board.sms * holding.percent / 100
    return board.sms_of(holding.gpcs)


def bare(holding: Holding) -> Holding:
    """The identity of a holding: an instance without its task; a share includes its task."""
    return holding if isinstance(holding, Share) else replace(holding, task=None)
