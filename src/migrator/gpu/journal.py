"""The journal: who created what on which GPU, and what was begun and never finished.

One SQLite file for all GPUs of a machine, with a write-ahead log. An intent is on disk before the
board is touched; what a crash leaves behind is settled by `recovery`. Only who holds the GPU's
lock writes about it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from migrator.core.errors import GpuError
from migrator.gpu import journal_file
from migrator.gpu.change import Op
from migrator.gpu.deed import Change, Deed, State, alive
from migrator.gpu.driver import Gpu, GpuInstance, Place
from migrator.gpu.journal_file import COLUMNS
from migrator.gpu.journal_rows import Row, change_of, change_values, deed_of, deed_values
from migrator.io.database import is_damage

KEPT = 200
"""Finished rows that stay for people to look at."""

_HERE = "driver = :driver AND gpu_uuid = :gpu"
_ALIVE = f"""(intent = 'create' AND state = 'done' AND generation NOT IN (
    SELECT generation FROM deed WHERE {_HERE} AND intent = 'destroy' AND state = 'done'
))"""


class Journal:
    """The journal in the file `path`; not to be used in a fork of the process that opened it."""

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
        looking: bool = False,
    ) -> None:
        """`looking`: only to be read, and as it is; GpuError where it is damaged."""
        self.path = path
        self.damaged: Path | None = None
        """Where a damaged or older journal was kept aside when this one was opened."""
        if looking:
            self._connection = journal_file.looked_at(path)
        else:
            self._connection, self.damaged = journal_file.opened(path, synchronous)
        self._file = None if looking else path.stat()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deeds(self, gpu: Gpu) -> tuple[Deed, ...]:
        """What still matters of this GPU in this boot, oldest first: unfinished, or alive."""
        rows = self._rows("deed", gpu, f"(state = 'begun' OR {_ALIVE})")
        return tuple(map(deed_of, rows))

    def unfinished(self, gpu: Gpu) -> tuple[Change, ...]:
        """The layout changes of this GPU in this boot that were begun and never ended."""
        return tuple(map(change_of, self._rows("change", gpu, "state = 'begun'")))

    def state_of(self, change: Change) -> State:
        """What has become of a change."""
        with self._told():
            query = "SELECT state FROM change WHERE id = ?"
            return State(self._connection.execute(query, (change.id,)).fetchone()[0])

    def begin(
        self,
        gpu: Gpu,
        owner: str,
        op: Op,
        place: Place,
        *,
        known: Deed | None = None,
        change: Change | None = None,
    ) -> Deed:
        """Writes the intent; only when this has returned may the board be touched.

        `known` is the create whose instance is to be destroyed.
        """
        deed = Deed(
            driver=gpu.driver,
            gpu_uuid=gpu.uuid,
            boot_id=gpu.boot_id,
            owner=owner,
            place=place,
            generation=known.generation if known else self._next_generation(gpu),
            intent=op,
            number=known.number if known else None,
            uuid=known.uuid if known else None,
            change=change.id if change else None,
            pid=os.getpid(),
            began_s=time.time(),
        )
        return replace(deed, id=self._write("deed", deed_values(deed)))

    def found(self, deed: Deed, number: int) -> Deed:
        """Writes which instance a deed that is not over is about."""
        known = replace(deed, number=number)
        self._write("deed", deed_values(known), known.id)
        return known

    def end(self, deed: Deed, state: State, instance: GpuInstance | None = None) -> Deed:
        """Writes what became of it, and which instance it is."""
        ended = replace(deed, state=state, ended_s=time.time())
        if instance:
            ended = replace(ended, number=instance.number, uuid=instance.uuid)
        self._write("deed", deed_values(ended), ended.id)
        return ended

    def begin_change(
        self, gpu: Gpu, owner: str, before: tuple[Place, ...], wanted: tuple[Place, ...]
    ) -> Change:
        """Writes the layout before and the wanted one; the steps are its deeds."""
        change = Change(
            gpu.driver,
            gpu.uuid,
            gpu.boot_id,
            owner,
            before,
            wanted,
            pid=os.getpid(),
            began_s=time.time(),
        )
        return replace(change, id=self._write("change", change_values(change)))

    def end_change(self, change: Change, state: State) -> None:
        """Writes what became of it."""
        ended = replace(change, state=state, ended_s=time.time())
        self._write("change", change_values(ended), ended.id)

    def forget_other_boots(self, gpu: Gpu) -> tuple[Place, ...]:
        """Clears what was written about this GPU in another boot; the places that were alive."""
        with self._told():
            query = " UNION ".join(
                f"SELECT boot_id FROM {table} WHERE {_HERE} AND boot_id != :boot"
                for table in COLUMNS
            )
            values = {**_here(gpu), "boot": gpu.boot_id}
            boots = self._connection.execute(query, values).fetchall()
        gone = [each for (boot,) in boots for each in self.deeds(replace(gpu, boot_id=boot))]
        with self._told():
            for table in COLUMNS if boots else ():
                self._connection.execute(
                    f"DELETE FROM {table} WHERE {_HERE} AND boot_id != :boot", values
                )
        return tuple(sorted(each.place for each in alive(gone)))

    def shorten(self, gpu: Gpu) -> None:
        """Drops old rows of what is over, so that the file stays small."""
        over = {
            "deed": f"state != 'begun' AND NOT {_ALIVE}",
            "change": "state != 'begun'",
        }
        with self._told():
            for table, where in over.items():
                count = f"SELECT count(*) FROM {table} WHERE {_HERE}"
                if self._connection.execute(count, _here(gpu)).fetchone()[0] > 2 * KEPT:
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE {_HERE} AND {where} "
                        f"AND id <= (SELECT max(id) FROM {table}) - {KEPT}",
                        _here(gpu),
                    )

    def _next_generation(self, gpu: Gpu) -> int:
        with self._told():
            query = f"SELECT coalesce(max(generation), 0) + 1 FROM deed WHERE {_HERE}"
            return int(self._connection.execute(query, _here(gpu)).fetchone()[0])

    def _rows(self, table: str, gpu: Gpu, where: str) -> list[Row]:
        columns = ("id", *COLUMNS[table])
        with self._told():
            found = self._connection.execute(
                f"SELECT {', '.join(columns)} FROM {table} "
                f"WHERE {_HERE} AND boot_id = :boot AND {where} ORDER BY id",
                {**_here(gpu), "boot": gpu.boot_id},
            ).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found]

    def _write(self, table: str, values: Row, row: int | None = None) -> int:
        """Inserts a row, or replaces the one that has this id; its id."""
        ordered = [values[column] for column in COLUMNS[table]]
        marks = ", ".join("?" * (len(ordered) + 1))
        with self._told():
            self._check_still_there()
            cursor = self._connection.execute(
                f"INSERT OR REPLACE INTO {table} VALUES ({marks})",
                (row, *ordered),
            )
        return row or int(cursor.lastrowid or 0)

    def _check_still_there(self) -> None:
        """A journal moved or deleted under us would take our words where nobody reads them."""
        now = self.path.stat()
        if self._file is None:
            raise OSError("it was opened to be looked at")
        if (now.st_dev, now.st_ino) != (self._file.st_dev, self._file.st_ino):
            raise OSError("another file has taken its place")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            advice = "" if is_damage(error) else "make room or rights there, then "
            raise GpuError(
                f"{self.path}: the journal cannot be used ({error}), and without it the GPU is "
                f"not touched; {advice}run the command again"
            ) from error


def _here(gpu: Gpu) -> dict[str, str]:
    """What one driver does on a GPU says nothing about what another one does there."""
    return {"driver": gpu.driver, "gpu": gpu.uuid}
