"""Policies that only experiments need; they are not registered by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from migrator.core.catalogue import Board
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import Multiset, multiset_of, placement_sets
from migrator.core.problem import Charge
from migrator.policies.migrator import Migrator
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


def serving_and_training(served: dict[str, int], trained: dict[str, int]) -> FixedLayout:
    """One instance for every model's inference and one for its retraining; values are GPCs."""
    tasks = [(Task(model, Kind.INFERENCE), gpcs) for model, gpcs in served.items()]
    tasks += [(Task(model, Kind.RETRAINING), gpcs) for model, gpcs in trained.items()]
    return FixedLayout("held-" + "-".join(str(gpcs) for gpcs in trained.values()), tuple(tasks))


class WithoutPass(Migrator):
    """The paper's plan without pre-initialization."""

    def decide(self, observation: Observation) -> Decision:
        """Plan the rest of the window."""
        decision = super().decide(observation)
        if decision.plan is None:
            return decision
        slots = (each.instances for each in decision.plan.slots)
        used = (tuple(each for each in slot if each.task is not None) for slot in slots)
        return replace(decision, slots=tuple(used))


PAPER_WITHOUT_PASS = WithoutPass(
    "migrator-paper-no-pass",
    "the paper's plan without pre-initialization",
    Sight.FORECAST,
    Charge.PAPER,
)
PAPER_WITH_TRUTH = Migrator(
    "migrator-paper-truth",
    "the paper's plan and pass on the arrivals that will come",
    Sight.TRUTH,
    Charge.PAPER,
)
