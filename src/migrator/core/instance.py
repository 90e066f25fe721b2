"""Tasks of tenants and what they hold: a MIG instance, or an MPS share of the whole GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from migrator.core.catalogue import Board


class Kind(StrEnum):
    """The two tasks of a tenant."""

    INFERENCE = "inference"
    RETRAINING = "retraining"

    __hash__ = str.__hash__  # tasks are hashed all the time; that of an Enum is written in Python


@dataclass(frozen=True, order=True)
class Task:
    """A tenant's inference or retraining; written TENANT/inference, TENANT/retraining."""

    tenant: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.tenant}/{self.kind}"

    @staticmethod
    def parse(text: str) -> Task:
        """Parse a task; ValueError if the text is not TENANT/KIND."""
        tenant, slash, kind = text.rpartition("/")
        if not slash or not tenant:
            raise ValueError(f"{text!r} is not TENANT/inference or TENANT/retraining")
        return Task(tenant, Kind(kind))


@dataclass(frozen=True)
class Instance:
    """A MIG instance of `gpcs` GPCs whose first memory slice is `start`."""

    start: int
    gpcs: int
    task: Task | None = None
    """None: the instance exists and is unused."""

    def __str__(self) -> str:
        return f"{self.gpcs}g@{self.start}"


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
