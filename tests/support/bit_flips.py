"""Journals, records and labels with one bit flipped: right entries or a file set aside.

python -m support.bit_flips {journal,records,labels} FOLDER [--log] [--bits 8] flips bits of every
byte of such a file, or of its write-ahead log, and opens it as its owner does: hours for records.
The suite flips fewer bits, of files with small pages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrator.core.catalogue import Place, boards
from migrator.gpu import journal as journal_file
from migrator.gpu.drivers.base import Gpu, GpuInstance
from migrator.gpu.journal import EntryState, Journal
from migrator.gpu.layout import Op
from migrator.io import database
from migrator.io.database import DamagedError, Layout
from migrator.live import labels
from migrator.live.labels import Labels
from migrator.records import rows as tables
from migrator.records.rows import EventRecord, SecondRecord, WindowRecord
from migrator.records.store import Records

GPU = Gpu(0, "GPU-0", "a GPU", boards()["A100-40GB"], "boot-1", "1", True, "mig")
Rows = dict[str, list[tuple[Any, ...]]]


def _write_journal(path: Path) -> None:
    with Journal(path, synchronous="OFF") as journal:
        change = journal.begin_change(GPU, "migrator", (), (Place(4, "3g.20gb"),))
        deed = journal.begin(GPU, "migrator", Op.CREATE, Place(4, "3g.20gb"), change=change)
        journal.end(deed, EntryState.DONE, GpuInstance(deed.place, 2, "MIG-a"))
        journal.end_change(change, EntryState.DONE)
        journal.begin(GPU, "another", Op.CREATE, Place(0, "1g.5gb"))


def _open_journal(path: Path) -> Path | None:
    with Journal(path, synchronous="OFF") as journal:
        journal.entries(GPU), journal.unfinished(GPU)
        return journal.damaged


def _records(path: Path) -> Records:
    return Records(path, scenario="s", board="A100-40GB", driver="d", policy="p", seed=0)


def _write_records(path: Path) -> None:
    with _records(path) as records:
        records.put(WindowRecord(0, 5.0, "p", "auto", plan={"slots": []}))
        records.put(SecondRecord("vision", 3, 4, 3))
        records.put(EventRecord(6.0, "model", "vision: version 2"))


def _open_records(path: Path) -> Path | None:
    with _records(path) as records:
        return records.damaged


def _write_labels(path: Path) -> None:
    async def scene() -> None:
        labels = Labels(path)
        for number in range(3):
            inputs = np.full(8, number, np.uint8)
            await labels.add("vision", 0, inputs, number, 1, f"r{number}")
        await labels.close()

    asyncio.run(scene())


def _open_labels(path: Path) -> Path | None:
    async def scene() -> Path | None:
        labels = Labels(path)
        await labels.close()
        return labels.damaged

    return asyncio.run(scene())


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    layout: Layout
    write: Callable[[Path], None]
    """A file with a few rows of every form."""
    more: str
    """A statement that writes another row."""
    open: Callable[[Path], Path | None]
    """Opens it as its owner does; where a damaged one was set aside."""


_ONE_MORE_DEED = "INSERT INTO deed (driver, uuid) VALUES ('mig', ?)"
_ONE_MORE_EVENT = "INSERT INTO event VALUES (1, 7.0, 'model', ?)"
_ONE_MORE_LABEL = (
    "INSERT INTO sample (tenant, request, label, inputs) VALUES ('vision', ?, 0, x'070707')"
)
KINDS = {
    "journal": Kind(journal_file.LAYOUT, _write_journal, _ONE_MORE_DEED, _open_journal),
    "records": Kind(tables.LAYOUT, _write_records, _ONE_MORE_EVENT, _open_records),
    "labels": Kind(labels.LAYOUT, _write_labels, _ONE_MORE_LABEL, _open_labels),
}


def rows_of(connection: sqlite3.Connection, layout: Layout) -> Rows:
    """Every row of every table."""
    tables = database._tables(layout.statements).checksummed
    return {each: connection.execute(f"SELECT * FROM {each}").fetchall() for each in tables}


@dataclass
class Victim:
    """A file whose bits are flipped, and its log where it has one."""

    kind: Kind
    path: Path
    log: bool = False
    small_pages: bool = True
    """So that little of the file is unused."""

    def __post_init__(self) -> None:
        self.kind.write(self.path)
        self._flipped, self._at, self._replaced = self.path, 0, False
        if self.small_pages:
            self._shrink_pages()
        if self.log:
            self._keep_log()
        self.original = self._flipped.read_bytes()
        self._whole = {each.name: each.read_bytes() for each in self.path.parent.iterdir()}
        with closing(database.open_checked(self.path, self.kind.layout)) as connection:
            self.rows = rows_of(connection, self.kind.layout)

    def _keep_log(self) -> None:
        """As a killed process leaves it: several transactions are in the log only."""
        writing, _ = database.open_database(self.path, self.kind.layout, "NORMAL")
        for number in range(3):
            writing.execute(self.kind.more, (f"more-{number}",))
        log = self.path.with_name(f"{self.path.name}-wal")
        kept = {each: each.read_bytes() for each in (self.path, log)}
        writing.close()
        for each, content in kept.items():
            each.write_bytes(content)
        self._flipped = log

    def _shrink_pages(self) -> None:
        with closing(database._connected(self.path, "mode=rw")) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("PRAGMA page_size=512")
            connection.execute("VACUUM")

    def flip(self, position: int, bit: int) -> None:
        """The files as they were, but for one bit."""
        if self._replaced:
            for each in self.path.parent.iterdir():
                each.unlink()
            for name, content in self._whole.items():
                (self.path.parent / name).write_bytes(content)
        with self._flipped.open("r+b", buffering=0) as file:
            if not self._replaced:
                os.pwrite(file.fileno(), self.original[self._at : self._at + 1], self._at)
            os.pwrite(file.fileno(), bytes([self.original[position] ^ 1 << bit]), position)
        self._at, self._replaced = position, False

    def is_noticed(self) -> bool:
        """Whether the check finds damage; AssertionError where it passes and rows are wrong."""
        try:
            connection = database.open_checked(self.path, self.kind.layout)
        except DamagedError:
            return True
        with closing(connection):
            found = rows_of(connection, self.kind.layout)
        assert found == self.rows, "wrong entries were read"
        return False

    def is_set_aside(self) -> bool:
        """Whether its owner sets it aside and begins anew."""
        self._replaced = True
        aside = self.kind.open(self.path)
        if aside is not None:
            assert aside.exists()
            return True
        return False


def bits(content: bytes, each: int, *, unused: bool) -> Iterator[tuple[int, int]]:
    """The high bit of every byte and so many in all, drawn anew for every byte.

    Not `unused`: no zeros, which are most of what pages do not use.
    """
    draw = random.Random(0)
    for position, byte in enumerate(content):
        if not byte and not unused:
            continue
        yield position, 7
        yield from ((position, bit) for bit in draw.sample(range(7), each - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--small-pages", action="store_true")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--used", action="store_true")
    chosen = parser.parse_args()
    shutil.rmtree(chosen.folder, ignore_errors=True)
    chosen.folder.mkdir(parents=True)
    path = chosen.folder / f"{chosen.kind}.db"
    victim = Victim(KINDS[chosen.kind], path, chosen.log, chosen.small_pages)
    told: Counter[str] = Counter()
    for position, bit in bits(victim.original, chosen.bits, unused=not chosen.used):
        victim.flip(position, bit)
        try:
            noticed = victim.is_noticed()
            if not chosen.check_only:
                assert victim.is_set_aside() == noticed
            told["noticed" if noticed else "harmless"] += 1
        except BaseException as error:
            told[f"{type(error).__name__}: {error}"[:80]] += 1
            if told.total() < 10**9:
                print(position, bit, type(error).__name__, str(error)[:100], flush=True)
    print(len(victim.original), dict(told))


if __name__ == "__main__":
    main()
