"""Messages between agents and head, and which tenant is where according to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    evidence: str = ""
    """What the accuracy rests on (`core.evidence`)."""
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
    has_served: bool = False
    """Whether the daemon's process exists and has responded before, perhaps to another agent."""
    tenants: dict[str, TenantReport] = {}
    window: int = 0
    restarts: int = 0
    """Restarts of the daemon by this agent process."""
    failures: int = 0
    """Consecutive starts of the daemon that failed before it served."""
    problem: str = ""
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
    message: str
    epoch: int
    """The agent's epoch; if it is higher than the sender's, another head leads."""


class DeposedError(MigratorError):
    """Another head with a higher epoch leads."""


class AgentLinks(Protocol):
    """Access to the agents; None stands for an agent that does not respond."""

    trouble: str
    """The last error."""

    async def gpus(self) -> tuple[str, ...]:
        """GPUs with an agent; missing agents are created where possible."""
        ...

    async def report(self, gpu: str, epoch: int) -> Report | None: ...

    async def order(self, gpu: str, name: str, epoch: int, *arguments: object) -> Answer | None:
        """Send begin, take, release, drain or stop."""
        ...

    async def answers(self, url: str) -> bool:
        """Whether a daemon responds to a health check."""
        ...


def homes_from(reports: Mapping[str, Report]) -> dict[str, str]:
    """Tenant -> GPU according to the agents; of two GPUs the one that accepts its requests."""
    homes: dict[str, tuple[bool, str]] = {}
    for gpu, report in sorted(reports.items()):
        for name, tenant in report.tenants.items():
            home = homes.get(name)
            if home is None or (tenant.ready and not home[0]):
                homes[name] = tenant.ready, gpu
    # a daemon that is starting or hangs has not reported its tenants
    assigned = {name: gpu for gpu, report in reports.items() for name in report.assigned}
    return assigned | {name: gpu for name, (_, gpu) in homes.items()}


def unserved(
    tenants: Collection[str], homes: Mapping[str, str], alive: Collection[str]
) -> list[str]:
    """Tenants that no GPU serves, in the scenario's order."""
    return [tenant for tenant in tenants if homes.get(tenant) not in alive]


def misplaced(
    homes: Mapping[str, str], reports: Mapping[str, Report], answering: Mapping[str, Report]
) -> list[tuple[str, str]]:
    """(GPU, tenant) pairs of daemons with a tenant that is placed and served elsewhere.

    `answering`: reports of all GPUs whose agents accept orders, including agents of a hung daemon,
    which must not start with the tenant when it is restarted.
    """
    pairs = []
    for gpu, report in answering.items():
        for name in dict.fromkeys((*report.tenants, *report.assigned)):
            home = homes.get(name)
            if home is None or home == gpu or home not in reports:
                continue
            tenant = reports[home].tenants.get(name)
            if tenant is not None and tenant.ready:
                pairs.append((gpu, name))
    return pairs


def missing_tenants(homes: Mapping[str, str], reports: Mapping[str, Report]) -> list[str]:
    """Tenants whose GPU is up but does not have them."""
    return [
        name
        for name, gpu in homes.items()
        if gpu in reports and reports[gpu].up and name not in reports[gpu].tenants
    ]
