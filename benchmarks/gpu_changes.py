"""How long planning a change takes: python -m benchmarks.gpu_changes [--out FILE]

Every transition between maximal layouts of an A100 and an A30, then counts on every board: each
multiset of MIG profiles that fits on the empty board, wanted where another layout is.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe_machine
from migrator.core.catalogue import Board, Place, boards, maximal_placement_sets
from migrator.core.errors import MigratorError
from migrator.gpu.drivers.base import GpuInstance
from migrator.gpu.layout import Layout, plan_steps

REPEATS = 3
COUNTS_PER_BOARD = 400


@dataclass(frozen=True)
class Timing:
    """How long the plans of one kind took."""

    kind: str
    plans: int
    median_ms: float
    max_ms: float


@dataclass(frozen=True)
class Case:
    """What is there, what of it is ours, what is wanted."""

    before: tuple[Place, ...]
    ours: tuple[Place, ...]
    wanted: Layout


def maximal_layouts(board: Board) -> list[tuple[Place, ...]]:
    """The layouts of plain sizes to which nothing can be added."""
    return [
        tuple(
            Place(placement.start, board.plain_profiles[placement.gpcs].name)
            for placement in chosen
        )
        for chosen in maximal_placement_sets(board)
    ]


def transitions(board: Board) -> Iterator[Case]:
    """Every pair of maximal layouts."""
    every = maximal_layouts(board)
    return (Case(before, before, Layout(after)) for before in every for after in every)


def multisets(board: Board) -> list[Counter[str]]:
    """Every multiset of MIG profiles, attributes too, that the board's slices could hold."""
    found: list[Counter[str]] = [Counter()]
    for profile in board.profiles:
        found = [
            each + Counter({profile.name: count})
            for each in found
            for count in range(profile.max_instances + 1)
            if _fits(board, each + Counter({profile.name: count}))
        ]
    return found


def _fits(board: Board, amounts: Counter[str]) -> bool:
    kinds = [(board.profile(name), count) for name, count in amounts.items()]
    return (
        sum(kind.gpcs * count for kind, count in kinds) <= board.compute_slices
        and sum(kind.memory_slices * count for kind, count in kinds) <= board.memory_slices
    )


def counted(board: Board, draw: random.Random, *, alone: bool) -> Iterator[Case]:
    """Multisets wanted wherever they fit, where a random other layout is; not `alone`: the first
    instance there is somebody else's, and the plan may end with what blocks it.
    """
    layouts = maximal_layouts(board)
    every = multisets(board)
    for amounts in draw.sample(every, min(COUNTS_PER_BOARD, len(every))):
        before = draw.choice(layouts)
        yield Case(before, before if alone else before[1:], Layout(counts=dict(amounts)))


def timed(kind: str, board: Board, cases: Iterable[Case]) -> Timing:
    """The fastest of a few repeats per plan: what else the machine does is not the planner's."""
    times_ms = [min(_once_ms(board, case) for _ in range(REPEATS)) for case in cases]
    return Timing(kind, len(times_ms), statistics.median(times_ms), max(times_ms))


def _once_ms(board: Board, case: Case) -> float:
    present = [GpuInstance(place, at, f"MIG-{place}") for at, place in enumerate(case.before)]
    begin = time.perf_counter()
    with suppress(MigratorError):
        plan_steps(board, present, case.ours, case.wanted)
    return (time.perf_counter() - begin) * 1000


def measured() -> list[Timing]:
    """All of it."""
    draw = random.Random(0)
    known = boards()
    some = [known["A100-40GB"], known["A30-24GB"]]
    return [
        *(timed(f"{board.name}: maximal layouts", board, transitions(board)) for board in some),
        *(
            timed(f"{board.name}: counts{words}", board, counted(board, draw, alone=alone))
            for board in known.values()
            for words, alone in (("", True), (", one not ours", False))
        ),
    ]


def table(timings: Sequence[Timing]) -> str:
    lines = ["| change | plans | median ms | max ms |", "|---|---|---|---|"]
    lines += [
        f"| {timing.kind} | {timing.plans} | {timing.median_ms:.3f} | {timing.max_ms:.3f} |"
        for timing in timings
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    chosen = parser.parse_args()
    timings = measured()
    print(table(timings))
    if chosen.out:
        record = {"machine": describe_machine(), "changes": [asdict(timing) for timing in timings]}
        chosen.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
