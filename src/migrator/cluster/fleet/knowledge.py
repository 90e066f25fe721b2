"""What the head knows of its cluster and tells everybody: who lives where, the map, what happened.

None of it is kept anywhere: a new head learns it from the agents.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.cluster.fleet.homes import next_map
from migrator.cluster.fleet.reports import ClusterMap, Report

EVENTS = 100

_log = logging.getLogger(__name__)


@dataclass
class Knowledge:
    """Of one head."""

    tenants: Sequence[str]
    """All names, in the scenario's order."""
    epoch: int = 0
    map: ClusterMap = field(default_factory=ClusterMap)
    homes: dict[str, str] = field(default_factory=dict)
    """Tenant -> GPU; whether it is served there by now is in the map."""
    words: dict[str, str] = field(default_factory=dict)
    """Tenants with whom something is wrong, and what."""
    moves: int = 0
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))
    """When, and what, the newest last."""

    def note(self, words: str) -> None:
        """Something happened that people may want to know."""
        _log.info("%s", words)
        self.events.append((time.time(), words))

    def renew_map(self, reports: Mapping[str, Report]) -> None:
        """Another map where something in it has changed; `reports` of all that take requests."""
        found = next_map(self.map, self.epoch, self.tenants, self.homes, reports, self.words)
        if found is not None:
            self.map = found
