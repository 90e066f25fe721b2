"""Where a worker process runs: a part of a GPU, or, to try things out, the CPU.

A driver opens shares: MPS percentages (mps.py) or MIG instances (mig.py), on what `migrator.gpu`
offers; drivers.py has them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from migrator.core.catalogue import Board

Json = dict[str, object]

OWNER = "profile"
"""Whose the daemons and instances are that the profiler makes: a later run knows them by it."""
OTHERWISE = (
    "use the packaged profiles, which tenants have unless they name their own (`migrator profiles` "
    "lists them)"
)
"""What to do where the GPU cannot be measured."""


@dataclass(frozen=True)
class Share:
    """A part of a GPU: what a process must find in its environment to run there."""

    sms: int
    memory_gib: float | None
    """What an instance of this size has; None where nobody has published it."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reconfiguration:
    """How long an instance took to come and to go."""

    sms: int
    create_s: float
    destroy_s: float


class Driver(Protocol):
    """What divides a GPU."""

    name: ClassVar[str]
    coexist: ClassVar[bool]
    """Whether shares of every size may be open at once, and the GPU be used without any."""
    device: str
    """Where torch computes: "cuda" or "cpu"."""
    board: Board
    words: str
    """How it divides, for the provenance."""
    reconfigured: list[Reconfiguration]
    """What was made and removed since somebody took it from here; empty where nothing is made."""

    def about(self) -> Json:
        """The hardware and its driver, the same in every run."""
        ...

    def readings(self) -> Json:
        """Clocks and the like of this moment."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Get ready before the first share, and clean up whatever happens."""
        ...

    def share(self, sms: int) -> AbstractContextManager[Share]:
        """A share of that many SMs."""
        ...

    def whole(self) -> Share:
        """The undivided GPU, for what runs without shares."""
        ...


def memory_gib(board: Board, sms: int) -> float | None:
    """The least memory that an instance of so many SMs has."""
    found = [
        each.memory_gib
        for each in board.plain_profiles.values()
        if each.sms == sms and each.memory_gib is not None
    ]
    return min(found, default=None)


class Cpu:
    """No GPU: every share is a process with one thread. Its figures are good for trying out."""

    name: ClassVar[str] = "cpu"
    coexist: ClassVar[bool] = True

    def __init__(self, board: Board) -> None:
        self.board, self.device = board, "cpu"
        self.words = "one CPU thread in place of every share"
        self.reconfigured: list[Reconfiguration] = []

    def about(self) -> Json:
        """No hardware worth telling."""
        return {"gpu": "CPU", "driver_version": None}

    def readings(self) -> Json:
        """None."""
        return {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Nothing to get ready."""
        yield

    @contextmanager
    def share(self, sms: int) -> Iterator[Share]:
        """A process like any other, which believes what it is told about SMs."""
        yield Share(sms, memory_gib(self.board, sms))

    def whole(self) -> Share:
        """The same."""
        return Share(self.board.sms, None)
