"""Reading trace files: text, packed or not, in blocks of numbered lines.

A loader gives `parsed` a function from lines to an array that raises ValueError where a line is
not what it should be; which line it was is found here, and told in one sentence.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import InputError

_BLOCK_CHARS = 1 << 22
"""Read at a time: a trace of a gigabyte is never in memory as text."""
_GZIP_MAGIC = b"\x1f\x8b"
_FAULTS = (ValueError, OverflowError)
"""What a parser raises; OverflowError comes from numbers that no type of ours can hold."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Parse = Callable[[list[str]], NDArray[_Scalar]]


def head(path: Path) -> list[str]:
    """The first two lines that are not blank, stripped; InputError where there is none."""
    filled = (line.strip() for _, lines in _blocks(path) for line in lines if not line.isspace())
    first = list(islice(filled, 2))
    if not first:
        raise InputError(f"{path}: the file is empty; name a trace with at least one request")
    return first


def parsed(
    path: Path,
    parse: _Parse[_Scalar],
    expected: str,
    is_header: Callable[[str], bool] = lambda _: False,
) -> NDArray[_Scalar]:
    """What `parse` makes of every line, blank ones and a header left out.

    `parse` raises ValueError where a line is not what `expected` says, which follows "not".
    """
    parts = []
    for number, lines in _blocks(path):
        start = int(number == 1 and is_header(lines[0].strip()))
        parts.append(_parsed_block(path, parse, expected, number + start, lines[start:]))
    return np.concatenate(parts) if parts else parse([])


def shown(line: str) -> str:
    """A line as a message quotes it."""
    text = line.strip()
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def is_number(cell: str) -> bool:
    """Whether it can be read as a number, NaN and infinity included."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_title(cell: str) -> bool:
    """Whether it can be a column's name."""
    bare = cell.strip().strip('"')
    return bare[:1].isalpha() and not is_number(bare)


def _parsed_block(
    path: Path, parse: _Parse[_Scalar], expected: str, number: int, lines: list[str]
) -> NDArray[_Scalar]:
    filled = [line for line in lines if not line.isspace()]
    try:
        return parse(filled)
    except _FAULTS:
        fault = _first_fault(parse, filled)
    numbers = [number + index for index, line in enumerate(lines) if not line.isspace()]
    raise InputError(
        f"{path}: line {numbers[fault]} is {shown(filled[fault])}, not {expected}; "
        "correct or remove that line"
    )


def _first_fault(parse: _Parse[_Scalar], lines: list[str]) -> int:
    """The first line that does not parse, found by halving; together they do not."""
    if not _parses(parse, lines[:1]):
        return 0
    good, bad = 1, len(lines)
    while bad - good > 1:
        middle = (good + bad) // 2
        # The first line goes along: it may decide what the others have to look like.
        if _parses(parse, [lines[0], *lines[good:middle]]):
            good = middle
        else:
            bad = middle
    return good


def _parses(parse: _Parse[_Scalar], lines: list[str]) -> bool:
    try:
        parse(lines)
    except _FAULTS:
        return False
    return True


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of a block's first line, and its lines."""
    number = 1
    with _faults_told(path), path.open("rb") as raw:
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
def _faults_told(path: Path) -> Iterator[None]:
    """Whatever the system says about the file, as one sentence."""
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
