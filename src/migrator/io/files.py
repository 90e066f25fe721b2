"""Files that survive a crash: atomic writes, output files, numbered weights, the user's folders.

Uses only the standard library, because it also runs on hosts that have nothing but torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from migrator.core.errors import InputError, NotWrittenError

UNFINISHED = ".unfinished"
"""Suffix of the name of a file that is being written."""
_LIBRARIES = {".html": "plotly", ".png": "matplotlib"}
DESCRIPTION = ".json"
NOTE = "migrator"
"""Key of MIGRator's note in the metadata of a safetensors file."""
_LONGEST_HEADER = 100_000_000
_NUMBER = re.compile("[0-9]{6,9}")
"""Numbers as MIGRator writes them. Other files may have any name."""


@contextmanager
def replace_file(path: Path, *, tag: str | None = None, sync: bool = True) -> Iterator[Path]:
    """Yield a draft to write to, which replaces `path` at the end. Remove it if anything fails.

    `tag` makes its name unique among concurrent writers (default: the process id). With `sync` the
    new content survives a power failure. Raises OSError unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.getpid() if tag is None else tag}{UNFINISHED}")
    try:
        yield draft
        if sync:
            sync_to_disk(draft)
        draft.replace(path)
        if sync:
            sync_to_disk(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def write_atomically(path: Path, *, option: str | None = None) -> Iterator[Path]:
    """Like `replace_file`, but raises NotWrittenError.

    `option` is the command line option for `path`.

    Nested calls write one file: given the draft of an outer call, the inner one yields it
    unchanged.
    """
    try:
        if path.name.endswith(UNFINISHED):
            yield path
        else:
            with replace_file(path) as draft:
                yield draft
    except OSError as error:
        reason = error.strerror or error
        if option is not None:
            raise NotWrittenError(
                f"{option}: cannot write {path} ({reason}); name another file"
            ) from error
        raise NotWrittenError(
            f"{path}: cannot be written ({reason}); name another place"
        ) from error


def clear_unfinished(folder: Path) -> None:
    """Remove the drafts of killed writers. Call only while no process writes in `folder`."""
    for path in folder.rglob(f".*{UNFINISHED}"):
        with suppress(OSError):
            path.unlink()


def sync_to_disk(path: Path) -> None:
    """Flush a file's content, or the names in a folder, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_path(path: Path, suffixes: Iterable[str], option: str) -> None:
    """Raise InputError, which names `option`, if `path` cannot be written or drawn."""
    suffixes = tuple(suffixes)
    if path.suffix.lower() not in suffixes:
        name = path.name or str(path)
        raise InputError(f"{option}: {name!r} must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise InputError(f"{option}: {path.parent} is not a directory; create it first")
    if path.is_dir():
        raise InputError(f"{option}: cannot write {path} (it is a directory); name another file")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: cannot write into {path.parent}; name another directory")
    library = _LIBRARIES.get(path.suffix.lower())
    if library is not None and find_spec(library) is None:
        raise _missing(library, option)


def drawing_module(name: str, option: str) -> ModuleType:
    """A module that draws, imported on first use; InputError if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(error.name, option) from error


def _missing(library: str | None, option: str) -> InputError:
    return InputError(
        f"{option} needs {library}, which is not installed: pip install 'migrator[figures]'"
    )


class AnswerFile:
    """An output path for JSON that was writable when it was checked.

    A regular file (also behind a link) is replaced atomically. Anything else that exists, such as a
    pipe or /dev/stdout, is written to directly.
    """

    def __init__(self, path: Path) -> None:
        """InputError if nothing can be written there."""
        self.path = path
        try:
            self._plain = path.is_file() or not path.exists()
            # not for pipes: the target of /dev/stdout cannot be opened by its own name
            self._real = path.resolve() if self._plain else path
            if self._plain:  # it is replaced by a new file in the same folder
                trial = self._real.parent / f".migrator.{os.getpid()}.unfinished"
                trial.write_bytes(b"{}")
                trial.unlink()
            elif path.is_dir() or not os.access(path, os.W_OK):
                raise PermissionError(path)
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
            raise InputError(
                f"--out: {path} cannot be written; name a file in an existing directory that you "
                "may write"
            ) from error

    def write(self, answer: Mapping[str, Any]) -> None:
        """Write the answer as JSON; InputError if that fails now."""
        text = json.dumps(answer, indent=1, allow_nan=False) + "\n"
        if self._plain:
            with write_atomically(self._real) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
            return
        try:
            with self._real.open("w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(
                f"--out: {self.path} cannot be written ({error.strerror or error}); name a file"
            ) from error


def state_folder(given: Path | None = None) -> Path:
    """`given`, else MIGRATOR_STATE, else the user's state folder. Created if it is missing."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = given or Path(os.environ.get("MIGRATOR_STATE") or Path(home) / "migrator")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: the state folder cannot be made ({error.strerror}); name another one in "
            "MIGRATOR_STATE"
        ) from error
    return folder


