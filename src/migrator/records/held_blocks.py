"""What is held slot by slot, as blocks: how records keep plans, and how the live page draws them.

A block is {"start", "gpcs", "task", "from", "until"}: slots `from` to `until` - 1 of the window. A
share has no start, and the size that an instance of as many SMs would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from migrator.core.catalogue import Board
from migrator.core.share import Holding, Share
from migrator.records.rows import PlanRecord, WindowRecord

Block = Mapping[str, Any]


def held_blocks(
    slots: Sequence[Iterable[Holding]], board: Board, first: int = 0, until: int | None = None
) -> tuple[Block, ...]:
    """The holdings of slots from `first` on, those of consecutive slots together.

    The last of them holds until the slot `until`, by default not longer than itself.
    """
    opened: dict[Holding, int] = {}
    found: list[Block] = []
    end = max(first + len(slots), until or 0)
    for slot, holdings in enumerate((*slots, ()), first):
        held = set(holdings)
        closes = end if slot == first + len(slots) else slot
        found += [_block(e, opened.pop(e), closes, board) for e in list(opened) if e not in held]
        for each in held:
            opened.setdefault(each, slot)
    return tuple(sorted(found, key=_order))


def planned_blocks(
    window: WindowRecord, plans: Sequence[PlanRecord], slots: int
) -> tuple[Block, ...]:
    """What was planned of a window: every plan from its beginning until the next one's."""
    if not plans:
        return _file_blocks(window.plan, slots)
    found: list[Block] = []
    ordered = sorted(plans, key=lambda each: each.at_s)
    ends = [*(each.slot for each in ordered[1:]), slots]
    for plan, end in zip(ordered, ends, strict=True):
        found += _cut(plan.blocks, plan.slot, end)
    return tuple(_joined(found))


def _file_blocks(plan: Mapping[str, Any] | None, slots: int) -> tuple[Block, ...]:
    """Of a plan file's plan, as older records have it."""
    found = [
        {**{key: each[key] for key in ("start", "gpcs", "task")}, "from": at, "until": at + 1}
        for at, slot in enumerate((plan or {}).get("slots", ())[:slots])
        for each in slot["instances"]
    ]
    return tuple(_joined(found))


def _cut(blocks: Iterable[Block], first: int, end: int) -> list[Block]:
    cut = [
        {**each, "from": max(each["from"], first), "until": min(each["until"], end)}
        for each in blocks
    ]
    return [each for each in cut if each["from"] < each["until"]]


def _joined(blocks: Iterable[Block]) -> list[Block]:
    """Blocks that follow one another without a break are one."""
    last: dict[tuple[object, ...], dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for each in sorted(blocks, key=_order):
        known_by = tuple(each.get(key) for key in ("start", "gpcs", "task", "number"))
        before = last.get(known_by)
        if before is not None and before["until"] == each["from"]:
            before["until"] = each["until"]
            continue
        last[known_by] = dict(each)
        found.append(last[known_by])
    return [*found]


def _block(holding: Holding, first: int, until: int, board: Board) -> Block:
    if isinstance(holding, Share):
        gpcs = round(holding.percent / 100 * board.compute_slices, 3)
        where: dict[str, object] = {"start": None, "gpcs": gpcs, "number": holding.number}
        if holding.duty < 1:
            where["duty"] = round(holding.duty, 3)
    else:
        where = {"start": holding.start, "gpcs": holding.gpcs}
    task = None if holding.task is None else str(holding.task)
    return {**where, "task": task, "from": first, "until": until}


def _order(block: Block) -> tuple[int, float, str, int]:
    start = block["start"]
    return (
        block["from"],
        float("inf") if start is None else start,
        block["task"] or "",
        block.get("number", 0),
    )
