"""Static splits, as in the paper's first experiment: I GPCs for inference, R for retraining.

`static-I-R` keeps the split throughout the window: the instance of a completed retraining idles
until the next window.

Our adaptations:
- Tenants share the I GPCs evenly (the remainder goes to the first ones), each part laid out for the
  highest capability.
- A retraining holds one instance. The R GPCs are divided so that the retrainings of the window end
  soonest on average. With fewer instances than retrainings, the shorter ones go first and the next
  one starts when one has ended.
- Not every split has a legal layout: one retraining cannot hold 5 or 6 GPCs, and two 3g leave no
  place for a 1g. The nearest layout is used: the one that uses most of the I + R GPCs without more
  than I for inference or R for retraining.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from migrator.core.catalogue import boards
from migrator.core.errors import InputError
from migrator.core.instance import Instance, Kind, Task
from migrator.core.placement import Multiset
from migrator.policies.layouts import (
    Worth,
    best_allocation,
    even_parts,
    inference_wish,
    least_gpcs,
    relative_capabilities,
    retraining_wish,
)
from migrator.policies.policy import (
    Decision,
    Observation,
    Policy,
    TenantView,
    remaining_s,
    running,
    waiting,
)

GPCS = 7
"""GPCs of the boards that the splits are made for."""


class Static(Policy):
    """`inference_gpcs` GPCs for inference, `retraining_gpcs` for retraining."""

    def __init__(self, inference_gpcs: int, retraining_gpcs: int) -> None:
        self.inference_gpcs = inference_gpcs
        self.retraining_gpcs = retraining_gpcs
        self.name = f"static-{inference_gpcs}-{retraining_gpcs}"
        self.summary = f"{inference_gpcs} GPCs for inference and {retraining_gpcs} for retraining"

    def decide(self, observation: Observation) -> Decision:
        """The split at a window's start; within the window only the next waiting retraining."""
        if observation.slot > 0 and observation.held:
            return Decision((_next_in_line(observation),))
        self._require_room(observation)
        return Decision((self._split(observation),))

    def _require_room(self, observation: Observation) -> None:
        board, tenants = observation.board, observation.tenants
        if board.compute_slices != GPCS:
            seven = [name for name, each in boards().items() if each.compute_slices == GPCS]
            raise InputError(
                f"policy: {self.name} splits {GPCS} GPCs and {board.name} has "
                f"{board.compute_slices}; use {', '.join(seven)}"
            )
        needed = sum(least_gpcs(view.service, board) for view in tenants)
        if needed > self.inference_gpcs:
            raise InputError(
                f"policy: {self.name} has {self.inference_gpcs} GPCs for inference, but the "
                f"{len(tenants)} tenants need {needed}; use a split with more"
            )

    def _split(self, observation: Observation) -> tuple[Instance, ...]:
        board = observation.board
        least = [least_gpcs(view.service, board) for view in observation.tenants]
        parts = even_parts(self.inference_gpcs, least)
        queue = _shortest_first(observation)
        busy = sum(each.gpcs for each in running(observation).values())
        room = max(0, self.retraining_gpcs - busy)
        serving = [
            inference_wish(view.service, board, part)
            for view, part in zip(observation.tenants, parts, strict=True)
        ]
        training = [
            retraining_wish(
                view.name, [size for size in view.service.training_sizes(board) if size <= room]
            )
            for view in queue
        ]
        capabilities = relative_capabilities(observation, serving)

        def worth(chosen: tuple[Multiset, ...]) -> Worth | None:
            served, started = chosen[: len(serving)], chosen[len(serving) :]
            if sum(map(sum, started)) > room:
                return None
            relative = sum(c[sizes] for c, sizes in zip(capabilities, served, strict=True))
            ends_s = _mean_completion_s(observation, queue, started)
            return sum(map(sum, chosen)), relative, -ends_s

        return best_allocation(observation, [*serving, *training], worth)


def _shortest_first(observation: Observation) -> list[TenantView]:
    """The waiting retrainings, in the order in which they run."""
    whole = observation.board.sms
    return sorted(waiting(observation), key=lambda view: remaining_s(view, whole))


def _mean_completion_s(
    observation: Observation, queue: Sequence[TenantView], started: Sequence[Multiset]
) -> float:
    """The mean end of the waiting retrainings; those not started follow on freed instances."""
    sms = observation.board.sms_of
    ends_s = {view.name: math.inf for view in queue}
    free = [
        (remaining_s(observation.tenant(name), sms(each.gpcs)), each.gpcs)
        for name, each in running(observation).items()
    ]
    for view, sizes in zip(queue, started, strict=True):
        if sizes:
            ends_s[view.name] = remaining_s(view, sms(sizes[0]))
            free.append((ends_s[view.name], sizes[0]))
    for view in queue:
        if free and ends_s[view.name] == math.inf:
            since_s, gpcs = min(free)
            free.remove((since_s, gpcs))
            ends_s[view.name] = since_s + remaining_s(view, sms(gpcs))
            free.append((ends_s[view.name], gpcs))
    return sum(ends_s.values()) / len(ends_s) if ends_s else 0.0


def _next_in_line(observation: Observation) -> tuple[Instance, ...]:
    """The current layout, with waiting retrainings on the instances of those that have ended."""
    kept = running(observation).values()
    held = [each for each in observation.held if isinstance(each, Instance)]
    ended = [each for each in held if _is_retrainings(each) and each not in kept]
    ended.sort(key=lambda each: each.gpcs, reverse=True)
    takers = {
        each: Task(view.name, Kind.RETRAINING)
        for each, view in zip(ended, _shortest_first(observation), strict=False)
    }
    # a retraining that has moved on does not keep its previous instance
    left = {each for each in ended if each not in takers and each.task in takers.values()}
    return tuple(replace(i, task=takers.get(i, i.task)) for i in held if i not in left)


def _is_retrainings(instance: Instance) -> bool:
    return instance.task is not None and instance.task.kind is Kind.RETRAINING


POLICIES = tuple(Static(GPCS - gpcs, gpcs) for gpcs in range(1, GPCS))
