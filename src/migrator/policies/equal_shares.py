"""Policies that ignore load: equal MIG, equal MPS, and unpartitioned sharing.

How equal MIG splits the board:
- The GPCs are split as evenly as possible; the remainder goes to the first tenants, and each tenant
  gets at least the smallest instance that can serve it.
- Each part is laid out for the highest capability that fits beside the other parts.
- A retraining takes an instance from its own tenant's part: the largest that leaves inference at
  least half of the part. On completion inference gets the whole part again.
- A part that is too small to be shared (one GPC, or the tenant's minimum) is never used for
  retraining.
"""

from __future__ import annotations

from migrator.core.instance import Instance, Kind, Share, Task
from migrator.core.placement import Multiset
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
    found = _allocation(observation, parts, starts)
    placed = {each.task.tenant for each in found if each.task and each.task.kind is Kind.RETRAINING}
    if placed >= starts.keys():
        return found
    # GPCs reserved for retrainings that do not fit go back to their tenants' inference
    kept = {name: gpcs for name, gpcs in starts.items() if name in placed}
    return _allocation(observation, parts, kept)


def _allocation(
    observation: Observation, parts: tuple[int, ...], starts: dict[str, int]
) -> tuple[Instance, ...]:
    """The layout of the parts, minus what their retrainings take."""
    board, views = observation.board, observation.tenants
    taken = {name: each.gpcs for name, each in running(observation).items()} | starts
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
        return Decision((tuple(each for some in shares for each in some),))


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
    summary = "every task on the whole GPU at once, retrainings from the window's start"
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


POLICIES = (EqualMig(), EqualMps(), Unpartitioned())
