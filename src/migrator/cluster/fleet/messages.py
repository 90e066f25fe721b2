"""Messages between agents and head, and the cluster map that the head publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from migrator import __version__
from migrator.core.errors import MigratorError


class TenantReport(msgspec.Struct, frozen=True):
    """State and counters of a tenant on a GPU."""

    ready: bool
    """Whether an instance accepts its requests."""
    drained: bool = False
    received: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    accuracy: float = 0.0
    version: int = 0
    retraining: bool = False


class Report(msgspec.Struct, frozen=True):
    """State of one GPU, as reported by its agent."""

    gpu: str
    node: str
    number: int
    """Index of the GPU in its machine."""
    pid: int
    """Process id of the agent."""
    url: str
    """Address of the daemon, whether it is up or not."""
    epoch: int = 0
    """Epoch of the newest head known to this agent."""
    package: str = __version__
    begun: bool = False
    """Whether the agent has received its first list of tenants."""
    up: bool = False
    """Whether the daemon responds and serves."""
    tenants: dict[str, TenantReport] = {}
    window: int = 0
    restarts: int = 0
    """Restarts of the daemon by this agent process."""
    failures: int = 0
    """Consecutive starts of the daemon that failed before it served."""
    words: str = ""
    """Description of the current problem, if any."""
    silent_s: float = 0.0
    """Seconds for which a daemon that has served has not responded to its agent."""
    assigned: tuple[str, ...] = ()
    """Tenants that the daemon has, or starts with after a restart."""
    drained: bool = False
    """Whether an operator has drained the GPU: no tenant is placed on it."""
    began_s: float = 0.0
    """When window 0 of the cluster began, as known to the agent."""


class Answer(msgspec.Struct, frozen=True):
    """Result of an order."""

    done: bool
    words: str
    epoch: int
    """The agent's epoch; if it is higher than the sender's, another head leads."""


class ClusterMap(msgspec.Struct, frozen=True):
    """Where each tenant is served; a later map has a higher (epoch, version)."""

    epoch: int = 0
    version: int = 0
    homes: dict[str, str] = {}
    """Tenant -> address of the daemon that serves it."""
    away: dict[str, str] = {}
    """Tenant -> why no GPU serves it."""
    pages: dict[str, str] = {}
    """GPU -> address of its daemon, which serves the live page."""
    admin: str | None = None
    """Digest of the administration token; None: no token is required."""

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: a newer map has a higher key."""
        return self.epoch, self.version


class DeposedError(MigratorError):
    """Another head with a higher epoch leads."""


class AgentReports(Protocol):
    """Access to the reports of the agents; None stands for an agent that does not respond."""

    trouble: str
    """The last error."""

    async def known(self) -> tuple[str, ...]:
        """GPUs with an agent; missing agents are created where possible."""
        ...

    async def report(self, gpu: str, epoch: int) -> Report | None:
        """Return the agent's report."""
        ...

    async def answers(self, url: str) -> bool:
        """Whether a daemon responds to a health check."""
        ...


class AgentLinks(AgentReports, Protocol):
    """Access to the agents: reports and orders."""

    async def order(self, gpu: str, name: str, epoch: int, *what: object) -> Answer | None:
        """Send begin, take, release, drain or stop; None if the agent does not respond."""
        ...


@dataclass
class LastReport:
    """The last report of a GPU, with the health checks since."""

    report: Report
    at_s: float
    alone_s: float | None = None
    """Since when the daemon has responded without an agent."""
    unanswered_s: float | None = None
    """When the first of its daemon's consecutive failed health checks was sent."""
