"""The file of finished runs, from which an interrupted command continues."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

import migrator
from migrator.core.errors import InputError, NotWrittenError
from migrator.io.locks import open_exclusively
from migrator.workload.traces.generator import KINDS, real_file

VERSION = 1
Key = tuple[str, int]
"""What is run, and the number or seed of the run."""
_CODE = "code"
"""The setting that holds a digest of the code."""
_PACKAGES = ("core", "workload", "forecast", "planning", "policies", "control", "simulation")
_MODULES = (
    *("advise/ceiling.py", "advise/leads.py", "advise/static_layouts.py", "advise/trial.py"),
    *("reproduce/sources.py", "reproduce/evaluation.py", "reproduce/experiment.py"),
    "records/outcome.py",
)
"""Code that the results depend on."""


class _Data(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_Result = TypeVar("_Result", bound=_Data)


class ResultsFile(Generic[_Result]):
    """Results of finished runs, those of earlier calls included."""

    def __init__(
        self,
        path: Path,
        descriptor: int,
        settings: Mapping[str, Any],
        finished: dict[Key, _Result],
    ) -> None:
        self._path, self._descriptor = path, descriptor
        self.settings, self.finished = settings, finished

    def add(self, key: Key, result: _Result) -> None:
        """Append a result; it is on the disk when this returns."""
        line = {"cell": key[0], "run": key[1], "result": asdict(result)}
        _write(self._path, self._descriptor, line)
        self.finished[key] = result


@contextmanager
def open_results(
    path: Path,
    kind: str,
    result: type[_Result],
    settings: Mapping[str, Any],
    *,
    to_read: bool = False,
) -> Iterator[ResultsFile[_Result]]:
    """Open a file of results of one kind; create it with these settings if it is missing.

    `to_read`: nothing is written, so that another process may write the file, and results of other
    code will do. InputError if it has other settings, is damaged, or another process writes it. A
    line that a killed process left unfinished at the end is removed.
    """
    header: dict[str, Any] = {kind: VERSION, "settings": dict(settings)}
    descriptor = _opened_to_read(path) if to_read else open_exclusively(path, "--keep", os.O_APPEND)
    try:
        lines = _finished_lines(descriptor, kind, is_cut=not to_read)
        if lines:
            _check_header(path, lines[0], kind, header, (_CODE,) if to_read else ())
        elif not to_read:
            _write(path, descriptor, header)
        made_with = json.loads(lines[0])["settings"] if lines else header["settings"]
        finished = _read(path, lines[1:], TypeAdapter(result))
        yield ResultsFile(path, descriptor, made_with, finished)
    finally:
        os.close(descriptor)


def code_digest() -> str:
    """A digest of the code and the packaged data that results depend on."""
    root = Path(migrator.__file__).parent
    digest = hashlib.sha256()
    files = [
        path
        for name in _PACKAGES
        for path in (root / name).rglob("*")
        if path.suffix in (".py", ".json")
    ]
    for file in [*sorted(files), *(root / module for module in _MODULES)]:
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    digest.update(Path(__file__).with_name("traces.py").read_bytes())
    return digest.hexdigest()[:16]


def traces_digest(data: Path | None) -> str:
    """A digest of the real traces in the folder; "" if there are none."""
    files = {} if data is None else {kind: real_file(kind, data) for kind in sorted(KINDS)}
    digests = [
        f"{kind} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for kind, path in files.items()
        if path is not None
    ]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16] if digests else ""


def _opened_to_read(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(
            f"--keep: cannot read {path} ({error.strerror}); name another file"
        ) from error


def _finished_lines(descriptor: int, kind: str, *, is_cut: bool) -> list[bytes]:
    """The complete lines; `is_cut`: an unfinished last one is removed from the file."""
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size, 0)
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < size and (whole or content.startswith(b'{"%s"' % kind.encode())):
        if is_cut:
            os.ftruncate(descriptor, len(whole))
        return whole.splitlines()
    return content.splitlines()


def _read(path: Path, lines: list[bytes], results: TypeAdapter[_Result]) -> dict[Key, _Result]:
    finished: dict[Key, _Result] = {}
    for number, line in enumerate(lines, start=2):
        try:
            entry = json.loads(line)
            key = (str(entry["cell"]), int(entry["run"]))
            result = results.validate_python(entry["result"])
        except (ValueError, KeyError, TypeError, ValidationError, RecursionError) as error:
            raise _damaged(path, number) from error
        if key in finished:
            raise _damaged(path, number)
        finished[key] = result
    return finished


def _check_header(
    path: Path, line: bytes, kind: str, header: Mapping[str, Any], ignored: Collection[str]
) -> None:
    try:
        written = json.loads(line)
        is_ours = isinstance(written, dict) and isinstance(written["settings"], dict)
    except (ValueError, KeyError, RecursionError):
        is_ours = False
    if not is_ours or written.get(kind) != VERSION:
        raise InputError(f"--keep: {path} is not a results file of this version; name another file")
    wanted = json.loads(json.dumps(header["settings"]))
    other = [
        key for key in wanted if key not in ignored and written["settings"].get(key) != wanted[key]
    ]
    if other or written["settings"].keys() != wanted.keys():
        raise InputError(
            f"--keep: {path} has results of other settings ({', '.join(other) or 'more keys'}); "
            "delete it or name another file"
        )


def _damaged(path: Path, line: int) -> InputError:
    return InputError(f"--keep: line {line} of {path} is damaged; delete the line or the file")


def _write(path: Path, descriptor: int, entry: object) -> None:
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    begin = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            os.ftruncate(descriptor, begin)
            raise OSError(0, "no space left")
        os.fsync(descriptor)
    except OSError as error:
        raise NotWrittenError(
            f"--keep: cannot write {path} ({error.strerror}); free some space and run again"
        ) from error
