"""A split of the board that never changes, as a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Task
from migrator.core.placement import Multiset, multiset_of, placement_sets
from migrator.policies.policy import Decision, Observation, Routing, Sharing, Sight


@dataclass(unsafe_hash=True)
class FixedLayout:
    """The same instances in every window."""

    name: str
    sizes: tuple[tuple[Task, int], ...]
    """Task and GPCs of each instance."""
    summary: str = "the same instances through every window"
    sharing: Sharing = Sharing.MIG
    sight: Sight = Sight.NOTHING
    routing: Routing = Routing.EARLIEST
    every_s: float | None = field(default=None)
    on_completion: bool = False
    estimates: bool = False

    def decide(self, observation: Observation) -> Decision:
        """Return the fixed instances."""
        return Decision((place_instances(observation.board, self.sizes),))


def place_instances(board: Board, sizes: tuple[tuple[Task, int], ...]) -> tuple[Instance, ...]:
    """Place instances of these sizes at the first legal positions; InputError if there are none."""
    wanted: Multiset = tuple(sorted((gpcs for _, gpcs in sizes), reverse=True))
    for chosen in placement_sets(board):
        if multiset_of(chosen) == wanted:
            return tuple(_assigned({p.start: p.gpcs for p in chosen}, sizes))
    raise InputError(f"instances of {wanted} GPCs never fit {board.name}; use smaller ones")


def _assigned(starts: dict[int, int], sizes: tuple[tuple[Task, int], ...]) -> Iterator[Instance]:
    free = dict(starts)
    for task, gpcs in sizes:
        start = next(each for each, size in free.items() if size == gpcs)
        del free[start]
        yield Instance(start, gpcs, task)


def fits(board: Board, sizes: tuple[int, ...]) -> bool:
    """Whether instances of these sizes can exist at once."""
    return any(Counter(multiset_of(each)) == Counter(sizes) for each in placement_sets(board))
