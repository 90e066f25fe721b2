"""Plans as blocks: an instance or share with its task, over consecutive slots.

A block is {"start", "gpcs", "task", "from", "until"} and covers slots `from` to `until` - 1 of a
window. A share has no start, the size of an instance with as many SMs, and a "number".
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
    """Blocks of the holdings of every slot, of which the first is slot `first` of the window.

    The last slot is extended to slot `until` - 1.
    """
    since: dict[Holding, int] = {}
    found: list[Block] = []
    end = max(first + len(slots), until or 0)
    for slot, holdings in enumerate((*slots, ()), first):
        held = set(holdings)
        closes = end if slot == first + len(slots) else slot
        found += [_block(e, since.pop(e), closes, board) for e in list(since) if e not in held]
        for each in held:
            since.setdefault(each, slot)
    return tuple(sorted(found, key=_order))


def planned_blocks(
    window: WindowRecord, plans: Sequence[PlanRecord], slots: int
) -> tuple[Block, ...]:
    """The plans of a window, each until the next one replaces it."""
    if not plans:
        return _file_blocks(window.plan, slots)
    found: list[Block] = []
    ordered = sorted(plans, key=lambda each: each.at_s)
    ends = [*(each.slot for each in ordered[1:]), slots]
    for plan, end in zip(ordered, ends, strict=True):
        found += _cut(plan.blocks, plan.slot, end)
    return tuple(_joined(found))


def first_plan_blocks(
    window: WindowRecord, plans: Sequence[PlanRecord], slots: int
) -> tuple[Block, ...]:
    """The plan made at the beginning of a window."""
    if window.plan is not None or not plans:
        return _file_blocks(window.plan, slots)
    return tuple(min(plans, key=lambda each: each.at_s).blocks)


def _file_blocks(plan: Mapping[str, Any] | None, slots: int) -> tuple[Block, ...]:
    """The blocks of a plan in the format of plan files."""
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
    """Join blocks of the same holding that follow one another without a break."""
    last: dict[tuple[object, ...], dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for each in sorted(blocks, key=_order):
        key = tuple(each.get(name) for name in ("start", "gpcs", "task", "number"))
        before = last.get(key)
        if before is not None and before["until"] == each["from"]:
            before["until"] = each["until"]
            continue
        last[key] = dict(each)
        found.append(last[key])
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
