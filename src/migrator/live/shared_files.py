"""Files that every machine of a cluster reaches: a folder, or any address that fsspec knows.

Paths are relative to it. On a disk a file is there whole or not at all, also when two machines
write it at once; an object store does that by itself.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from migrator.core.errors import InputError, MigratorError

READ_S, MANY_S = 5.0, 300.0
"""How long the store may take for a small file or a folder's names, and for large or many files."""
AGAIN_S = 2.0
"""A store that hangs is not asked again sooner."""
MOST_HANGING = 16
"""Calls that may hang at a time; until one of them returns the store is not asked again."""
_AT_ONCE = 256
_UNFINISHED = ".unfinished"

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StoreHangsError(MigratorError):
    """The shared store did not answer in time."""


class Limited:
    """Calls that may hang, each in a thread of its own that is left behind if it does."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._hanging, self._asked_s = 0, 0.0

    def call(self, limit_s: float, do: Callable[[], T]) -> T:
        """What it returns; StoreHangsError where it takes too long, or earlier calls still hang."""
        with self._lock:
            now_s = time.monotonic()
            soon = now_s - self._asked_s < AGAIN_S
            if self._hanging and (soon or self._hanging >= MOST_HANGING):
                raise StoreHangsError(f"the shared store {self._name} does not answer")
            self._asked_s = now_s
        done: Future[T] = Future()
        threading.Thread(target=_run, args=(do, done), name="shared store", daemon=True).start()
        try:
            return done.result(limit_s)
        except TimeoutError:
            if done.done():  # the store's own error, or an answer in the last moment
                return done.result()
        with self._lock:
            self._hanging += 1
        done.add_done_callback(self._returned)
        raise StoreHangsError(f"the shared store {self._name} does not answer within {limit_s:g} s")

    def _returned(self, _: object) -> None:
        with self._lock:
            self._hanging -= 1


_BY_PATH: dict[str, Limited] = {}
"""Of files that are read without a store, over and over."""


def _run(do: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(do())
    except BaseException as error:
        done.set_exception(error)


class SharedFiles:
    """The files at one address, as one writer sees them; for several threads."""

    def __init__(self, url: str, writer: str) -> None:
        """`writer`: of one life of one process, unlike any other's."""
        self._limited = Limited(url)
        self._files, self._root = _opened(url, self._limited)
        self.writer = writer
        self.local = "file" in _protocols(self._files)
        """Whether it is a disk: files can be appended to, and have to be flushed."""
        self._begun = count(1)

    def path(self, name: str) -> str:
        """As the file system has it."""
        return f"{self._root}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """A small file, whole or not at all."""
        if self.local:
            self._whole(name, lambda unfinished: unfinished.write_bytes(content))
        else:
            self._files.pipe_file(self.path(name), content)

    def put(self, name: str, source: Path) -> None:
        """A copy of a file of this machine, whole or not at all."""
        if self.local:
            self._whole(name, lambda unfinished: shutil.copyfile(source, unfinished))
        else:
            self._files.put_file(str(source), self.path(name))

    def get(self, name: str, target: Path) -> None:
        """A copy of it on this machine; OSError where it is not there."""
        path = self.path(name)
        self._limited.call(MANY_S, lambda: self._files.get_file(path, str(target)))

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Its content from there on; None: there is no such file."""
        path = self.path(name)
        try:
            content: bytes = self._limited.call(
                MANY_S if start else READ_S,
                lambda: self._files.cat_file(path, start=start or None),
            )
        except FileNotFoundError:
            return None
        return content

    def read_many(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Several, many of them at a time; who is gone is left out."""
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            paths = [self.path(each) for each in some]
            cat = partial(self._files.cat_ranges, paths, None, None, on_error="return")
            found: Sequence[Any] = self._limited.call(MANY_S, cat)
            for name, content in zip(some, found, strict=True):
                if isinstance(content, bytes):
                    yield name, content
                elif not isinstance(content, FileNotFoundError):
                    raise content

    def sizes(self, folder: str) -> dict[str, int]:
        """Every file below, with its bytes; none where there is no such folder."""
        self._files.invalidate_cache()  # other machines write here too
        path = self.path(folder)
        try:
            # a store that hangs is noticed soon; many names may take long
            if not self._limited.call(READ_S, lambda: self._files.exists(path)):
                return {}
            found = self._limited.call(MANY_S, lambda: self._files.find(path, detail=True))
        except FileNotFoundError:
            return {}
        begin = len(self._root) + 1
        return {each[begin:]: int(told["size"]) for each, told in found.items()}

    def remove(self, name: str) -> None:
        """It is gone, whoever removed it."""
        with suppress(FileNotFoundError):
            self._files.rm_file(self.path(name))

    def clear_unfinished(self, folder: str) -> None:
        """What earlier lives of this writer could not finish there."""
        ours = self.writer.rpartition("-")[0]
        for path in Path(self.path(folder)).glob(f".*{_UNFINISHED}") if self.local else ():
            writer = path.name.removesuffix(_UNFINISHED).rpartition(".")[2]
            if writer != self.writer and writer.rpartition("-")[0] == ours:
                path.unlink(missing_ok=True)

    def _whole(self, name: str, write: Callable[[Path], object]) -> None:
        whole = Path(self.path(name))
        whole.parent.mkdir(parents=True, exist_ok=True)
        # process numbers are the same on many machines: the writer's name is not; two of its
        # threads may write the same file
        begun = next(self._begun)
        unfinished = whole.with_name(f".{whole.name}.{begun}.{self.writer}{_UNFINISHED}")
        try:
            write(unfinished)
            synced(unfinished)
            unfinished.replace(whole)
            synced(whole.parent)
        finally:
            unfinished.unlink(missing_ok=True)


def synced(path: Path) -> None:
    """What was written there, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: str) -> bytes:
    """A file at any address; OSError where it is not there."""
    folder, _, name = path.rpartition("/")
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError:
        return Path(path).read_bytes()
    files, root = fsspec.url_to_fs(folder or ("/" if path.startswith("/") else "."))
    whole = f"{root.rstrip('/')}/{name}"
    limited = _BY_PATH.setdefault(path, Limited(path))
    found: bytes = limited.call(READ_S, lambda: files.cat_file(whole))
    return found


def _opened(url: str, limited: Limited) -> tuple[Any, str]:
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError as error:
        raise InputError(
            "a shared store needs fsspec, which is not installed: pip install 'migrator[cluster]'"
        ) from error
    try:
        files, root = fsspec.url_to_fs(url)
        limited.call(READ_S, lambda: files.makedirs(root, exist_ok=True))
    except StoreHangsError as error:  # what serves goes on without it until it is back
        _log.warning("%s", error)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"--shared: {url} cannot be used ({error}); give a folder or an address of fsspec"
        ) from error
    return files, root.rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    names = files.protocol
    return (names,) if isinstance(names, str) else tuple(names)
