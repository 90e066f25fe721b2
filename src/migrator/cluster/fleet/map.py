"""The cluster map and the head's state: computed from the agents' reports, without I/O."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.cluster.fleet.messages import ClusterMap, Report


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
    GPUs that are being drained. A tenant stays in the map while its instances change; a new tenant
    enters once it is ready.
    """
    served, away = {}, {}
    for name in tenants:
        report = reports.get(homes.get(name, ""))
        there = None if report is None else report.tenants.get(name)
        if report is None or there is None:
            away[name] = words.get(name, "it is on its way to a GPU")
        elif there.ready or known.homes.get(name) == report.url:
            served[name] = report.url
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
        """Record an event."""
        _log.info("%s", words)
        self.events.append((time.time(), words))

    def renew_map(self, reports: Mapping[str, Report]) -> None:
        """Update the map from the reports of all daemons that accept requests."""
        found = next_map(self.map, self.epoch, self.tenants, self.homes, reports, self.words)
        if found is not None:
            self.map = found
