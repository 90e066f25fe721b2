"""The shared store of a cluster: labels and model versions that a tenant starts with anywhere.

Labels are in one file per daemon start and tenant, in an object store in one object per commit. A
small file per tenant lists its versions and is replaced atomically. Weights are named after their
content, so that two machines that both serve a tenant never overwrite each other's weights.
"""

from __future__ import annotations

import io
import logging
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec
from msgspec import Struct

from migrator.cluster.shared_files import SharedFiles
from migrator.core.errors import InputError, MigratorError
from migrator.io.atomic_write import sync_to_disk
from migrator.io.weights_folder import sha256_of
from migrator.live.labels import LearnedBefore, SampleRow, nothing_known
from migrator.live.tenant_store import FreshLabels, NotOwnerError
from migrator.live.versions import Version, Versions

KEPT_BYTES = 2**30
"""Limit for the labels of a tenant in bytes. Beyond it the oldest files are removed if all their
labels are learned."""
FILE_BYTES = 2**26
COMMITS = 1000
"""Commits between two checks of the size of a tenant's labels in an object store."""
VERSIONS_KEPT = 3
_HEAD = struct.Struct("<II")
"""Length and checksum before every label."""
_ROWS = ".rows"
_WEIGHTS, _SERVING, _OWNER = ".safetensors", "serving.json", "owner"
_WINDOWS = "windows.json"

_log = logging.getLogger(__name__)


class _Windows(Struct):
    """When window 0 began, and the length of a window."""

    began_s: float
    window_s: float


class _SharedVersion(Struct):
    """A version in the store."""

    number: int
    weights: str
    """The file's name."""
    sha256: str
    accuracy: float | None
    about: dict[str, Any]


class _ServingVersion(_SharedVersion):
    """The version that a tenant starts with."""

    earlier: list[_SharedVersion]
    """Versions to go back to."""
    highest: int
    """The highest number ever used."""


class SharedStore:
    """The store at one address (a folder or an fsspec URL); thread-safe within a process."""

    def __init__(self, url: str, writer: str) -> None:
        """`writer`: the name of this daemon. Every start of it writes its own files."""
        self.url = url
        self.files = SharedFiles(url, f"{writer}-{time.time_ns():020d}")
        self.labels, self.versions = SharedLabels(self.files), SharedVersions(self.files)

    def windows_since_s(self, began_s: float, window_s: float) -> float:
        """When window 0 began: from the store if known, else `began_s`.

        Labels and versions contain window numbers, so the numbers continue when a cluster is
        restarted.
        """
        content = self.files.read(_WINDOWS)
        if content is not None:
            before = msgspec.json.decode(content, type=_Windows)
            if before.window_s == window_s:
                return before.began_s
            began_s -= (int((began_s - before.began_s) / before.window_s) + 1) * window_s
        self.files.write(_WINDOWS, msgspec.json.encode(_Windows(began_s, window_s)))
        return began_s

    def close(self) -> None:
        self.labels.close()


