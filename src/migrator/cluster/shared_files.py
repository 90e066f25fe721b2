"""Files that every machine of a cluster can access: in a folder, or at an fsspec URL.

Paths are relative to it. Files on a disk are written atomically, even if two machines write the
same one at the same time. Object stores write atomically anyway.
"""

from __future__ import annotations

import logging
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
from migrator.io.atomic_write import UNFINISHED, replace_file

READ_S, MANY_S = 5.0, 300.0
"""Time limits in seconds: for a small file or a listing, and for large or many files."""
AGAIN_S = 2.0
"""Seconds before a store that hangs is called again."""
MOST_HANGING = 16
"""Maximum number of hanging calls. Until one returns, the store is not called again."""
_AT_ONCE = 256


T = TypeVar("T")

_log = logging.getLogger(__name__)


class StoreHangsError(MigratorError):
    """The shared store did not answer in time."""


class Limited:
    """Runs calls with a time limit, each in its own thread, which is abandoned if it hangs."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._hanging, self._asked_s = 0, 0.0

    def call(self, limit_s: float, do: Callable[[], T]) -> T:
        """The result of the call; StoreHangsError if it takes too long or earlier calls still
        hang."""
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
            if done.done():  # the store's own error, or an answer at the last moment
                return done.result()
        with self._lock:
            self._hanging += 1
        done.add_done_callback(self._returned)
        raise StoreHangsError(f"the shared store {self._name} does not answer within {limit_s:g} s")

    def _returned(self, _: object) -> None:
        with self._lock:
            self._hanging -= 1


_BY_PATH: dict[str, Limited] = {}
"""Limits by path, for files that are read repeatedly without a store."""


def _run(do: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(do())
    except BaseException as error:
        done.set_exception(error)


class SharedFiles:
    """The files at one address, as one writer sees them; thread-safe."""

    def __init__(self, url: str, writer: str) -> None:
        """`writer`: unique for every start of every process."""
        self._limited = Limited(url)
        self._files, self._root = _opened(url, self._limited)
        self.writer = writer
        self.local = "file" in _protocols(self._files)
        """Whether it is a disk: files can be appended to and must be flushed."""
        self._begun = count(1)

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def write(self, name: str, content: bytes) -> None:
        if self.local:
            self._whole(name, lambda unfinished: unfinished.write_bytes(content))
        else:
            self._files.pipe_file(self.path(name), content)

    def put(self, name: str, source: Path) -> None:
        """Copy a local file there, atomically."""
        if self.local:
            self._whole(name, lambda unfinished: shutil.copyfile(source, unfinished))
        else:
            self._files.put_file(str(source), self.path(name))

    def get(self, name: str, target: Path) -> None:
        """Copy a file to this machine; OSError if it does not exist."""
        path = self.path(name)
        self._limited.call(MANY_S, lambda: self._files.get_file(path, str(target)))

    def read(self, name: str, start: int = 0) -> bytes | None:
        """The content from `start` on; None if there is no such file."""
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
        """Read several files in batches; missing ones are left out."""
        for begin in range(0, len(names), _AT_ONCE):
            batch = names[begin : begin + _AT_ONCE]
            paths = [self.path(name) for name in batch]
            cat = partial(self._files.cat_ranges, paths, None, None, on_error="return")
            contents: Sequence[Any] = self._limited.call(MANY_S, cat)
            for name, content in zip(batch, contents, strict=True):
                if isinstance(content, bytes):
                    yield name, content
                elif not isinstance(content, FileNotFoundError):
                    raise content

    def sizes(self, folder: str) -> dict[str, int]:
        """All files below a folder with their sizes in bytes; empty if there is no such folder."""
        self._files.invalidate_cache()  # other machines write here too
        path = self.path(folder)
        try:
            # a store that hangs is noticed soon; many names may take long
            if not self._limited.call(READ_S, lambda: self._files.exists(path)):
                return {}
            entries = self._limited.call(MANY_S, lambda: self._files.find(path, detail=True))
        except FileNotFoundError:
            return {}
        begin = len(self._root) + 1
        return {path[begin:]: int(entry["size"]) for path, entry in entries.items()}

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self.path(name))

    def clear_unfinished(self, folder: str) -> None:
        """Remove unfinished files of earlier starts of this writer."""
        ours = self.writer.rpartition("-")[0]
        for path in Path(self.path(folder)).glob(f".*{UNFINISHED}") if self.local else ():
            writer = path.name.removesuffix(UNFINISHED).rpartition(".")[2]
            if writer != self.writer and writer.rpartition("-")[0] == ours:
                path.unlink(missing_ok=True)

    def _whole(self, name: str, write: Callable[[Path], object]) -> None:
        whole = Path(self.path(name))
        whole.parent.mkdir(parents=True, exist_ok=True)
        # process ids are the same on many machines, the writer's name is not; two of its threads
        # may write the same file
        begun = next(self._begun)
        with replace_file(whole, tag=f"{begun}.{self.writer}") as draft:
            write(draft)


def read_bytes(path: str) -> bytes:
    """The content of a file at a path or URL; OSError if it does not exist."""
    folder, _, name = path.rpartition("/")
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError:
        return Path(path).read_bytes()
    files, root = fsspec.url_to_fs(folder or ("/" if path.startswith("/") else "."))
    whole = f"{root.rstrip('/')}/{name}"
    limited = _BY_PATH.setdefault(path, Limited(path))
    content: bytes = limited.call(READ_S, lambda: files.cat_file(whole))
    return content


def _opened(url: str, limited: Limited) -> tuple[Any, str]:
    try:
        fsspec: Any = import_module("fsspec.core")
    except ModuleNotFoundError as error:
        raise InputError(
            "a shared store needs fsspec, which is not installed: "
            "pip install 'migrator-gpu[cluster]'"
        ) from error
    try:
        files, root = fsspec.url_to_fs(url)
        limited.call(READ_S, lambda: files.makedirs(root, exist_ok=True))
    except StoreHangsError as error:  # serving continues without it until it is back
        _log.warning("%s", error)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"--shared: {url} cannot be used ({error}); give a folder or an address of fsspec"
        ) from error
    return files, root.rstrip("/")


def _protocols(files: Any) -> tuple[str, ...]:
    names = files.protocol
    return (names,) if isinstance(names, str) else tuple(names)
