"""What agents tell the head, and the map that the head tells everybody."""

from __future__ import annotations

import msgspec

from migrator import __version__


class TenantReport(msgspec.Struct, frozen=True):
    """A tenant on a GPU."""

    ready: bool
    """An instance takes its requests."""
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
    """One GPU, as its agent knows it."""

    gpu: str
    node: str
    number: int
    """Of the GPU in its machine."""
    pid: int
    """Of the agent."""
    url: str
    """Where its daemon listens, whether it is up or not."""
    epoch: int = 0
    """Of the newest head that this agent has heard."""
    package: str = __version__
    begun: bool = False
    """Whether it has been told whom to serve."""
    up: bool = False
    """Whether its daemon answers and serves."""
    tenants: dict[str, TenantReport] = {}
    window: int = 0
    restarts: int = 0
    """Of its daemon, in the life of this agent."""
    failures: int = 0
    """In a row, before it served."""
    words: str = ""
    """What is wrong, if anything."""
    silent_s: float = 0.0
    """How long its daemon, which has served, has not answered its agent."""
    assigned: tuple[str, ...] = ()
    """Tenants that its daemon has, or begins with when it is started again."""
    drained: bool = False
    """An operator has drained the GPU: no tenant is placed on it."""
    began_s: float = 0.0
    """When window 0 of the cluster began, as its agent was told."""


class Answer(msgspec.Struct, frozen=True):
    """What came of an order."""

    done: bool
    words: str
    epoch: int
    """Higher than that of whoever gave it: another head leads."""


class ClusterMap(msgspec.Struct, frozen=True):
    """Who lives where; a later one has a higher (epoch, version)."""

    epoch: int = 0
    version: int = 0
    homes: dict[str, str] = {}
    """Tenant -> address of the daemon that serves it."""
    away: dict[str, str] = {}
    """Tenants that nobody serves now, and why."""
    pages: dict[str, str] = {}
    """GPU -> address of its daemon, which has the live page."""
    admin: str | None = None
    """The digest of the token for administration; None: no tokens are asked for."""

    @property
    def order(self) -> tuple[int, int]:
        """To compare two of them by."""
        return self.epoch, self.version
