"""The state of a head: where tenants are, the map, and recent events."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.cluster.fleet.cluster_map import ClusterMap, next_map
from migrator.cluster.fleet.messages import Report

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
    problems: dict[str, str] = field(default_factory=dict)
    """Tenant -> why it is not served."""
    moves: int = 0
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))
    """(time, description) pairs, newest last."""

    def note(self, event: str) -> None:
        _log.info("%s", event)
        self.events.append((time.time(), event))

    def renew_map(self, reports: Mapping[str, Report]) -> None:
        """Update the map from the reports of all daemons that accept requests."""
        newer = next_map(self.map, self.epoch, self.tenants, self.homes, reports, self.problems)
        if newer is not None:
            self.map = newer