class SharedLabels:
    """The labels of all tenants and daemons, as one daemon reads and writes them."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files
        self._open: dict[str, IO[bytes]] = {}
        self._written: dict[str, int] = {}
        self._begun: Counter[str] = Counter()
        """Number of files per tenant."""
        self._read: dict[str, int] = {}
        """Offsets up to which the files of other daemons have been read."""

    def keep(
        self, rows: Sequence[SampleRow], learned_before: LearnedBefore = nothing_known
    ) -> None:
        """Store labels. Returns when they are stored; after an exception they may not be.

        Old files are removed if all of their windows are learned.
        """
        for tenant in dict.fromkeys(row.tenant for row in rows):
            records = b"".join(_record(row) for row in rows if row.tenant == tenant)
            self._append(tenant, records, learned_before)

    def fresh(self, tenant: str) -> FreshLabels:
        """Labels of other daemons, oldest first; the same ones again until `mark_brought`.

        A label truncated by a crash is left out: it was not acknowledged.
        """
        rows: list[SampleRow] = []
        ends: dict[str, int] = {}
        for name, content in self._unread(tenant):
            labels, end = _parse(content)
            rows += labels
            ends[name] = self._read.get(name, 0) + end
        return FreshLabels(rows, ends)

    def mark_brought(self, fresh: FreshLabels) -> None:
        """Mark labels as stored on this machine, so that `fresh` does not return them again."""
        self._read |= fresh.ends

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _unread(self, tenant: str) -> Iterator[tuple[str, bytes]]:
        """The new content of the files of other daemons."""
        sizes, ours = self._files.sizes(f"labels/{tenant}"), f"/{self._files.writer}-"
        unread = [
            name
            for name in _oldest_first(sizes)
            if ours not in name and sizes[name] > self._read.get(name, 0)
        ]
        for name in unread:
            if name in self._read:
                yield name, self._files.read(name, self._read[name]) or b""
        yield from self._files.read_many([name for name in unread if name not in self._read])

    def _append(self, tenant: str, records: bytes, learned_before: LearnedBefore) -> None:
        if not self._files.local:
            self._files.write(self._next_name(tenant), records)
            if self._begun[tenant] % COMMITS == 1:  # with the first: a daemon may run only briefly
                self._drop_old(tenant, learned_before)
            return
        try:
            file = self._file(tenant, learned_before)
            file.write(records)
            file.flush()
            os.fsync(file.fileno())
            self._written[tenant] += len(records)
        except BaseException:
            # its end may be half a record, after which nothing would be found
            with suppress(OSError):
                self._open.pop(tenant, io.BytesIO()).close()
            raise

    def _file(self, tenant: str, learned_before: LearnedBefore) -> IO[bytes]:
        if tenant in self._open and self._written[tenant] < FILE_BYTES:
            return self._open[tenant]
        if tenant in self._open:
            self._open.pop(tenant).close()
        self._drop_old(tenant, learned_before)
        path = Path(self._files.path(self._next_name(tenant)))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open[tenant], self._written[tenant] = path.open("ab"), 0
        sync_to_disk(path.parent)
        return self._open[tenant]

    def _next_name(self, tenant: str) -> str:
        self._begun[tenant] += 1
        return f"labels/{tenant}/{self._files.writer}-{self._begun[tenant]:08d}{_ROWS}"

    def _drop_old(self, tenant: str, learned_before: LearnedBefore) -> None:
        """Remove files beyond the limit whose labels are all learned; holds one at a time in
        memory."""
        learned = learned_before(tenant)
        if learned is None:
            return
        left = KEPT_BYTES
        try:
            sizes = self._files.sizes(f"labels/{tenant}")
            for name in reversed(_oldest_first(sizes)):
                left -= sizes[name]
                for _, content in self._files.read_many([name] if left < 0 else []):
                    if all(row.window < learned for row in _parse(content)[0]):
                        self._files.remove(name)
        except (MigratorError, OSError) as error:  # the new labels are stored anyway
            _log.warning("old labels of %s stay in the shared store: %s", tenant, error)


def _oldest_first(sizes: Mapping[str, int]) -> list[str]:
    """The files of labels, sorted by the start of their writer and their number."""

    def age(name: str) -> tuple[str, str]:
        parts = name.rpartition("/")[2].removesuffix(_ROWS).split("-")
        return parts[-2], parts[-1]

    return sorted((size for size in sizes if size.endswith(_ROWS)), key=age)


def _record(row: SampleRow) -> bytes:
    content = msgspec.msgpack.encode(row)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def _parse(content: bytes) -> tuple[list[SampleRow], int]:
    """The complete records, and the offset of their end."""
    rows, at = [], 0
    while at + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, at)
        body = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        rows.append(msgspec.msgpack.decode(body, type=SampleRow))
        at += _HEAD.size + length
    return rows, at


class SharedVersions:
    """The model versions of all tenants, as one daemon reads and writes them."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files

    def keep(self, version: Version, versions: Versions, *, claim: bool) -> Version | None:
        """Make this the version that the tenant starts with on other machines.

        `claim`: this daemon has just begun to serve the tenant. Without it, NotOwnerError is raised
        if another daemon has. Returns a version that another daemon shared, which must serve before
        any is stored, or None.
        """
        folder = f"versions/{version.tenant}"
        self._require_owner(folder, version.tenant, claim=claim)
        serving = self._put(folder, version)
        # weights take a while: meanwhile another daemon may have claimed the tenant or shared
        self._require_owner(folder, version.tenant, claim=False)
        shared = self._entry(version.tenant)
        # a daemon that claims a tenant has not seen newer versions or rollbacks
        us = serving.number, serving.sha256
        same = shared is not None and (shared.number, shared.sha256) == us
        if shared is not None and (shared.highest > versions.highest or (claim and not same)):
            newer = self.bring(versions)
            if newer is not None and newer != version:
                return newer
        earlier = [good for good in versions.good() if good.number < version.number]
        before = [self._put(folder, good) for good in earlier[: VERSIONS_KEPT - 1]]
        entry = _ServingVersion(
            **msgspec.structs.asdict(serving), earlier=before, highest=versions.highest
        )
        self._files.write(f"{folder}/{_SERVING}", msgspec.json.encode(entry))
        self._drop_old(folder, version.number, {kept.weights for kept in (serving, *before)})
        self._files.clear_unfinished(folder)
        return None

    def bring(self, versions: Versions) -> Version | None:
        """Copy the shared version and the earlier ones to this machine, and withdraw all others.

        Returns the version to serve; None if none was ever shared.
        """
        entry = self._entry(versions.tenant)
        if entry is None:
            return None
        listed = (entry, *entry.earlier)
        brought = [version for version in listed if self._get(versions, version)]
        if not brought and versions.newest_good() is None:
            folder = self._files.path(f"versions/{versions.tenant}")
            raise InputError(
                f"{folder}: the weights are damaged; remove {_SERVING} there to begin without them"
            )
        # without a whole version none is withdrawn; no number is used again in any case
        good = {version.number for version in brought} or range(entry.highest + 1)
        versions.withdraw_up_to(entry.highest, good)
        return versions.newest_good()

    def _entry(self, tenant: str) -> _ServingVersion | None:
        content = self._files.read(f"versions/{tenant}/{_SERVING}")
        return None if content is None else msgspec.json.decode(content, type=_ServingVersion)

    def _require_owner(self, folder: str, tenant: str, *, claim: bool) -> None:
        us = self._files.writer.encode()
        owner = self._files.read(f"{folder}/{_OWNER}")
        if owner == us:
            return
        if owner is not None and not claim:
            raise NotOwnerError(f"{tenant} is now served by {owner.decode()}, whose versions count")
        self._files.write(f"{folder}/{_OWNER}", us)

    def _put(self, folder: str, version: Version) -> _SharedVersion:
        checksum = sha256_of(version.weights)
        name = f"{version.number:06d}-{checksum[:16]}{_WEIGHTS}"
        if f"{folder}/{name}" not in self._files.sizes(folder):
            self._files.put(f"{folder}/{name}", version.weights)
        return _SharedVersion(version.number, name, checksum, version.accuracy, dict(version.about))

    def _get(self, versions: Versions, entry: _SharedVersion) -> bool:
        """Copy a version to this machine; False if it is damaged or withdrawn."""
        if versions.withdrawn(entry.number):
            return False  # rolled back here while the store was unavailable
        version = versions.whole(entry.number)
        if version is not None and sha256_of(version.weights) == entry.sha256:
            return True
        source = f"versions/{versions.tenant}/{entry.weights}"
        with TemporaryDirectory() as folder:
            weights = Path(folder) / "weights"
            try:
                self._files.get(source, weights)
            except FileNotFoundError:
                _log.warning("%s is missing; the version before it is used", source)
                return False
            if sha256_of(weights) != entry.sha256:
                _log.warning("%s is damaged; the version before it is used", source)
                return False
            versions.restore(entry.number, weights, entry.accuracy, entry.about)
        return True

    def _drop_old(self, folder: str, newest: int, kept: set[str]) -> None:
        for path in self._files.sizes(folder):
            name = path.rpartition("/")[2]
            number = name.partition(".")[0].partition("-")[0]
            if name not in kept and number.isdecimal() and int(number) <= newest - VERSIONS_KEPT:
                self._files.remove(path)
