"""What outlives a machine: every tenant's weights that serve, and every label that was accepted.

A folder or any address that fsspec knows. Labels are appended, one file per life of a daemon: on a
disk every commit is flushed there, in an object store every commit is an object of its own. A
tenant that begins somewhere else begins with both.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec

from migrator.core.errors import InputError, MigratorError
from migrator.learn.atomic import written_whole
from migrator.runtime.label_rows import SampleRow
from migrator.runtime.versions import Version, Versions

KEPT_BYTES = 2**30
"""Of a tenant's labels; the oldest files go first."""
FILE_BYTES = 2**26
VERSIONS_KEPT = 3
_HEAD = struct.Struct("<II")
"""Of every record: its length and checksum."""
_ROWS, _WEIGHTS, _SERVING = ".rows", ".safetensors", "serving.json"


class SharedStore:
    """The store at one address, as one daemon writes to it; for several threads."""

    def __init__(self, url: str, writer: str) -> None:
        """`writer`: which daemon this is; every life of it writes files of its own."""
        self.url = url
        self._files, self._root = _opened(url)
        self._local = "file" in _protocols(self._files)
        self._writer = f"{writer}-{time.time_ns():020d}"
        self._open: dict[str, IO[bytes]] = {}
        self._written: dict[str, int] = {}
        self._count = 0

    def keep_labels(self, rows: Sequence[SampleRow]) -> None:
        """Returns when they are kept; whatever it raises, they may not be."""
        for tenant in dict.fromkeys(each.tenant for each in rows):
            records = b"".join(_record(each) for each in rows if each.tenant == tenant)
            self._append(tenant, records)

    def labels(self, tenant: str) -> Iterator[SampleRow]:
        """Every label of the tenant; what a crash cut off is left out, nobody was told it is kept.

        The oldest come first.
        """
        for path in self._label_files(tenant):
            yield from _rows(self._files.cat_file(path))

    def keep_version(self, version: Version) -> None:
        """From now on these weights are what the tenant begins with elsewhere."""
        folder = f"{self._root}/versions/{version.tenant}"
        name = f"{version.number:06d}{_WEIGHTS}"
        self._put(f"{folder}/{name}", version.weights)
        entry = {
            "number": version.number,
            "weights": name,
            "sha256": _sha256(version.weights),
            "accuracy": version.accuracy,
            "about": dict(version.about),
        }
        self._write(f"{folder}/{_SERVING}", json.dumps(entry).encode())
        self._drop_old_versions(folder, version.number)

    def bring_version(self, versions: Versions) -> Version | None:
        """The weights that served last, added to the local ones where they are not there yet."""
        entry = self._serving(versions.tenant)
        if entry is None:
            return None
        known = versions.newest_good()
        if known is not None and known.number >= entry["number"]:
            return known
        with TemporaryDirectory() as folder:
            weights = Path(folder) / entry["weights"]
            source = f"{self._root}/versions/{versions.tenant}/{entry['weights']}"
            self._files.get_file(source, str(weights))
            if _sha256(weights) != entry["sha256"]:
                raise InputError(
                    f"{source}: these weights are damaged; remove {_SERVING} beside them to begin "
                    "without"
                )
            return versions.add(weights, entry["accuracy"], entry["about"], least=entry["number"])

    def write(self, name: str, content: bytes) -> None:
        """A small file for everybody, there whole or not at all."""
        self._write(f"{self._root}/{name}", content)

    def close(self) -> None:
        """Let go of what is open."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def _append(self, tenant: str, records: bytes) -> None:
        if not self._local:
            self._files.pipe_file(self._next_file(tenant), records)
            return
        try:
            file = self._file(tenant)
            file.write(records)
            file.flush()
            os.fsync(file.fileno())
            self._written[tenant] += len(records)
        except BaseException:
            # half a record may be at its end: what came after would not be found
            with suppress(OSError):
                self._open.pop(tenant, io.BytesIO()).close()
            raise

    def _file(self, tenant: str) -> IO[bytes]:
        if tenant in self._open and self._written[tenant] < FILE_BYTES:
            return self._open[tenant]
        if tenant in self._open:
            self._open.pop(tenant).close()
        self._drop_old_labels(tenant)
        path = Path(self._next_file(tenant))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open[tenant], self._written[tenant] = path.open("ab"), 0
        _sync(path.parent)
        return self._open[tenant]

    def _next_file(self, tenant: str) -> str:
        self._count += 1
        return f"{self._root}/labels/{tenant}/{self._writer}-{self._count:08d}{_ROWS}"

    def _label_files(self, tenant: str) -> list[str]:
        folder = f"{self._root}/labels/{tenant}"
        try:
            found = self._files.find(folder)
        except FileNotFoundError:
            return []
        return sorted((e for e in found if e.endswith(_ROWS)), key=_age)

    def _drop_old_labels(self, tenant: str) -> None:
        left = KEPT_BYTES
        for path in reversed(self._label_files(tenant)):
            left -= self._files.size(path)
            if left < 0:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)

    def _serving(self, tenant: str) -> dict[str, Any] | None:
        try:
            content = self._files.cat_file(f"{self._root}/versions/{tenant}/{_SERVING}")
        except FileNotFoundError:
            return None
        entry: dict[str, Any] = json.loads(content)
        return entry

    def _drop_old_versions(self, folder: str, newest: int) -> None:
        for path in self._files.find(folder):
            number = path.rpartition("/")[2].partition(".")[0]
            if number.isdecimal() and int(number) <= newest - VERSIONS_KEPT:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)

    def _put(self, path: str, source: Path) -> None:
        if self._local:
            self._write(path, source.read_bytes())
        else:
            self._files.put_file(str(source), path)

    def _write(self, path: str, content: bytes) -> None:
        if not self._local:
            self._files.pipe_file(path, content)
            return
        whole = Path(path)
        whole.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(whole) as unfinished:
            unfinished.write_bytes(content)


def _opened(url: str) -> tuple[Any, str]:
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError as error:
        raise MigratorError(
            "a shared store needs fsspec, which is not installed: pip install 'migrator[cluster]'"
        ) from error
    try:
        files, root = fsspec.url_to_fs(url)
        files.makedirs(root, exist_ok=True)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"--shared: {url} cannot be used ({error}); give a folder or an address of fsspec"
        ) from error
    return files, root.rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    names = files.protocol
    return (names,) if isinstance(names, str) else tuple(names)


def _age(path: str) -> tuple[str, str]:
    """When its writer's life began, and where in it."""
    parts = path.rpartition("/")[2].removesuffix(_ROWS).split("-")
    return parts[-2], parts[-1]


def _record(row: SampleRow) -> bytes:
    content = msgspec.msgpack.encode(row)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


def _rows(content: bytes) -> Iterator[SampleRow]:
    at = 0
    while at + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, at)
        body = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        yield msgspec.msgpack.decode(body, type=SampleRow)
        at += _HEAD.size + length


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: str) -> bytes:
    """A file of a store; OSError where it is not there."""
    folder, _, name = path.rpartition("/")
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError:
        return Path(path).read_bytes()
    files, root = fsspec.url_to_fs(folder or ".")
    found: bytes = files.cat_file(f"{root}/{name}")
    return found
