"""Messages between agents and head, the cluster map, and the state of a head."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    has_served: bool = False
    """Whether the daemon's process exists and has responded before, perhaps to another agent."""
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


class AgentLinks(Protocol):
    """Access to the agents; None stands for an agent that does not respond."""

    trouble: str
    """The last error."""

    async def known(self) -> tuple[str, ...]:
        """GPUs with an agent; missing agents are created where possible."""
        ...

    async def report(self, gpu: str, epoch: int) -> Report | None: ...

    async def order(self, gpu: str, name: str, epoch: int, *what: object) -> Answer | None:
        """Send begin, take, release, drain or stop."""
        ...

    async def answers(self, url: str) -> bool:
        """Whether a daemon responds to a health check."""
        ...


def homes_from(reports: Mapping[str, Report]) -> dict[str, str]:
    """Tenant -> GPU according to the agents; of two GPUs the one that accepts its requests."""
    found: dict[str, tuple[bool, str]] = {}
    for gpu, report in sorted(reports.items()):
        for name, each in report.tenants.items():
            known = found.get(name)
            if known is None or (each.ready and not known[0]):
                found[name] = each.ready, gpu
    # a daemon that is starting or hangs has not reported its tenants
    assigned = {name: gpu for gpu, each in reports.items() for name in each.assigned}
    return assigned | {name: gpu for name, (_, gpu) in found.items()}


def unserved(
    tenants: Collection[str], homes: Mapping[str, str], alive: Collection[str]
) -> list[str]:
    """Tenants that no GPU serves, in the scenario's order."""
    return [each for each in tenants if homes.get(each) not in alive]


def misplaced(
    homes: Mapping[str, str],
    reports: Mapping[str, Report],
    answering: Mapping[str, Report] | None = None,
) -> list[tuple[str, str]]:
    """(GPU, tenant) pairs of daemons with a tenant that is placed and served elsewhere.

    `answering`: reports of all GPUs whose agents accept orders, including agents of a hung daemon,
    which must not start with the tenant when it is restarted; defaults to `reports`.
    """
    found = []
    for gpu, report in (reports if answering is None else answering).items():
        for name in dict.fromkeys((*report.tenants, *report.assigned)):
            home = homes.get(name)
            if home is None or home == gpu or home not in reports:
                continue
            there = reports[home].tenants.get(name)
            if there is not None and there.ready:
                found.append((gpu, name))
    return found


def missing_tenants(homes: Mapping[str, str], reports: Mapping[str, Report]) -> list[str]:
    """Tenants whose GPU is up but does not have them."""
    return [
        name
        for name, gpu in homes.items()
        if gpu in reports and reports[gpu].up and name not in reports[gpu].tenants
    ]


def next_map(
    known: ClusterMap,
    epoch: int,
    tenants: Sequence[str],
    homes: Mapping[str, str],
    reports: Mapping[str, Report],
    words: Mapping[str, str],
) -> ClusterMap | None:
    """Return the new map, or None if nothing has changed.

    `words`: why a tenant is not served. `reports`: of every daemon that accepts requests, including
    GPUs that are being drained. A tenant stays in the map while its instances change, and while the
    agent has no answer of a daemon that has served, for example just after a restart of the agent;
    a new tenant enters once it is ready.
    """
    served, away = {}, {}
    for name in tenants:
        report = reports.get(homes.get(name, ""))
        there = None if report is None else report.tenants.get(name)
        if report is not None and known.homes.get(name) == report.url:
            unanswered = report.has_served and not report.up and name in report.assigned
            stays = there is not None or unanswered
        else:
            stays = there is not None and there.ready
        if report is not None and stays:
            served[name] = report.url
        elif there is None:
            away[name] = words.get(name, "it is on its way to a GPU")
        else:
            why = "it is drained" if there.drained else "it has no instance yet"
            away[name] = words.get(name, why)
    pages = {gpu: report.url for gpu, report in reports.items()}
    if (served, away, pages, epoch) == (known.homes, known.away, known.pages, known.epoch):
        return None
    return ClusterMap(epoch, known.version + 1, served, away, pages, known.admin)


EVENTS = 100

_log = logging.getLogger(__name__)


@dataclass
class ClusterState:
    """The state of one head; a new head learns it from the agents."""

    tenants: Sequence[str]
    """All tenant names, in the scenario's order."""
    epoch: int = 0
    map: ClusterMap = field(default_factory=ClusterMap)
    homes: dict[str, str] = field(default_factory=dict)
    """Tenant -> GPU; the map says whether the tenant is served there yet."""
    words: dict[str, str] = field(default_factory=dict)
    """Tenant -> description of its problem."""
    moves: int = 0
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))
    """(time, description) pairs, newest last."""

    def note(self, words: str) -> None:
        _log.info("%s", words)
        self.events.append((time.time(), words))

    def renew_map(self, reports: Mapping[str, Report]) -> None:
        """Update the map from the reports of all daemons that accept requests."""
        found = next_map(self.map, self.epoch, self.tenants, self.homes, reports, self.words)
        if found is not None:
            self.map = found
