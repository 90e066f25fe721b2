"""Labels that clients send back: durable before they are acknowledged, read by retrainings.

The daemon adds them. A thread of its own writes whatever has come since its last commit in one
go, so that neither requests nor other labels wait for the disk one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
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


_log = logging.getLogger(__name__)


class NotKeptError(InputError):
    """The labels' file cannot be written now, as on a full disk: nothing of it was kept."""


@dataclass(frozen=True)
class _Wish:
    """A row to write and who waits for it."""

    row: SampleRow
    done: asyncio.Future[bool]
    shared: bool = False
    """Whether it came from what daemons share, and is there already."""


class Labels:
    """The labels of all tenants in the file `path`; used from one event loop."""

    def __init__(
        self,
        path: Path,
        *,
        windows_kept: int = WINDOWS_KEPT,
        per_class_kept: int = PER_CLASS_KEPT,
        bytes_kept: int = BYTES_KEPT,
        share: Callable[[Sequence[SampleRow]], None] | None = None,
    ) -> None:
        """`share`: keeps new rows where other daemons find them, before anybody is told that they
        are kept; what it raises is why they are not."""
        self.path, self._share = path, share
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

        False: this request has its label already, and that one stays. InputError where it is no
        sample that could be kept, NotKeptError where the file takes none now.
        """
        row = sample_row(tenant, window, inputs, label, predicted, request_id)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._closed:
            raise NotKeptError(f"{self.path}: labels are closed; start the daemon again")
        self._wishes.put(_Wish(row, done))
        # a client that hangs up does not take its label back
        return await asyncio.shield(done)

    async def bring(self, rows: Iterable[SampleRow]) -> int:
        """Keep what other daemons have shared; how many of them were new here."""
        loop = asyncio.get_running_loop()
        wishes = [_Wish(row, loop.create_future(), shared=True) for row in rows]
        for each in wishes:
            self._wishes.put(each)
        return sum(await asyncio.gather(*(each.done for each in wishes)))

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
            _tell(wishes, self._outcome(wishes))
            if last:
                return

    def _outcome(self, wishes: Sequence[_Wish]) -> list[bool] | NotKeptError:
        """Which were new, or why none was kept; whatever happens, the next ones are tried."""
        try:
            return self._written(wishes)
        except InputError as error:
            return NotKeptError(str(error))
        except Exception as error:
            _log.exception("labels could not be kept")
            return NotKeptError(
                f"{self.path}: labels could not be kept ({type(error).__name__}: {error}); see "
                "the daemon's log"
            )

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

    def _written(self, wishes: Sequence[_Wish]) -> list[bool]:
        """One commit for all of them; which were new."""
        rows = [each.row for each in wishes]
        with told(self.path, LAYOUT):
            with transaction(self._connection):
                came = [inserted(self._connection, row) for row in rows]
                for tenant in self._due(rows, came):
                    trim(self._connection, tenant, **self._kept)
                own = [e.row for e, new in zip(wishes, came, strict=True) if new and not e.shared]
                if self._share is not None and own:
                    self._share(own)
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


def _tell(wishes: Sequence[_Wish], came: Sequence[bool] | NotKeptError) -> None:
    """Answer everybody at once, in the loop they wait in."""

    def answer() -> None:
        for number, wish in enumerate(wishes):
            if wish.done.done():
                continue
            if isinstance(came, NotKeptError):
                wish.done.set_exception(came)
            else:
                wish.done.set_result(came[number])

    loop = wishes[0].done.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)
