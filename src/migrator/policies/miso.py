"""MISO (SoCC'22): one slice per job, the layout and assignment with the least mean slowdown.

All layouts with as many slices as there are jobs are tried with all assignments, at each window's
start and whenever a retraining ends.

Our adaptations:
- A retraining is one job. A tenant's inference is as many jobs, each with an instance and a process
  of its own, as are best: at batch 1 one process leaves most of a large instance idle, and a tenant
  with one job only would lose for a reason unrelated to the policy.
- A retraining's slowdown is its time over that on the whole board. Inference has no end, so its
  slowdown is the number of the last window's requests that the whole board would have answered over
  the number that its slices would have, slot by slot. Before any request has been observed, it is
  the ratio of the capabilities.
- MISO moves running jobs; here a running retraining stays where it is, as under every policy.
- MISO learns slowdowns by running the jobs together under MPS for 30 s. Here profiles are known, so
  nothing is probed and no time is lost on it, which favours MISO.
- Among layouts with the same slowdown, the one that uses most GPCs is chosen.
- Jobs without a slice wait, as in its queue. All arrive at once, so those are started that
  increase the mean slowdown least.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from migrator.core.catalogue import Multiset
from migrator.policies.layouts import Wish, Worth, best_allocation, inference_wish, retraining_wish
from migrator.policies.policy import Decision, Observation, Policy, TenantView, last_window, waiting

_Slowdowns = dict[Multiset, float]
"""Sizes -> slowdown of a task relative to the whole board."""


class Miso(Policy):
    """As many slices as jobs, with the least mean slowdown."""

    name = "miso"
    summary = "MIG with a slice per job and the least mean slowdown (MISO)"

    def decide(self, observation: Observation) -> Decision:
        """One slice per job until a job arrives or ends."""
        board = observation.board
        late = waiting(observation)
        wishes = [
            inference_wish(view.service, board, board.compute_slices)
            for view in observation.tenants
        ]
        serving = list(zip(observation.tenants, wishes, strict=True))
        wishes += [retraining_wish(view.name, view.service.training_sizes(board)) for view in late]
        slowdowns = [_inference_slowdowns(observation, *shares) for shares in serving]
        slowdowns += [_retraining_slowdowns(observation, view) for view in late]

        def worth(chosen: tuple[Multiset, ...]) -> Worth:
            pairs = zip(slowdowns, chosen, strict=True)
            held = [slowdown[sizes] for slowdown, sizes in pairs if sizes]
            return len(held), -sum(held) / len(held), sum(map(sum, chosen))

        return Decision((best_allocation(observation, wishes, worth),))


def _inference_slowdowns(observation: Observation, view: TenantView, wish: Wish) -> _Slowdowns:
    rps = view.service.capabilities_rps(observation.board)
    answered = _answered_of(observation, view)
    able = {sizes: answered(sum(rps[size] for size in sizes)) for sizes in wish.choices}
    return {sizes: max(able.values()) / rate for sizes, rate in able.items()}


def _answered_of(observation: Observation, view: TenantView) -> Callable[[float], float]:
    """A function from requests per second to the answered requests of the last window."""
    recent = last_window(observation, view)
    if not recent.any():
        return lambda rps: rps
    return lambda rps: float(np.minimum(recent, rps * observation.slot_s).sum())


def _retraining_slowdowns(observation: Observation, view: TenantView) -> _Slowdowns:
    state, board = view.retraining, observation.board
    assert state is not None, "only tenants with something to retrain are asked"
    whole_s = state.seconds.at(board.sms)
    return {(gpcs,): state.seconds.at(board.sms_of(gpcs)) / whole_s for gpcs in board.sizes}


POLICIES = (Miso(),)
