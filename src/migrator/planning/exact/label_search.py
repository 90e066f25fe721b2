"""Label search: every way to retrain, labels_so_far slot by slot, dropped when it cannot win.

A label is the retraining status of every tenant: waiting, running on a placement until a
slot, or done. It carries the best goodput so far for each joint pattern held in the last
slot. One slot turns a layer of labels into the next one; labels with the same status merge.
An entry whose value plus bound cannot beat the incumbent is dropped: nothing is lost. Where
a layer is wider than allowed, labels with small bounds go, and the largest bound that went is
kept: it certifies what the narrow search may have missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from migrator.planning.arrays import Floats, Ints
from migrator.planning.exact.bounds import Bounds
from migrator.planning.exact.expand import LabelScratch, empty_scratch, expand
from migrator.planning.exact.schedule import Schedule, Start
from migrator.planning.exact.space import Space
from migrator.planning.exact.tables import NEVER, GoodputTables
from migrator.planning.exact.transition import DONE, WAITING, LabelTable, empty_labels, empty_step

EAGER = 1e15
"""Weight of a tenant that still waits in a pass that only wants to arrive."""
NARROW = 16
"""Labels a slot that even a pass without budget keeps: it must arrive with some plan."""


def width_within(
    budget: float, work: float, rows_so_far: int, slots_left: int, width: int, narrowest: int
) -> int:
    """How many labels or states the next slot may keep, so that the pass arrives.

    Once half of the budget is spent, the rest is spread over the slots left.
    """
    if work <= budget / 2:
        return width
    work_per_row = max(1.0, work / max(1, rows_so_far))
    return int(min(width, max(narrowest, (budget - work) / slots_left / work_per_row)))


@dataclass(frozen=True)
class LabelPass:
    """What a search pass brought."""

    value: float
    """Best goodput found; NEVER where no label reached the window's end"""
    schedule: Schedule | None
    missed: float
    """No plan that the pass dropped for room is better than this"""
    work: int


@dataclass(eq=False)
class _SlotLabels:
    """The labels of one slot: columns, and how many rows are in use."""

    columns: LabelTable
    count: int = 0

    @staticmethod
    def empty(rows: int, tenants: int, joints: int) -> _SlotLabels:
        # not filled: a row is written before it is read, and most are never touched
        return _SlotLabels(empty_labels(rows, tenants, joints))


@dataclass(eq=False)
class _Stories:
    """Finished retrainings as a tree: node -> (node before, tenant, way, end)."""

    nodes: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros((1024, 4), np.int32))
    used: int = 0

    def make_room(self, more: int) -> None:
        while self.used + more > len(self.nodes):
            self.nodes = np.concatenate([self.nodes, np.zeros_like(self.nodes)])


class LabelSearch:
    """Searches one problem's schedules; passes of growing width share the bounds."""

    def __init__(
        self, space: Space, tables: GoodputTables, bounds: Bounds, running: Schedule
    ) -> None:
        """`running`: retrainings that run already at slot 0 (None elsewhere)."""
        self._space, self._tables, self._bounds = space, tables, bounds
        self._running = running
        self._step = empty_step(space, tables)

    def run(
        self,
        incumbent: float,
        width: int,
        budget: float,
        late: Callable[[], bool],
        eager: bool = False,
    ) -> LabelPass:
        """One pass that keeps at most `width` labels a slot and spends about `budget` work.

        Work is counted, not timed, so that the same problem gives the same plan on any
        machine; `late` is the emergency brake for a machine slower than the budget assumes.
        An `eager` pass keeps labels that retrain early, whatever it costs: it finds a plan where
        retraining does not pay and the others put it off until it no longer fits.
        """
        slots = self._tables.keep.shape[2]
        rows = 2 * width + 64
        joints, tenants = self._space.joint.shape
        now, then = (_SlotLabels.empty(rows, tenants, joints) for _ in range(2))
        self._seed(now)
        stories, seen = _Stories(), np.full(1 << (4 * rows).bit_length(), -1, np.int64)
        scratch = empty_scratch(rows, self._space, self._tables)
        missed, work, labels_so_far = NEVER, 0, 0
        for slot in range(slots):
            allowed = width_within(budget, work, labels_so_far, slots - slot, width, NARROW)
            if late():
                allowed = NARROW
            labels_so_far += now.count
            urgency = EAGER if eager else 1.0
            goal = incumbent, allowed, urgency
            lost, spent = self._advance(slot, *goal, now, then, stories, seen, scratch)
            missed, work = max(missed, lost), work + spent
            now, then = then, now
            if now.count == 0:
                return LabelPass(NEVER, None, missed, work)
        columns, count = now.columns, now.count
        unused = np.arange(joints) >= columns.entries[:count, None]
        value = np.where(unused, NEVER, columns.value[:count])
        value += self._later_goodput(columns.way[:count])[:, None]
        row, entry = np.unravel_index(int(value.argmax()), value.shape)
        schedule = self._read(columns, int(row), int(entry), stories)
        return LabelPass(float(value[row, entry]), schedule, missed, work)

    def _seed(self, layer: _SlotLabels) -> None:
        layer.count = 1
        way, end, entries, joint, value, story, _, _ = layer.columns
        way[0], end[0], entries[0] = WAITING, 0, 1
        joint[0, 0], value[0, 0], story[0, 0] = 0, 0.0, -1
        for m, start in enumerate(self._running):
            if start is not None:
                way[0, m], end[0, m] = start.place, start.end
            elif not self._tables.durations[m].any():
                way[0, m] = DONE

    def _advance(
        self,
        slot: int,
        incumbent: float,
        width: int,
        urgency: float,
        now: _SlotLabels,
        then: _SlotLabels,
        stories: _Stories,
        seen: Ints,
        scratch: LabelScratch,
    ) -> tuple[float, int]:
        joints, tenants = self._space.joint.shape
        if stories.used + now.count * tenants * joints > len(stories.nodes):
            way, end = now.columns.way[: now.count], now.columns.end[: now.count]
            stories.make_room(int(((way >= 0) & (end == slot)).sum()) * joints)
        then.count, stories.used, missed, work = expand(
            slot,
            incumbent,
            width,
            urgency,
            self._space.arrays,
            self._tables,
            self._bounds,
            now.columns,
            now.count,
            then.columns,
            stories.nodes,
            stories.used,
            seen,
            self._step,
            scratch,
        )
        return missed, work

    def _read(self, labels: LabelTable, row: int, entry: int, stories: _Stories) -> Schedule:
        schedule = list(self._running)
        for m, way in enumerate(labels.way[row]):
            if way >= 0:
                schedule[m] = self._start(m, int(way), int(labels.end[row, m]))
        node = int(labels.story[row, entry])
        while node >= 0:
            node, m, way, end = (int(number) for number in stories.nodes[node])
            schedule[m] = self._start(m, way, end)
        return tuple(schedule)

    def _start(self, m: int, way: int, end: int) -> Start:
        running = self._running[m]
        if running is not None:
            return running
        configuration, place = divmod(way, len(self._space.geometry.places))
        duration = self._tables.durations[m, self._space.arrays.way_option[way]]
        return Start(place, end - int(duration), end, configuration)

    def _later_goodput(self, ways: Ints) -> Floats:
        """[label]: goodput after the window of the retrainings completed at its end."""
        # a retraining that runs until the window's end is completed
        configuration = self._space.arrays.way_configuration[ways]
        stages = np.where(ways >= 0, 1 + configuration, np.maximum(0, DONE + 1 - ways))
        later: Floats = np.take_along_axis(self._tables.later, stages.T, axis=1).sum(axis=0)
        return later
