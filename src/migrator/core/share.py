"""What a task can hold: a MIG instance, or an MPS share of the whole GPU."""

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
    """Tells the processes of a task apart."""
    percent: float
    task: Task
    duty: float = 1.0
    """The part of the time it has the SMs, where several tasks take turns on them."""

    def __str__(self) -> str:
        return f"{self.percent:g}%"


Holding = Instance | Share
"""One thing a task holds; it serves or trains with one worker process."""


def sms_of(board: Board, holding: Holding) -> float:
    """The SMs behind it."""
    if isinstance(holding, Share):
        return board.sms * holding.percent / 100
    return board.sms_of(holding.gpcs)


def bare(holding: Holding) -> Holding:
    """What tells it from others: an instance without its task; a share is one with its task."""
    return holding if isinstance(holding, Share) else replace(holding, task=None)
