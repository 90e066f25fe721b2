"""Labels that clients send back: durable before they are acknowledged, read by retrainings.

The daemon adds them. A thread of its own writes whatever has come since its last commit in one
go, so that neither requests nor other labels wait for the disk one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from numpy.typing import NDArray

from migrator.core.errors import InputError
from migrator.observe.database import opened, told, transaction
from migrator.runtime.label_rows import LAYOUT, LabelCounts, SampleRow, inserted, sample_row, trim

WINDOWS_KEPT = 3
"""All samples of so many windows stay, within the bytes."""
PER_CLASS_KEPT = 400
"""Of every class, from before those windows."""
BYTES_KEPT = 2**30
"""Of every tenant's inputs."""
_MOST_AT_ONCE = 512
_TRIM_EVERY = 4096
"""Added samples of a tenant between two looks at how much there is."""


@dataclass(frozen=True)
class _Wish:
    """A row to write and who waits for it."""

    row: SampleRow
    done: asyncio.Future[bool]


class Labels:
    """The labels of all tenants in the file `path`; used from one event loop."""

    def __init__(
        self,
        path: Path,
        *,
        windows_kept: int = WINDOWS_KEPT,
        per_class_kept: int = PER_CLASS_KEPT,
        bytes_kept: int = BYTES_KEPT,
    ) -> None:
        self.path = path
        self._kept = {
            "windows": windows_kept,
            "per_class": per_class_kept,
            "most_bytes": bytes_kept,
        }
        self._connection, self.damaged = opened(path, LAYOUT, "FULL")
        """Where a damaged file was kept aside when this one was opened."""
        self._counts = self._counted()
        self._added: dict[str, int] = {}
        self._wishes: SimpleQueue[_Wish | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._write_all, name="labels", daemon=True)
        self._thread.start()

    async def add(
        self,
        tenant: str,
        window: int,
        inputs: NDArray[Any],
        label: int,
        predicted: int | None,
        request_id: str,
    ) -> bool:
        """Keep one sample (without a batch's first axis); on the disk when this returns.

        False: this request has its label already, and that one stays. InputError where it cannot
        be kept, such as on a full disk.
        """
        row = sample_row(tenant, window, inputs, label, predicted, request_id)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._closed:
            raise InputError(f"{self.path}: labels are closed; start the daemon again")
        self._wishes.put(_Wish(row, done))
        # a client that hangs up does not take its label back
        return await asyncio.shield(done)

    def counts(self, tenant: str, window: int) -> LabelCounts:
        """Labels of a tenant in a window so far."""
        return self._counts.get((tenant, window), LabelCounts())

    async def close(self) -> None:
        """Write what is still waiting and end."""
        self._closed = True
        self._wishes.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _counted(self) -> dict[tuple[str, int], LabelCounts]:
        with told(self.path, LAYOUT):
            rows = self._connection.execute("SELECT * FROM tally").fetchall()
        return {(tenant, window): LabelCounts(*counts) for tenant, window, *counts in rows}

    def _write_all(self) -> None:
        while (first := self._wishes.get()) is not None:
            wishes, last = self._taken(first)
            try:
                came = self._written([each.row for each in wishes])
            except InputError as error:
                _tell(wishes, error)
            else:
                _tell(wishes, came)
            if last:
                return

    def _taken(self, first: _Wish) -> tuple[list[_Wish], bool]:
        """Everything that waits by now, and whether it is the last."""
        wishes = [first]
        while len(wishes) < _MOST_AT_ONCE:
            try:
                wish = self._wishes.get_nowait()
            except Empty:
                return wishes, False
            if wish is None:
                return wishes, True
            wishes.append(wish)
        return wishes, False

    def _written(self, rows: Sequence[SampleRow]) -> list[bool]:
        """One commit for all of them; which were new."""
        with told(self.path, LAYOUT):
            with transaction(self._connection):
                came = [inserted(self._connection, row) for row in rows]
                for tenant in self._due(rows, came):
                    trim(self._connection, tenant, **self._kept)
            self._count([row for row, new in zip(rows, came, strict=True) if new])
        return came

    def _due(self, rows: Sequence[SampleRow], came: Sequence[bool]) -> list[str]:
        """Tenants of whom enough has come since the last look; first of all on the first label."""
        due = []
        for row, new in zip(rows, came, strict=True):
            if new:
                self._added[row.tenant] = self._added.get(row.tenant, _TRIM_EVERY - 1) + 1
        for tenant, added in self._added.items():
            if added >= _TRIM_EVERY:
                due.append(tenant)
        self._added |= dict.fromkeys(due, 0)
        return due

    def _count(self, rows: Sequence[SampleRow]) -> None:
        for row in rows:
            before = self.counts(row.tenant, row.window)
            judged = row.predicted is not None
            self._counts[row.tenant, row.window] = LabelCounts(
                before.labelled + 1,
                before.judged + judged,
                before.wrong + (judged and row.predicted != row.label),
            )


def _tell(wishes: Sequence[_Wish], came: Sequence[bool] | InputError) -> None:
    """Answer everybody at once, in the loop they wait in."""

    def answer() -> None:
        for number, wish in enumerate(wishes):
            if wish.done.done():
                continue
            if isinstance(came, InputError):
                wish.done.set_exception(came)
            else:
                wish.done.set_result(came[number])

    loop = wishes[0].done.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)
