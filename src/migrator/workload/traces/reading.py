"""Trace files: reading of text (plain or gzip) in blocks, and counts per second.

A format (formats.py) passes `parse_lines` a function that converts lines to an array and raises
ValueError for a bad line. This module finds that line and names it in the message.
"""

from __future__ import annotations

import gzip
import io
import zlib
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.core.scenario import Trace
from migrator.io.file_kind import is_special

_BLOCK_CHARS = 1 << 22
"""Characters per read, so that a trace of a gigabyte is never in memory as text."""
_GZIP_MAGIC = b"\x1f\x8b"
_FAULTS = (ValueError, OverflowError)
"""Errors of a parser. OverflowError comes from numbers that do not fit the array's type."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Parse = Callable[[list[str]], NDArray[_Scalar]]
LONGEST_S = 10_000_000
"""Maximum length of a trace in seconds.

A longer one is a mistake (milliseconds read as seconds, one stray time).
"""
LATEST_S = 10**11
"""Latest time in seconds; since 1970 this is the year 5138. Later times are in milliseconds."""


def head(path: Path) -> list[str]:
    """The first two lines that are not blank, stripped. Raises InputError if there is none."""
    filled = (line.strip() for _, lines in _blocks(path) for line in lines if not line.isspace())
    first = list(islice(filled, 2))
    if not first:
        raise InputError(f"{path}: the file is empty; name a trace with at least one request")
    return first


def parse_lines(
    path: Path,
    parse: _Parse[_Scalar],
    expected: str,
    is_header: Callable[[str], bool] = lambda _: False,
) -> NDArray[_Scalar]:
    """The array that `parse` returns for all lines except blank ones and a header.

    `parse` raises ValueError for a line that is not as `expected`, which follows "not" in the
    message.
    """
    parts = []
    for number, lines in _blocks(path):
        start = int(number == 1 and is_header(lines[0].strip()))
        parts.append(_parsed_block(path, parse, expected, number + start, lines[start:]))
    return np.concatenate(parts) if parts else parse([])


def quoted(line: str) -> str:
    """A line in quotes for a message, shortened."""
    text = line.strip()
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def is_number(cell: str) -> bool:
    """Whether the cell is a number, including NaN and infinity."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_title(cell: str) -> bool:
    """Whether the cell can be a column's name."""
    bare = cell.strip().strip('"')
    return bare[:1].isalpha() and not is_number(bare)


def _parsed_block(
    path: Path, parse: _Parse[_Scalar], expected: str, number: int, lines: list[str]
) -> NDArray[_Scalar]:
    filled = [line for line in lines if not line.isspace()]
    try:
        return parse(filled)
    except _FAULTS:
        # by bisection: the first lines up to which they do not parse
        fault = bisect(range(len(filled)), 0, key=lambda at: not _parses(parse, filled[: at + 1]))
    numbers = [number + index for index, line in enumerate(lines) if not line.isspace()]
    raise InputError(
        f"{path}: line {numbers[fault]} is {quoted(filled[fault])}, not {expected}; "
        "correct or remove that line"
    )


def _parses(parse: _Parse[_Scalar], lines: list[str]) -> bool:
    try:
        parse(lines)
    except _FAULTS:
        return False
    return True


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of each block's first line, and its lines."""
    if is_special(path):
        raise InputError(f"{path}: this is a FIFO, socket or device; name a regular file")
    number = 1
    with _input_errors(path), path.open("rb") as raw:
        packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        raw.seek(0)
        plain = gzip.GzipFile(fileobj=raw) if packed else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig") as text:
            while lines := text.readlines(_BLOCK_CHARS):
                if any("\0" in line for line in lines):
                    raise InputError(_not_text(path))
                yield number, lines
                number += len(lines)


@contextmanager
def _input_errors(path: Path) -> Iterator[None]:
    """Raise the system's errors about the file as an InputError of one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder; name a trace file in it") from None
    except UnicodeDecodeError:
        raise InputError(_not_text(path)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path}: the gzip file is damaged; fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror}); check it") from None
    except ValueError:
        raise InputError(f"{str(path)!r}: this is no path a file can have; check it") from None


def _not_text(path: Path) -> str:
    return f"{path}: this is not text in UTF-8; unpack it first, or name the CSV file itself"


def per_second(
    path: Path, seconds: NDArray[np.int64], requests: NDArray[np.int64] | None = None
) -> Trace:
    """A trace whose second 0 is the smallest of `seconds`.

    Each entry adds one, or its `requests`.
    """
    if not len(seconds) or (requests is not None and not requests.any()):
        refuse_empty(path)
    first = int(seconds.min())
    length = int(seconds.max()) - first + 1
    check_length(path, length)
    counts = np.zeros(length, dtype=np.int64)
    if requests is None:
        counts += np.bincount(seconds - first, minlength=length)
    else:
        np.add.at(counts, seconds - first, requests)
    return Trace(trace_name(path), counts)


def check_length(path: Path, length_s: int) -> None:
    """Raise InputError if a trace is longer than `LONGEST_S`."""
    if length_s > LONGEST_S:
        raise InputError(
            f"{path}: it spans {length_s:,} seconds, more than {LONGEST_S:,}; check that times "
            "are in seconds and that none is far off the others"
        )


def refuse_empty(path: Path) -> NoReturn:
    """Raise the InputError for a trace without requests."""
    raise InputError(f"{path}: it has no requests at all; name a trace with at least one")


def trace_name(path: Path) -> str:
    """The name of a trace read from `path`."""
    return Path(path.name.removesuffix(".gz")).stem
