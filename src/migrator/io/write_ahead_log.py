"""Detection of committed transactions that the write-ahead log of a SQLite file has lost.

The formats are those of https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path


class BrokenLogError(Exception):
    """No part of the log can be read."""


def last_commit(path: Path) -> tuple[bytes, int] | None:
    """The salts of the write-ahead log, and the number of its last commit frame, from 1.

    SQLite reads a log up to the first broken frame and assumes that the rest was never completed.
    After a power failure that is correct; in the current boot it is damage. Frames of a transaction
    that was rolled back may follow the last commit frame and contain no commit. Frames of an
    earlier pass over the log have other salts. None if there is nothing to check.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        with log.open("rb") as file:
            header, status = file.read(32), os.fstat(file.fileno())
            booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            if status.st_size <= 32 or status.st_mtime < booted_s:
                return None
            if _checksum(header[:24], header) != struct.unpack(">II", header[24:]):
                raise BrokenLogError("the header of its write-ahead log is broken")
            size = 24 + struct.unpack_from(">I", header, 8)[0]
            last = 0
            for number in range((status.st_size - 32) // size):
                frame = os.pread(file.fileno(), 24, 32 + number * size)
                salted = frame[8:12] == header[16:20] or frame[12:16] == header[20:24]
                if salted and frame[4:8] != bytes(4):
                    last = number + 1
            return header[16:24], last
    except FileNotFoundError:
        return None


def is_lost(path: Path, last: tuple[bytes, int]) -> bool:
    """Whether SQLite, after it has read the log, does not know the last commit.

    SQLite's index of the log contains the valid length, in two copies.
    """
    salts, frame = last
    try:
        index = path.with_name(f"{path.name}-shm").read_bytes()[:96]
    except FileNotFoundError:
        return False
    known = [
        struct.unpack_from("=I", index, start + 16)[0]
        for start in (0, 48)
        if index[start + 32 : start + 40] == salts
    ]
    if not known:
        return False
    return max(known) < frame or _has_lost_mark(path, salts, max(known))


def _has_lost_mark(path: Path, salts: bytes, known: int) -> bool:
    """Whether the first broken frame is intact except for one bit that marked it as a commit."""
    with path.with_name(f"{path.name}-wal").open("rb") as file:
        header = file.read(32)
        size = 24 + struct.unpack_from(">I", header, 8)[0]
        seed = header[24:32]
        if known:
            seed = os.pread(file.fileno(), 8, 32 + (known - 1) * size + 16)
        file.seek(32 + known * size)
        while len(frame := file.read(size)) == size and frame[8:16] == salts == header[16:24]:
            if not _is_whole(header, frame, frame[4:8], seed):
                marks = ((1 << bit).to_bytes(4, "big") for bit in range(32))
                return any(_is_whole(header, frame, each, seed) for each in marks)
            seed = frame[16:24]
    return False


def _is_whole(header: bytes, frame: bytes, mark: bytes, seed: bytes) -> bool:
    found = _checksum(frame[:4] + mark + frame[24:], header, *struct.unpack(">II", seed))
    return found == struct.unpack(">II", frame[16:24])


def _checksum(content: bytes, header: bytes, first: int = 0, second: int = 0) -> tuple[int, int]:
    order = ">" if header[3] & 1 else "<"
    for left, right in struct.iter_unpack(f"{order}II", content):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return first, second
