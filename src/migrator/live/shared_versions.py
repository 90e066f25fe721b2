"""Versions of a tenant's model where they outlive a machine: what serves, what to go back to.

One small file per tenant says which version serves, which came before it and which numbers have
been given; it is replaced in one step. Weights are called after their content, so that two machines
that both think they serve the tenant never spoil each other's.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from migrator.core.errors import InputError, MigratorError
from migrator.live.shared_files import SharedFiles
from migrator.live.versions import Version, Versions

VERSIONS_KEPT = 3
_WEIGHTS, _SERVING, _OWNER = ".safetensors", "serving.json", "owner"

_log = logging.getLogger(__name__)


class NotOursError(MigratorError):
    """Another daemon serves the tenant by now; what it shares counts."""


class SharedVersions:
    """Everybody's versions, as one daemon reads and writes them."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files

    def keep(self, version: Version, versions: Versions, *, claim: bool) -> Version | None:
        """From now on the tenant begins with this version elsewhere, and can go back from it.

        `claim`: this daemon has just begun to serve it; otherwise NotOursError where another has.
        A version instead of None: another shared that one, it has to serve before any is kept.
        """
        folder = f"versions/{version.tenant}"
        self._own(folder, version.tenant, claim=claim)
        serving = self._kept(folder, version)
        # weights take a while: another may have claimed the tenant, or shared its last one
        self._own(folder, version.tenant, claim=False)
        known = self._entry(version.tenant)
        if known is not None and _tells(known, serving, versions.highest, claim=claim):
            found = self.bring(versions)
            if found is not None and found != version:
                return found
        earlier = [each for each in versions.good() if each.number < version.number]
        before = [self._kept(folder, each) for each in earlier[: VERSIONS_KEPT - 1]]
        entry = {**serving, "earlier": before, "highest": versions.highest}
        self._files.write(f"{folder}/{_SERVING}", json.dumps(entry).encode())
        self._drop_old(folder, version.number, {e["weights"] for e in (serving, *before)})
        self._files.clear_unfinished(folder)
        return None

    def bring(self, versions: Versions) -> Version | None:
        """What served last is here too, with what to go back to; others are withdrawn here too."""
        entry = self._entry(versions.tenant)
        if entry is None:
            return None
        listed = [entry, *entry.get("earlier", ())]
        brought = [each for each in listed if self._brought(versions, each)]
        if not brought and versions.newest_good() is None:
            folder = self._files.path(f"versions/{versions.tenant}")
            raise InputError(
                f"{folder}: the weights there are damaged; remove {_SERVING} beside them to begin "
                "without"
            )
        known = {each["number"] for each in brought} if "earlier" in entry else ()
        highest = _highest(entry)
        # where that tells nothing those that are here stay; no number is given again in any case
        versions.withdraw_up_to(highest, known or range(highest + 1))
        return versions.newest_good()

    def _entry(self, tenant: str) -> dict[str, Any] | None:
        """What the store says of a tenant; None: nobody has shared anything."""
        content = self._files.read(f"versions/{tenant}/{_SERVING}")
        if content is None:
            return None
        entry: dict[str, Any] = json.loads(content)
        return entry

    def _own(self, folder: str, tenant: str, *, claim: bool) -> None:
        us = self._files.writer.encode()
        owner = self._files.read(f"{folder}/{_OWNER}")
        if owner == us:
            return
        if owner is not None and not claim:
            raise NotOursError(
                f"{tenant} is served by {owner.decode()} by now, whose versions count"
            )
        self._files.write(f"{folder}/{_OWNER}", us)

    def _kept(self, folder: str, version: Version) -> dict[str, Any]:
        checksum = _sha256(version.weights)
        name = f"{version.number:06d}-{checksum[:16]}{_WEIGHTS}"
        if f"{folder}/{name}" not in self._files.sizes(folder):
            self._files.put(f"{folder}/{name}", version.weights)
        return {
            "number": version.number,
            "weights": name,
            "sha256": checksum,
            "accuracy": version.accuracy,
            "about": dict(version.about),
        }

    def _brought(self, versions: Versions, entry: Mapping[str, Any]) -> bool:
        """Whether it is here, perhaps from before; one that is damaged is told and left out."""
        number, checksum = entry["number"], entry["sha256"]
        if versions.withdrawn(number):
            return False  # the store may not have been there when an operator went back
        known = versions.whole(number)
        if known is not None and _sha256(known.weights) == checksum:
            return True
        source = f"versions/{versions.tenant}/{entry['weights']}"
        with TemporaryDirectory() as folder:
            weights = Path(folder) / "weights"
            try:
                self._files.get(source, weights)
            except FileNotFoundError:
                _log.warning("%s is not there; the version before it is taken", source)
                return False
            if _sha256(weights) != checksum:
                _log.warning("%s is damaged; the version before it is taken", source)
                return False
            versions.restore(number, weights, entry["accuracy"], entry["about"])
        return True

    def _drop_old(self, folder: str, newest: int, named: set[str]) -> None:
        for path in self._files.sizes(folder):
            name = path.rpartition("/")[2]
            number = name.partition(".")[0].partition("-")[0]
            if name not in named and number.isdecimal() and int(number) <= newest - VERSIONS_KEPT:
                self._files.remove(path)


def _tells(
    known: Mapping[str, Any], serving: Mapping[str, Any], highest: int, *, claim: bool
) -> bool:
    """Whether what the store knows has to be looked at before it is overwritten.

    Who claims has not seen what others did: a newer version, or that they went back from one.
    """
    same = (known["number"], known["sha256"]) == (serving["number"], serving["sha256"])
    return _highest(known) > highest or (claim and not same)


def _highest(entry: Mapping[str, Any]) -> int:
    """Of the numbers that have been given."""
    return int(max(entry["number"], entry.get("highest", 0)))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
