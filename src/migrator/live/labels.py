"""Labels that clients send back: durable before they are acknowledged, read by retrainings.

The daemon adds them. A thread of its own writes whatever has come since its last commit in one
go, so that neither requests nor other labels wait for the disk one by one. Labels that no
retraining has learned yet are never deleted: beyond a limit new ones are refused. Learned labels
are trimmed to a few windows and a number of every class.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from numpy.typing import NDArray

from migrator.core.errors import InputError, NotWrittenError
from migrator.io.database import AGAIN_S, opened, opened_as_is, told, transaction
from migrator.live.label_rows import (
    LAYOUT,
    LabelCounts,
    LearnedBefore,
    SampleRow,
    inserted,
    is_kept,
    kept_by_window,
    nothing_known,
    sample_row,
    trim,
)

WINDOWS_KEPT = 3
"""All learned samples of the last windows stay, within the bytes."""
PER_CLASS_KEPT = 400
"""Learned samples of every class, from before those windows."""
BYTES_KEPT = 2**30
"""Learned inputs of a tenant."""
UNLEARNED_BYTES, UNLEARNED_ROWS = 2**30, 500_000
"""Inputs and labels of a tenant that no retraining has learned yet; beyond them it is refused."""
_MOST_AT_ONCE = 512
_TRIM_EVERY = 4096
"""Added samples of a tenant between two looks at how much there is."""


_log = logging.getLogger(__name__)


class NotKeptError(InputError):
    """The label was not kept: the disk is full, or too many labels are unlearned."""


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
        unlearned_bytes: int = UNLEARNED_BYTES,
        unlearned_rows: int = UNLEARNED_ROWS,
        learned_before: LearnedBefore = nothing_known,
        share: Callable[[Sequence[SampleRow]], None] | None = None,
    ) -> None:
        """`share`: keeps new rows where other daemons find them, before anybody is told that they
        are kept; what it raises is why they are not. `learned_before` is called in the writer's
        thread."""
        self.path, self._share = path, share
        self._learned_before = learned_before
        self._unlearned_limits = (unlearned_rows, unlearned_bytes)
        self._kept = {
            "windows": windows_kept,
            "per_class": per_class_kept,
            "most_bytes": bytes_kept,
        }
        self.damaged: Path | None = None
        """Where a damaged file was kept aside when this one was opened."""
        self._writable, self._again_s = True, 0.0
        try:
            self._connection, self.damaged = opened(path, LAYOUT, "FULL")
        except NotWrittenError as error:
            _log.warning("labels are refused until there is room: %s", error)
            self._connection, self._writable = opened_as_is(path, LAYOUT), False
        self._counts = self._counted()
        with told(path, LAYOUT):
            self._rows = kept_by_window(self._connection)
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

    def kept(self, tenant: str, first: int, before: int) -> int:
        """Labels of the windows from `first` to `before` - 1 that are in the file."""
        windows = tuple(self._rows.get(tenant, {}).items())  # the writer's thread adds to it
        return sum(rows for window, (rows, _) in windows if first <= window < before)

    @property
    def last_window(self) -> int:
        """The last window that has a label, also of those that were trimmed; -1: there is none."""
        return max((window for _, window in tuple(self._counts)), default=-1)

    async def close(self) -> None:
        """Write what is still waiting and end."""
        self._closed = True
        self._wishes.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _counted(self) -> dict[tuple[str, int], LabelCounts]:
        with told(self.path, LAYOUT):
            rows = self._connection.execute(
                "SELECT tenant, window, labelled, judged, wrong FROM tally"
            ).fetchall()
        return {(tenant, window): LabelCounts(*counts) for tenant, window, *counts in rows}

    def _write_all(self) -> None:
        while (first := self._wishes.get()) is not None:
            wishes, last = self._taken(first)
            _tell(wishes, self._outcome(wishes))
            if last:
                return

    def _outcome(self, wishes: Sequence[_Wish]) -> list[bool | NotKeptError]:
        """Which were new, or why one was not kept; whatever happens, the next ones are tried."""
        try:
            return self._written(wishes)
        except InputError as error:
            return [NotKeptError(str(error))] * len(wishes)
        except Exception as error:
            _log.exception("labels could not be kept")
            why = NotKeptError(
                f"{self.path}: labels could not be kept ({type(error).__name__}: {error}); see "
                "the daemon's log"
            )
            return [why] * len(wishes)

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

    def _written(self, wishes: Sequence[_Wish]) -> list[bool | NotKeptError]:
        """One commit for all of them; which were new.

        Trimmed before anything is added: what this transaction adds stays.
        """
        if not self._writable:
            self._reopen()
        tenants = {each.row.tenant for each in wishes}
        with told(self.path, LAYOUT), transaction(self._connection):
            trimmed = self._trim(tenants)
            space = {tenant: self._space(tenant) for tenant in tenants}
            came = [self._insert(each, space) for each in wishes]
            new = [e for e, added in zip(wishes, came, strict=True) if added is True]
            own = [each.row for each in new if not each.shared]
            if self._share is not None and own:
                self._share(own)
        self._rows |= trimmed
        self._added |= dict.fromkeys(trimmed, 0)
        self._count([each.row for each in new])
        return came

    def _reopen(self) -> None:
        """Try again to write a file that could not be written when it was opened."""
        if time.monotonic() < self._again_s:  # opening checks the whole file
            raise NotWrittenError(f"{self.path}: labels are refused until the disk has room")
        self._again_s = time.monotonic() + AGAIN_S
        as_is = self._connection
        self._connection, self.damaged = opened(self.path, LAYOUT, "FULL")
        if self.damaged is not None:
            _log.error("%s was damaged and is kept as %s", self.path, self.damaged)
        as_is.close()
        self._counts, self._writable = self._counted(), True
        with told(self.path, LAYOUT):
            self._rows = kept_by_window(self._connection)

    def _insert(self, wish: _Wish, space: dict[str, tuple[int, int]]) -> bool | NotKeptError:
        """What another daemon has acknowledged is never refused."""
        row, size = wish.row, len(wish.row.inputs)
        rows, left = space[row.tenant]
        if not wish.shared and (rows < 1 or left < size) and not is_kept(self._connection, row):
            return NotKeptError(
                f"{row.tenant} has as many labels that no retraining has learned as are kept; "
                "send it again after the next retraining, see `migrator status`"
            )
        new = inserted(self._connection, row)
        if new:
            space[row.tenant] = rows - 1, left - size
        return new

    def _trim(self, tenants: Iterable[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Trim where enough was added since the last time; what is left of those tenants."""
        left: dict[str, dict[int, tuple[int, int]]] = {}
        for tenant in tenants:
            learned_before = self._learned_before(tenant)
            if learned_before is None or self._added.get(tenant, _TRIM_EVERY) < _TRIM_EVERY:
                continue
            trim(self._connection, tenant, learned_before=learned_before, **self._kept)
            left |= kept_by_window(self._connection, tenant)
        return left

    def _space(self, tenant: str) -> tuple[int, int]:
        """Rows and bytes that may be added to what is not learned."""
        rows, size = self._unlearned_limits
        learned_before = self._learned_before(tenant)
        if learned_before is not None:
            for window, (some, length) in self._rows.get(tenant, {}).items():
                if window >= learned_before:
                    rows, size = rows - some, size - length
        return rows, size

    def _count(self, rows: Sequence[SampleRow]) -> None:
        for row in rows:
            self._added[row.tenant] = self._added.get(row.tenant, _TRIM_EVERY) + 1
            windows = self._rows.setdefault(row.tenant, {})
            some, size = windows.get(row.window, (0, 0))
            windows[row.window] = (some + 1, size + len(row.inputs))
            before = self.counts(row.tenant, row.window)
            judged = row.predicted is not None
            self._counts[row.tenant, row.window] = LabelCounts(
                before.labelled + 1,
                before.judged + judged,
                before.wrong + (judged and row.predicted != row.label),
            )


def _tell(wishes: Sequence[_Wish], came: Sequence[bool | NotKeptError]) -> None:
    """Answer everybody at once, in the loop they wait in."""

    def answer() -> None:
        for wish, outcome in zip(wishes, came, strict=True):
            if wish.done.done():
                continue
            if isinstance(outcome, NotKeptError):
                wish.done.set_exception(outcome)
            else:
                wish.done.set_result(outcome)

    loop = wishes[0].done.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(answer)
