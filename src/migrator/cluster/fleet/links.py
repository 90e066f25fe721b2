"""The way from the head to the agents, and what was last heard of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from migrator.cluster.fleet.reports import Answer, Report
from migrator.core.errors import MigratorError


class DeposedError(MigratorError):
    """A newer head leads."""


class Ears(Protocol):
    """What can be heard of the agents; what cannot be reached is None."""

    trouble: str
    """What went wrong last, if anything."""

    async def known(self) -> tuple[str, ...]:
        """GPUs that have an agent now, made where they can be and have none."""
        ...

    async def report(self, gpu: str, epoch: int) -> Report | None:
        """How it is."""
        ...

    async def answers(self, url: str) -> bool:
        """Whether a daemon lives, asked without its agent."""
        ...


class Links(Ears, Protocol):
    """The way to the agents."""

    async def order(self, gpu: str, name: str, epoch: int, *what: object) -> Answer | None:
        """begin, take, release, drain or stop; None: it does not answer."""
        ...


@dataclass
class Heard:
    """The last that was heard of a GPU."""

    report: Report
    at_s: float
    alone_s: float | None = None
    """Since when its daemon has answered without an agent."""
    unanswered_s: float | None = None
    """When the first of its daemon's health checks that failed in a row was sent."""
