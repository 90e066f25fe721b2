"""What outlives a machine: the versions of every tenant's model, every label that was accepted, and
when windows began to be counted.

A folder or any address that fsspec knows. A tenant begins with all of it wherever it comes to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

from migrator.live.label_rows import LearnedBefore, SampleRow, nothing_known
from migrator.live.shared_files import SharedFiles
from migrator.live.shared_labels import FreshLabels, SharedLabels
from migrator.live.shared_versions import SharedVersions
from migrator.live.versions import Version, Versions

_WINDOWS = "windows.json"


class SharedStore:
    """The store at one address, as one process writes to it; for several threads."""

    def __init__(self, url: str, writer: str) -> None:
        """`writer`: which daemon this is; every life of it writes files of its own."""
        self.url = url
        self._files = SharedFiles(url, f"{writer}-{time.time_ns():020d}")
        self._labels, self._versions = SharedLabels(self._files), SharedVersions(self._files)

    def keep_labels(
        self, rows: Sequence[SampleRow], learned_before: LearnedBefore = nothing_known
    ) -> None:
        """Returns when they are kept; whatever it raises, they may not be.

        Old files go where all of their windows are learned.
        """
        self._labels.keep(rows, learned_before)

    def labels(self, tenant: str) -> Iterator[SampleRow]:
        """Every label of the tenant, the oldest first."""
        return self._labels.all(tenant)

    def fresh_labels(self, tenant: str) -> FreshLabels:
        """Those that others have kept and that were not brought yet: told again until they are."""
        return self._labels.fresh(tenant)

    def brought_labels(self, fresh: FreshLabels) -> None:
        """They are kept here too by now."""
        self._labels.brought(fresh)

    def keep_version(self, version: Version, versions: Versions, *, claim: bool) -> Version | None:
        """From now on the tenant begins with this version elsewhere, and can go back from it.

        `claim`: this daemon has just begun to serve it; otherwise NotOursError where another has.
        A version instead of None: another shared that one, it has to serve before any is kept.
        """
        return self._versions.keep(version, versions, claim=claim)

    def bring_version(self, versions: Versions) -> Version | None:
        """What served last, wherever that was, is here too; None: nothing ever did."""
        return self._versions.bring(versions)

    def windows_since_s(self, began_s: float, window_s: float) -> float:
        """When window 0 began: as somebody before has said, else at `began_s`.

        Labels and versions name windows: their numbers go on when a cluster is started again.
        """
        told = self._files.read(_WINDOWS)
        known = None if told is None else json.loads(told)
        if known is not None and known["window_s"] == window_s:
            return float(known["began_s"])
        if known is not None:
            passed = int((began_s - known["began_s"]) / known["window_s"]) + 1
            began_s -= passed * window_s
        entry = {"began_s": began_s, "window_s": window_s}
        self._files.write(_WINDOWS, json.dumps(entry).encode())
        return began_s

    def write(self, name: str, content: bytes) -> None:
        """A small file for everybody, there whole or not at all."""
        self._files.write(name, content)

    def read(self, name: str) -> bytes | None:
        """The same again; None: nobody has written it."""
        return self._files.read(name)

    def close(self) -> None:
        """Let go of what is open."""
        self._labels.close()
