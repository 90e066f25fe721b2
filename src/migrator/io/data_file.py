"""JSON and YAML files read strictly: each error is one sentence that names the file.

A file of another kind than expected is recognised by its content, and the sentence says what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError
from migrator.io.file_kind import FileKind, is_special, wrong_kind
from migrator.io.json_text import load_json
from migrator.io.strict import Location, refuse, shown
from migrator.io.yaml_text import load_yaml

_Parsed = TypeVar("_Parsed")
_OWN_INPUT = ("/dev/stdin", "/dev/fd/")
"""What a shell's pipe is called, which a user may name as the file of a command."""


def read_file(
    path: Path,
    form: str,
    load: Callable[[str], object],
    parse: Callable[[object], _Parsed],
    *expected: FileKind,
) -> _Parsed:
    """Read a file of a `form` with `load`, then `parse`; errors start with its name.

    If that fails and the file is of another kind than `expected`, the error says which.
    """
    try:
        return parse(load(_text(path, form)))
    except InputError as error:
        name = str(path)
        reason = wrong_kind(path, expected) or error
        raise InputError(f"{name if name.isprintable() else ascii(name)}: {reason}") from error


def beside(folder: Path, path: str, location: Location) -> Path:
    """The path of a file that another file in `folder` names at `location`."""
    if not path.strip() or not path.isprintable():
        refuse(location, f"{shown(path)} is no path", "name a file, relative to this one")
    if is_special(folder / path):
        refuse(location, f"{shown(path)} is a FIFO, socket or device", "name a regular file")
    return folder / path


def _text(path: Path, form: str) -> str:
    if is_special(path) and not str(path).startswith(_OWN_INPUT):
        raise InputError("this is a FIFO, socket or device; give a regular file")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"this is a directory; give the {form} file itself") from None
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8; save the file as {form} in UTF-8"
        ) from error
    if not text.strip():
        raise InputError(f"the file is empty; give a {form} object")
    return text


def read_json_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a JSON file and convert it with `parse`. Errors start with the file's name."""
    return read_file(path, "JSON", load_json, parse, *expected)


def read_yaml_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a YAML file and convert it with `parse`. Errors start with the file's name."""
    return read_file(path, "YAML", load_yaml, parse, *expected)


def read_data_file(path: Path, parse: Callable[[object], _Parsed], *expected: FileKind) -> _Parsed:
    """Read a file that is a JSON object or else YAML; large ones are read much faster as JSON."""

    def load(text: str) -> object:
        return load_json(text) if text.lstrip().startswith(("{", "[")) else load_yaml(text)

    return read_file(path, "JSON or YAML", load, parse, *expected)
