"""Which tenants were added to a daemon and removed from it while it served, in a file.

A restarted daemon serves the tenants of its scenario and the added ones, without the removed ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from migrator.core.errors import InputError
from migrator.io.atomic_write import write_atomically
from migrator.io.folders import private_folder
from migrator.live.room import require_room
from migrator.workload.live import LiveScenario, parse_tenant

_log = logging.getLogger(__name__)


class _AddedSection(msgspec.Struct, frozen=True):
    """A tenant as a scenario has it."""

    tenant: dict[str, Any]
    folder: str
    """Paths in it are relative to this folder."""
    replaces: bool = False
    """Whether the scenario had another tenant of that name when it was added."""


class _File(msgspec.Struct, frozen=True):
    version: Literal[1] = 1
    added: dict[str, _AddedSection] = {}
    removed: tuple[str, ...] = ()


class StoredTenants:
    """The tenants of a scenario with the changes in the file `path`; without it, there are none."""

    def __init__(self, path: Path, live: LiveScenario) -> None:
        """InputError if the file cannot be read, or nothing is left to serve."""
        self._path, self._live = path, live
        self._content = _read(path)
        self._alone = {tenant.name: _alone(live, tenant.name) for tenant in live.tenants}
        self._of_scenario = frozenset(self._alone)
        self.unusable: dict[str, str] = {}
        """Added tenants that cannot be served any more, and why."""
        for name, section in self._content.added.items():
            if name in self._alone and not section.replaces:
                continue  # the operator has put it into the scenario
            self._alone.pop(name, None)
            try:
                read = parse_tenant(section.tenant, live, Path(section.folder))
                if name not in self._content.removed:
                    others = [other.tenants[0].service for other in self._served().values()]
                    require_room(read.tenants[0].service, others, live.scenario.board)
                self._alone[name] = read
            except InputError as error:
                self.unusable[name] = str(error)
        if not self._served():
            raise InputError(
                f"{path}: every tenant of the scenario was removed; delete the file to serve them "
                "again, or put others into the scenario"
            )

    @property
    def live(self) -> LiveScenario:
        """The scenario with the tenants that are served."""
        served = tuple(self._served().values())
        scenario = self._live.scenario
        tenants = tuple(alone.scenario.tenants[0] for alone in served)
        return replace(
            self._live,
            scenario=replace(scenario, tenants=tenants),
            tenants=tuple(alone.tenants[0] for alone in served),
        )

    @property
    def names(self) -> list[str]:
        """All tenants, also the removed ones."""
        return list(self._alone)

    @property
    def removed(self) -> list[str]:
        """Those that are not served and can be added again by name."""
        return [name for name in self._alone if name in self._content.removed]

    def of(self, name: str) -> LiveScenario:
        """A scenario of this tenant alone."""
        return self._alone[name]

    def read(self, section: Mapping[str, Any], folder: Path | None) -> LiveScenario:
        """A scenario of the tenant of a section alone; InputError if it cannot be used.

        `folder`: paths in it are relative to this; None: to the working folder.
        """
        return parse_tenant(section, self._live, folder or Path.cwd())

    def add(self, name: str, section: Mapping[str, Any], folder: Path | None) -> None:
        """Store that the tenant of this section is served."""
        read = self.read(section, folder)
        stored = _AddedSection(
            dict(section), str(folder or Path.cwd()), replaces=name in self._of_scenario
        )
        self._write({**self._content.added, name: stored}, {*self._content.removed} - {name})
        self._alone[name] = read
        self.unusable.pop(name, None)

    def restore(self, name: str) -> None:
        """Store that a removed tenant is served again."""
        self._write(self._content.added, {*self._content.removed} - {name})

    def remove(self, name: str) -> None:
        """Store that the tenant is not served."""
        self._write(self._content.added, {*self._content.removed, name})

    def require_writable(self) -> None:
        """InputError if nothing can be stored, found by writing the file as it is."""
        self._write(self._content.added, set(self._content.removed))

    def _served(self) -> dict[str, LiveScenario]:
        removed = self._content.removed
        return {name: alone for name, alone in self._alone.items() if name not in removed}

    def _write(self, added: Mapping[str, _AddedSection], removed: set[str]) -> None:
        """After an InputError nothing has changed."""
        content = _File(added=dict(added), removed=tuple(sorted(removed)))
        private_folder(self._path.parent)
        with write_atomically(self._path) as unfinished:
            unfinished.write_bytes(msgspec.json.encode(content) + b"\n")
        self._content = content


def _read(path: Path) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File()
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path}: cannot read which tenants were added and removed ({error}); delete the file "
            "to serve those of the scenario"
        ) from error


def _alone(live: LiveScenario, name: str) -> LiveScenario:
    """The scenario with this tenant only."""
    served = next(tenant for tenant in live.scenario.tenants if tenant.service.tenant == name)
    scenario = replace(live.scenario, tenants=(served,))
    return replace(live, scenario=scenario, tenants=(live.tenant(name),))
