"""Policies that ignore load: equal MIG, equal MPS, unpartitioned sharing, and static splits.

How equal MIG splits the board:
- The GPCs are split as evenly as possible; the remainder goes to the first tenants, and each tenant
  gets at least the smallest instance that can serve it.
- Each part is laid out for the highest capability that fits beside the other parts.
- A retraining takes an instance from its own tenant's part: the largest that leaves inference at
  least half of the part. On completion inference gets the whole part again.
- A part that is too small to be shared (one GPC, or the tenant's minimum) is never used for
  retraining.

`static-I-R`, as in the paper's first experiment, has I GPCs for inference and R for retraining
throughout the window: the instance of a completed retraining idles until the next window.
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

from migrator.core.catalogue import Multiset, boards
from migrator.core.errors import InputError
from migrator.core.problem import Instance, Kind, Share, Task
from migrator.policies import mps_workers
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
    Sharing,
    TenantView,
    remaining_s,
    running,
    waiting,
)


class EqualMig(Policy):
    """The same number of GPCs for every tenant."""

    name = "equal-mig"
    summary = "MIG split evenly between tenants, retraining inside each one's part"

    def decide(self, observation: Observation) -> Decision:
        """The even split, until a retraining starts or ends."""
        return Decision((equal_allocation(observation),))


def equal_allocation(observation: Observation) -> tuple[Instance, ...]:
    """The even split, with every waiting retraining started that fits."""
    board = observation.board
    least = [least_gpcs(view.service, board) for view in observation.tenants]
    parts = even_parts(board.compute_slices, least)
    starts = _starts(observation, parts)
    instances = _allocation(observation, parts, starts)
    placed = {
        instance.task.tenant
        for instance in instances
        if instance.task and instance.task.kind is Kind.RETRAINING
    }
    if placed >= starts.keys():
        return instances
    # GPCs reserved for retrainings that do not fit go back to their tenants' inference
    kept = {name: gpcs for name, gpcs in starts.items() if name in placed}
    return _allocation(observation, parts, kept)


def _allocation(
    observation: Observation, parts: tuple[int, ...], starts: dict[str, int]
) -> tuple[Instance, ...]:
    """The layout of the parts, minus what their retrainings take."""
    board, views = observation.board, observation.tenants
    taken = {name: instance.gpcs for name, instance in running(observation).items()} | starts
    serving = [
        inference_wish(view.service, board, part - taken.get(view.name, 0))
        for view, part in zip(views, parts, strict=True)
    ]
    training = [retraining_wish(name, (gpcs,)) for name, gpcs in starts.items()]
    relative = relative_capabilities(observation, serving)

    def worth(chosen: tuple[Multiset, ...]) -> Worth:
        served = zip(relative, chosen, strict=False)
        started = sum(map(len, chosen[len(views) :]))
        return started, sum(capability[sizes] for capability, sizes in served)

    return best_allocation(observation, [*serving, *training], worth)


def _starts(observation: Observation, parts: tuple[int, ...]) -> dict[str, int]:
    """Tenant -> the size that its waiting retraining takes from its part."""
    late = {view.name for view in waiting(observation)}
    sizes = {
        view.name: _largest_beside(observation, view, part)
        for view, part in zip(observation.tenants, parts, strict=True)
        if view.name in late
    }
    return {name: gpcs for name, gpcs in sizes.items() if gpcs is not None}


def _largest_beside(observation: Observation, view: TenantView, part: int) -> int | None:
    """The largest size that leaves inference half of the part and its minimum."""
    stays = max(part / 2, least_gpcs(view.service, observation.board))
    sizes = view.service.training_sizes(observation.board)
    return max((size for size in sizes if part - size >= stays), default=None)


class EqualMps(Policy):
    """Equal shares, whatever the load."""

    name = "equal-mps"
    summary = "the same MPS share for every inference and every retraining"
    sharing = Sharing.MPS

    def decide(self, observation: Observation) -> Decision:
        """Equal parts; the part of a finished retraining goes to its tenant's inference."""
        names = [view.name for view in observation.tenants]
        parts = mps_workers.equal_parts(names, 100.0, observation.board, observation.limits)
        shares = (_tenant(view, observation, parts[view.name]) for view in observation.tenants)
        return Decision((tuple(share for some in shares for share in some),))


def _tenant(view: TenantView, observation: Observation, percent: float) -> tuple[Share, ...]:
    board, limits = observation.board, observation.limits
    trained = mps_workers.process_percent(board, limits, percent / 2) if view.retraining else 0.0
    training = (mps_workers.training(view.name, trained),) if trained else ()
    return (*mps_workers.serving(view.service, board, percent - trained, limits), *training)


class Unpartitioned(Policy):
    """Every task on the whole GPU, without partitions.

    A tenant has one serving process. The GPU runs one process at a time, so that several would
    answer little more, and their turns would delay retrainings: on W1 and W8 goodput falls from
    14.0% with one process to 12.7% with four and 11.4% with eight.
    """

    name = "unpartitioned"
    summary = "every task on the whole GPU in turns, retrainings from the window's start"
    sharing = Sharing.UNPARTITIONED
    on_completion = False

    def decide(self, observation: Observation) -> Decision:
        """All SMs to every task."""
        serving = [Share(0, 100.0, Task(view.name, Kind.INFERENCE)) for view in observation.tenants]
        training = [
            mps_workers.training(view.name, 100.0)
            for view in observation.tenants
            if view.retraining
        ]
        return Decision(((*serving, *training),))


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
            seven = [name for name, board in boards().items() if board.compute_slices == GPCS]
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
        busy = sum(instance.gpcs for instance in running(observation).values())
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
        (remaining_s(observation.tenant(name), sms(instance.gpcs)), instance.gpcs)
        for name, instance in running(observation).items()
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
    held = [holding for holding in observation.held if isinstance(holding, Instance)]
    ended = [holding for holding in held if _is_retrainings(holding) and holding not in kept]
    ended.sort(key=lambda instance: instance.gpcs, reverse=True)
    takers = {
        instance: Task(view.name, Kind.RETRAINING)
        for instance, view in zip(ended, _shortest_first(observation), strict=False)
    }
    # a retraining that has moved on does not keep its previous instance
    left = {
        instance
        for instance in ended
        if instance not in takers and instance.task in takers.values()
    }
    return tuple(replace(i, task=takers.get(i, i.task)) for i in held if i not in left)


def _is_retrainings(instance: Instance) -> bool:
    return instance.task is not None and instance.task.kind is Kind.RETRAINING


POLICIES = (
    EqualMig(),
    EqualMps(),
    Unpartitioned(),
    *(Static(GPCS - gpcs, gpcs) for gpcs in range(1, GPCS)),
)
