"""The map that names each tenant's daemon, and how the head renews it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from migrator.cluster.fleet.messages import Report


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


def next_map(
    current: ClusterMap,
    epoch: int,
    tenants: Sequence[str],
    homes: Mapping[str, str],
    reports: Mapping[str, Report],
    problems: Mapping[str, str],
) -> ClusterMap | None:
    """Return the new map, or None if nothing has changed.

    `problems`: tenant -> why it is not served. `reports`: of every daemon that accepts requests,
    also of GPUs that are being drained. A tenant stays in the map while its instances change, and
    while the agent has no answer of a daemon that has served, for example just after a restart of
    the agent; a new tenant enters once it is ready.
    """
    served, away = {}, {}
    for name in tenants:
        report = reports.get(homes.get(name, ""))
        tenant = None if report is None else report.tenants.get(name)
        if report is not None and current.homes.get(name) == report.url:
            unanswered = report.has_served and not report.up and name in report.assigned
            stays = tenant is not None or unanswered
        else:
            stays = tenant is not None and tenant.ready
        if report is not None and stays:
            served[name] = report.url
        elif tenant is None:
            away[name] = problems.get(name, "it is on its way to a GPU")
        else:
            why = "it is drained" if tenant.drained else "it has no instance yet"
            away[name] = problems.get(name, why)
    pages = {gpu: report.url for gpu, report in reports.items()}
    if (served, away, pages, epoch) == (current.homes, current.away, current.pages, current.epoch):
        return None
    return ClusterMap(epoch, current.version + 1, served, away, pages, current.admin)
