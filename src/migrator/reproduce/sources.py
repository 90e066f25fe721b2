"""Where the experiments' scenarios come from: values that can be compared, hashed and pickled.

The motivation's scenarios are W7 (Inception-v3 and ResNet-50 on NC-CIFAR-10) recut: other
tenants, other traces, other loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from migrator.core.catalogue import Board
from migrator.core.scenario import Scenario, ServedTenant
from migrator.workload.load import highest_rps
from migrator.workload.workloads import LOAD, TRACES, workload

INCEPTION, RESNET = "inception-v3", "resnet-50"
ALIBABA, AZURE = TRACES
_BOTH = "W7"
"""The workload of both models of the motivation."""


class Supposing(StrEnum):
    """What is not so, to see what depends on it."""

    SMALL_BOARD = "MPS on the 112 SMs of seven 1g"
    NO_INTERFERENCE = "serving without interference under MPS"
    PRETRAINED = "accuracies as of pre-trained weights"


@dataclass(frozen=True)
class WorkloadSource:
    """One of the paper's workloads, run in its way."""

    name: str
    data: Path | None = None
    batch: int = 1
    slot_s: float = 1.0
    prepared: bool = True
    load: float = LOAD
    supposing: Supposing | None = None

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """The scenario."""
        made = workload(self.name, batch=self.batch, data=self.data, load=self.load, seed=seed or 0)
        made = replace(
            made, slot_s=self.slot_s, prepared=self.prepared, windows=windows or made.windows
        )
        return made if self.supposing is None else _supposed(made, self.supposing)


@dataclass(frozen=True)
class Arriving:
    """A model of the motivation, the trace it is asked by, and how much."""

    model: str
    trace: str
    load: float
    """Mean rate over what the whole board could answer for it, or for `load_of`."""
    load_of: str | None = None


@dataclass(frozen=True)
class MotivationSource:
    """Inception-v3, ResNet-50 or both, each on a trace and at a load of its own."""

    name: str
    tenants: tuple[Arriving, ...]
    data: Path | None = None

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """The scenario."""
        both = workload(_BOTH, data=self.data, seed=seed or 0)
        tenants = tuple(_recut(both, each) for each in self.tenants)
        return replace(both, name=self.name, tenants=tenants, windows=windows or both.windows)


def _recut(both: Scenario, arriving: Arriving) -> ServedTenant:
    """The model's tenant of W7 with the arrivals asked for."""
    tenants = {each.name: each for each in both.tenants}
    measure = tenants[arriving.load_of or arriving.model]
    asked = both.tenants[TRACES.index(arriving.trace)]
    rate_rps = arriving.load * highest_rps(measure.service, both.board)
    was_rps = LOAD / 2 * highest_rps(asked.service, both.board)
    trace = asked.trace.scaled(rate_rps / was_rps)
    return replace(tenants[arriving.model], trace=trace, offset_s=asked.offset_s)


def _supposed(scenario: Scenario, supposing: Supposing) -> Scenario:
    if supposing is Supposing.SMALL_BOARD:
        return replace(scenario, board=_small(scenario.board))
    changed = _undisturbed if supposing is Supposing.NO_INTERFERENCE else _pretrained
    return replace(scenario, tenants=tuple(map(changed, scenario.tenants)))


def _small(board: Board) -> Board:
    """The board whose whole has no more SMs than all of its smallest instances together."""
    sms = board.sms_of(1) * board.compute_slices
    profiles = (replace(e, sms=sms) if e.gpcs == board.sizes[-1] else e for e in board.profiles)
    return replace(board, profiles=tuple(profiles))


def _undisturbed(tenant: ServedTenant) -> ServedTenant:
    profile = replace(tenant.service.profile, interference=0.0)
    return replace(tenant, service=replace(tenant.service, profile=profile))


_ERROR, _GROWS = 0.03, 0.85
"""Assumed of a model with published weights: its error on the first classes, and the power of the
number of classes with which it grows."""


def _pretrained(tenant: ServedTenant) -> ServedTenant:
    """With the levels that retraining reaches from published weights, instead of random ones."""
    after = [1 - _ERROR * (window + 1) ** _GROWS for window in range(len(tenant.drifts) + 1)]
    drifts = tuple(
        replace(
            each,
            # every window brings as many classes as there were first; it knows nothing of them
            accuracy_pre=after[window] * (window + 1) / (window + 2),
            accuracy_post=after[window + 1],
            accuracy_estimated=None,
        )
        for window, each in enumerate(tenant.drifts)
    )
    return replace(tenant, drifts=drifts)
