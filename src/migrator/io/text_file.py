"""Files as text, whatever their format: what cannot be read is told in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from migrator.core.errors import InputError
from migrator.io.strict import Location, refuse, shown

_Parsed = TypeVar("_Parsed")

_MAX_DIGITS = 300


def read_file(
    path: Path, form: str, load: Callable[[str], object], parse: Callable[[object], _Parsed]
) -> _Parsed:
    """What `parse` makes of what `load` makes of the file; every fault names the file first.

    `form` is the format's name in sentences.
    """
    try:
        return parse(load(_text(path, form)))
    except InputError as error:
        name = str(path)
        raise InputError(f"{name if name.isprintable() else ascii(name)}: {error}") from error


def beside(folder: Path, path: str, location: Location) -> Path:
    """The file that another one in `folder` names at `location`."""
    if not path.strip() or not path.isprintable():
        refuse(location, f"{shown(path)} is no path", "name a file, relative to this one")
    return folder / path


def integer(digits: str) -> int | float:
    """The number, infinite where Python refuses to read so many digits: its key is named then."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _text(path: Path, form: str) -> str:
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
