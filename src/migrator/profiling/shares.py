"""Shares: where a worker process runs. A part of a GPU, or the CPU for trials.

A driver opens shares: MPS percentages (mps.py) or MIG instances (mig.py), based on `migrator.gpu`.
drivers.py lists the drivers by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from migrator.core.catalogue import Board

Json = dict[str, object]

OWNER = "profile"
"""Owner of the daemons and instances that the profiler creates, by which a later run finds them."""
OTHERWISE = (
    "use the packaged profiles, which tenants have unless they name their own (`migrator profiles` "
    "lists them)"
)
"""Suggestion if the GPU cannot be measured."""


@dataclass(frozen=True)
class Share:
    """A part of a GPU, with the environment of a process that runs on it."""

    sms: int
    memory_gib: float | None
    """Memory of an instance of this size; None if it is not published."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reconfiguration:
    """Seconds that an instance took to create and to destroy."""

    sms: int
    create_s: float
    destroy_s: float


class Driver(Protocol):
    """Divides a GPU into shares."""

    name: ClassVar[str]
    coexist: ClassVar[bool]
    """Whether shares of all sizes can be open at once, and the GPU can be used without shares."""
    device: str
    """torch's device: "cuda" or "cpu"."""
    board: Board
    words: str
    """Description of the division, for the provenance."""
    reconfigured: list[Reconfiguration]
    """Reconfigurations since the list was last emptied.

    Stays empty if the driver creates no instances.
    """

    def about(self) -> Json:
        """The hardware and its driver, the same in every run."""
        ...

    def readings(self) -> Json:
        """Current clocks, temperature and power."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Prepare for the first share, and always clean up."""
        ...

    def share(self, sms: int) -> AbstractContextManager[Share]:
        """A share with this number of SMs."""
        ...

    def whole(self) -> Share:
        """The undivided GPU, for work without shares."""
        ...


def memory_gib(board: Board, sms: int) -> float | None:
    """The smallest memory of an instance with this number of SMs."""
    found = [
        each.memory_gib
        for each in board.plain_profiles.values()
        if each.sms == sms and each.memory_gib is not None
    ]
    return min(found, default=None)


class Cpu:
    """No GPU: each share is a process with one thread. The figures are for trials only."""

    name: ClassVar[str] = "cpu"
    coexist: ClassVar[bool] = True

    def __init__(self, board: Board) -> None:
        self.board, self.device = board, "cpu"
        self.words = "one CPU thread in place of every share"
        self.reconfigured: list[Reconfiguration] = []

    def about(self) -> Json:
        """CPU, without a driver version."""
        return {"gpu": "CPU", "driver_version": None}

    def readings(self) -> Json:
        """Empty."""
        return {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Do nothing."""
        yield

    @contextmanager
    def share(self, sms: int) -> Iterator[Share]:
        """An ordinary process. The number of SMs has no effect."""
        yield Share(sms, memory_gib(self.board, sms))

    def whole(self) -> Share:
        """The whole CPU, without a memory limit."""
        return Share(self.board.sms, None)
