"""What a daemon keeps outside its machine: an interface, whose implementation is the cluster's.

A standalone daemon has no such store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.core.errors import MigratorError
from migrator.live.labels import LearnedBefore, SampleRow
from migrator.live.versions import Version, Versions


class NotOwnerError(MigratorError):
    """Another daemon serves the tenant; its versions count."""


@dataclass(frozen=True)
class FreshLabels:
    """Labels that other daemons have written."""

    rows: Sequence[SampleRow]
    ends: Mapping[str, int]
    """Offsets up to which the files have been read."""


class LabelStore(Protocol):
    """The labels of all tenants and daemons."""

    def keep(self, rows: Sequence[SampleRow], learned_before: LearnedBefore) -> None:
        """Store labels. Returns when they are stored; after an exception they may not be."""

    def fresh(self, tenant: str) -> FreshLabels:
        """Labels of other daemons, oldest first; the same ones again until `mark_brought`."""

    def mark_brought(self, fresh: FreshLabels) -> None:
        """Mark labels as stored on this machine, so that `fresh` does not return them again."""


class VersionStore(Protocol):
    """The model versions of all tenants."""

    def keep(self, version: Version, versions: Versions, *, claim: bool) -> Version | None:
        """Make this the version that the tenant starts with on other machines.

        `claim`: this daemon has just begun to serve the tenant. Without it, NotOwnerError is raised
        if another daemon has. Returns a version that another daemon shared, which must serve before
        any is stored, or None.
        """

    def bring(self, versions: Versions) -> Version | None:
        """Copy the shared version and the earlier ones to this machine, and withdraw all others.

        Returns the version to serve; None if none was ever shared.
        """


class TenantStore(Protocol):
    """Labels and versions that a tenant starts with on any machine."""

    @property
    def labels(self) -> LabelStore: ...

    @property
    def versions(self) -> VersionStore: ...

    def close(self) -> None:
        """Close the files that are open."""