def private_folder(folder: Path) -> Path:
    """Create the folder if it is missing. InputError if other users could have put files there.

    A daemon trusts the files in its folder: jobs name code to run, settings name processes.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise InputError(
            f"{folder}: the folder cannot be made ({error.strerror}); name another state folder in "
            "MIGRATOR_STATE"
        ) from error
    if os.geteuid() not in (0, found.st_uid) or found.st_mode & 0o002:
        raise InputError(
            f"{folder}: other users can write this folder; make it yours alone (chown, chmod 700), "
            "or name another state folder in MIGRATOR_STATE"
        )
    return folder


def cache_folder(kind: str) -> Path:
    """The folder for one kind of files that can be made again; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "migrator" / kind


class DamagedWeightsError(ValueError):
    """The weights with a number are missing, incomplete or changed."""


class WeightsFolder:
    """Weights under NUMBER`suffix` and their descriptions under NUMBER.json.

    Weights count only if their description exists. It is written last and contains their checksum,
    which detects incomplete or changed weights.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self._suffix = folder, suffix

    def write(self, number: int, save: Callable[[Path], object], about: Mapping[str, Any]) -> None:
        """Add the weights that `save` writes, with a description; or nothing if that fails."""
        self.create()
        weights = self.path(number)
        with write_atomically(weights) as draft:
            save(draft)
            checksum = sha256_of(draft)
        body = json.dumps({"number": number, "weights_sha256": checksum, **about}, allow_nan=False)
        try:
            with write_atomically(self.path(number, DESCRIPTION)) as draft:
                draft.write_text(f"{_checksum(body)}\n{body}\n", encoding="utf-8")
        except BaseException:
            with suppress(OSError):
                weights.unlink()
            raise

    def read(self, number: int) -> dict[str, Any]:
        """The description of intact weights. Raises DamagedWeightsError."""
        try:
            text = self.path(number, DESCRIPTION).read_text(encoding="utf-8")
            checksum, _, body = text.partition("\n")
            body = body.removesuffix("\n")
            if _checksum(body) != checksum:
                raise ValueError("the description has another checksum")
            about: dict[str, Any] = {**json.loads(body)}
            if about["number"] != number or sha256_of(self.path(number)) != about["weights_sha256"]:
                raise ValueError("the weights have another checksum")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedWeightsError(str(error)) from error
        return about

    def readable(self, warn: Callable[[int], object]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and description of intact weights, newest first; `warn` gets the others."""
        for number in reversed(self.numbers()):
            try:
                yield number, self.read(number)
            except DamagedWeightsError:
                warn(number)

    def numbers(self, suffix: str = DESCRIPTION) -> list[int]:
        """The numbers of all files with this suffix, ascending, intact or not."""
        names = {each.stem for each in self.folder.glob(f"*{suffix}")}
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def remove(self, number: int) -> None:
        """Delete all files with a number. A file that cannot be deleted does no harm."""
        # Descriptions first, because weights without one do not count.
        for path in sorted(
            self.folder.glob(f"{number:06d}.*"), key=lambda p: p.suffix != DESCRIPTION
        ):
            with suppress(OSError):
                path.unlink()

    def path(self, number: int, suffix: str | None = None) -> Path:
        """The path of the weights with a number, or of its file with `suffix`."""
        return self.folder / f"{number:06d}{self._suffix if suffix is None else suffix}"

    def create(self) -> None:
        """Create the folder. Raises NotWrittenError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWrittenError(
                f"{self.folder}: weights cannot be kept there ({error.strerror or error}); make "
                "room, change permissions, or name another folder"
            ) from error


def knows_classes(path: Path) -> bool:
    """Whether weights were trained on classes; False for those of a pre-training without labels.

    Reads the header of a safetensors file only. Weights that MIGRator did not write count as
    trained.
    """
    try:
        with path.open("rb") as file:
            length = min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER)
            header = json.loads(file.read(length))
        note = json.loads(header["__metadata__"][NOTE])
        return bool(note["seen"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True  # loading them reports what is wrong


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
