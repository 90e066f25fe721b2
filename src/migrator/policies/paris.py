"""PARIS and ELSA (DAC'22): MIG partitioned by compute intensity, requests on the smallest instance
that suffices.

PARIS finds, per instance size, the batch at which utilisation levels off (the knee). It serves each
batch on the smallest size whose knee is not below it, and divides the GPCs in proportion to the
arrival rate over the rate that such an instance answers. ELSA sends a request to the slowest
instance that still answers in time, which is the `slowest-first` routing.

Our adaptations:
- Utilisation is throughput over the highest throughput of the same size, from the profile's
  latencies over batches 1 to the largest measured or served; the knee is the smallest batch with
  `LEVEL` of it.
- A tenant has one batch, so one size: the smallest whose knee is not below its batch, or the
  largest if there is none. Larger instances would be underused, so it gets none (unless its minimum
  requires one); rounding to a legal layout may give smaller ones instead.
- Rounding: the layout with the best worst capability over demand, then the best second worst, and
  so on. Demand is the mean rate of the last window's length; before any request has been observed,
  it is an even share of what the board could answer.
- PARIS supports inference only. A retraining is one more task with one instance and a demand of one
  retraining per window, so its ratio is the window over the time it takes.
- Retrainings that do not fit beside the inference of all tenants wait for the next decision.
- `paris` is static: the partition is made once and kept as long as every waiting retraining has its
  instance in it; the instance of a finished one idles until the next. `paris-reconfiguring` makes
  it again at each window's start and whenever a retraining ends.
"""

from __future__ import annotations

from collections.abc import Callable

from migrator.core.catalogue import Board, Multiset
from migrator.core.problem import Kind, Task
from migrator.core.profiles import Service
from migrator.policies.layouts import Wish, Worth, best_allocation, inference_wish, retraining_wish
from migrator.policies.policy import (
    Decision,
    Observation,
    Policy,
    Routing,
    TenantView,
    mean_rate_rps,
    remaining_s,
    waiting,
)

LEVEL = 0.8
"""The share of the highest throughput at which utilisation counts as levelled off."""
_Ratio = Callable[[Multiset], float]
"""Maps a task's holding to its capability over its demand."""


class Paris(Policy):
    """The partition with the best worst capability over demand."""

    routing = Routing.SLOWEST_FIRST

    def __init__(self, name: str, summary: str, *, reconfiguring: bool) -> None:
        self.name = name
        self.summary = summary
        self.on_completion = reconfiguring

    def decide(self, observation: Observation) -> Decision:
        """The partition until the next decision."""
        if not self.on_completion and _complete(observation):
            return Decision((observation.held,))
        board = observation.board
        wishes: list[Wish] = []
        ratios: list[_Ratio] = []
        for view in observation.tenants:
            largest = knee_gpcs(view.service, board)
            wishes.append(inference_wish(view.service, board, board.compute_slices, largest))
            ratios.append(_inference_ratio(observation, view))
        for view in waiting(observation):
            wishes.append(retraining_wish(view.name, view.service.training_sizes(board)))
            ratios.append(_retraining_ratio(observation, view))

        def worth(chosen: tuple[Multiset, ...]) -> Worth:
            pairs = zip(ratios, chosen, strict=True)
            held = [ratio(sizes) for ratio, sizes in pairs if sizes]
            return len(held), *sorted(held)

        return Decision((best_allocation(observation, wishes, worth),))


def _complete(observation: Observation) -> bool:
    """Whether the current layout has an instance for every task."""
    tasks = {holding.task for holding in observation.held}
    needed = [Task(view.name, Kind.INFERENCE) for view in observation.tenants]
    needed += [Task(view.name, Kind.RETRAINING) for view in waiting(observation)]
    return all(task in tasks for task in needed)


def knee(service: Service, sms: float) -> int:
    """The smallest batch at which utilisation on `sms` SMs has levelled off."""
    batches = range(1, max(service.batch, *service.profile.latency_ms) + 1)
    throughput = [batch / service.latency_s(batch, sms) for batch in batches]
    enough = LEVEL * max(throughput)
    return next(b for b, rps in zip(batches, throughput, strict=True) if rps >= enough)


def knee_gpcs(service: Service, board: Board) -> int:
    """The smallest size whose knee is not below the tenant's batch, or else the largest."""
    sizes = [gpcs for gpcs in board.sizes if knee(service, board.sms_of(gpcs)) >= service.batch]
    return min(sizes, default=board.sizes[-1])


def _inference_ratio(observation: Observation, view: TenantView) -> _Ratio:
    rps = view.service.capabilities_rps(observation.board)
    demand_rps = _demand_rps(observation, view)
    return lambda sizes: sum(rps[size] for size in sizes) / demand_rps


def _demand_rps(observation: Observation, view: TenantView) -> float:
    """The last window's mean rate, at least one request per window."""
    rate = mean_rate_rps(observation, view)
    if rate is None:
        whole = inference_wish(view.service, observation.board, observation.board.compute_slices)
        rps = view.service.capabilities_rps(observation.board)
        most = max(sum(rps[size] for size in choice) for choice in whole.choices)
        return most / (len(observation.tenants) + len(waiting(observation)))
    return max(rate, 1 / (observation.slots * observation.slot_s))


def _retraining_ratio(observation: Observation, view: TenantView) -> _Ratio:
    window_s = observation.slots * observation.slot_s
    sms_of = observation.board.sms_of
    return lambda sizes: window_s / remaining_s(view, sms_of(sizes[0]))


POLICIES = (
    Paris(
        "paris",
        "MIG partitioned once, by compute intensity (PARIS + ELSA)",
        reconfiguring=False,
    ),
    Paris(
        "paris-reconfiguring",
        "PARIS + ELSA, partitioned again at window starts and retraining ends",
        reconfiguring=True,
    ),
)
