"""Labels that were accepted, where they outlive a machine: kept before they are acknowledged.

One file per life of a daemon and tenant, appended and flushed on a disk; in an object store every
commit is an object of its own. Whoever serves the tenant next reads what all have written.
"""

from __future__ import annotations

import io
import logging
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from migrator.core.errors import MigratorError
from migrator.live.label_rows import LearnedBefore, SampleRow
from migrator.live.shared_files import SharedFiles, synced

KEPT_BYTES = 2**30
"""Of a tenant's labels; beyond it the oldest files go whose labels are all learned."""
FILE_BYTES = 2**26
COMMITS = 1000
"""Of a tenant in an object store, between two looks at how much there is."""
_HEAD = struct.Struct("<II")
"""Of every record: its length and checksum."""
_ROWS = ".rows"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreshLabels:
    """What others have written since, and how far their files are read with it."""

    rows: Sequence[SampleRow]
    ends: Mapping[str, int]


class SharedLabels:
    """Everybody's labels, as one daemon reads and writes them."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files
        self._open: dict[str, IO[bytes]] = {}
        self._written: dict[str, int] = {}
        self._begun: Counter[str] = Counter()
        """Files per tenant."""
        self._read: dict[str, int] = {}
        """Up to where what others wrote, file by file, has been brought."""

    def keep(self, rows: Sequence[SampleRow], learned_before: LearnedBefore) -> None:
        """Returns when they are kept; whatever it raises, they may not be."""
        for tenant in dict.fromkeys(each.tenant for each in rows):
            records = b"".join(_record(each) for each in rows if each.tenant == tenant)
            self._append(tenant, records, learned_before)

    def all(self, tenant: str) -> Iterator[SampleRow]:
        """Every label of the tenant; what a crash cut off is left out, nobody was told it is kept.

        The oldest come first.
        """
        for _, content in self._files.read_many(self._names(tenant)):
            yield from _parsed(content)[0]

    def fresh(self, tenant: str) -> FreshLabels:
        """What others have written and was not brought yet: the same again until `brought`."""
        rows: list[SampleRow] = []
        ends: dict[str, int] = {}
        for name, content in self._news(tenant):
            some, end = _parsed(content)
            rows += some
            ends[name] = self._read.get(name, 0) + end
        return FreshLabels(rows, ends)

    def brought(self, fresh: FreshLabels) -> None:
        """They are kept here: they are not fresh any more."""
        self._read |= fresh.ends

    def close(self) -> None:
        """Let go of what is open."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def _news(self, tenant: str) -> Iterator[tuple[str, bytes]]:
        """What has come to every file of others."""
        sizes = self._sizes(tenant)
        news = [name for name, size in sizes.items() if size > self._read.get(name, 0)]
        for name in news:
            if name in self._read:
                yield name, self._files.read(name, self._read[name]) or b""
        yield from self._files.read_many([each for each in news if each not in self._read])

    def _append(self, tenant: str, records: bytes, learned_before: LearnedBefore) -> None:
        if not self._files.local:
            self._files.write(self._next_name(tenant), records)
            if self._begun[tenant] % COMMITS == 1:  # with the first: a life may be short
                self._drop_old(tenant, learned_before)
            return
        try:
            file = self._file(tenant, learned_before)
            file.write(records)
            file.flush()
            os.fsync(file.fileno())
            self._written[tenant] += len(records)
        except BaseException:
            # half a record may be at its end: what came after would not be found
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
        synced(path.parent)
        return self._open[tenant]

    def _next_name(self, tenant: str) -> str:
        self._begun[tenant] += 1
        return f"labels/{tenant}/{self._files.writer}-{self._begun[tenant]:08d}{_ROWS}"

    def _names(self, tenant: str) -> list[str]:
        found = self._files.sizes(f"labels/{tenant}")
        return sorted((each for each in found if each.endswith(_ROWS)), key=_age)

    def _sizes(self, tenant: str) -> dict[str, int]:
        """Of the files of others, the oldest first."""
        found, ours = self._files.sizes(f"labels/{tenant}"), f"/{self._files.writer}-"
        names = sorted((e for e in found if e.endswith(_ROWS) and ours not in e), key=_age)
        return {name: found[name] for name in names}

    def _drop_old(self, tenant: str, learned_before: LearnedBefore) -> None:
        """Remove files beyond the limit whose labels are all learned; one at a time in memory."""
        learned = learned_before(tenant)
        if learned is None:
            return
        left = KEPT_BYTES
        try:
            sizes = self._files.sizes(f"labels/{tenant}")
            for name in sorted((e for e in sizes if e.endswith(_ROWS)), key=_age, reverse=True):
                left -= sizes[name]
                for _, content in self._files.read_many([name] if left < 0 else []):
                    if all(each.window < learned for each in _parsed(content)[0]):
                        self._files.remove(name)
        except (MigratorError, OSError) as error:  # labels are kept all the same
            _log.warning("old labels of %s stay in the shared store: %s", tenant, error)


def _age(name: str) -> tuple[str, str]:
    """When its writer's life began, and where in it."""
    parts = name.rpartition("/")[2].removesuffix(_ROWS).split("-")
    return parts[-2], parts[-1]


def _record(row: SampleRow) -> bytes:
    content = msgspec.msgpack.encode(row)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def _parsed(content: bytes) -> tuple[list[SampleRow], int]:
    """The whole records in it, and where they end."""
    rows, at = [], 0
    while at + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, at)
        body = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        rows.append(msgspec.msgpack.decode(body, type=SampleRow))
        at += _HEAD.size + length
    return rows, at
