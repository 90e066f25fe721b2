"""Windows spread evenly over pairs of traces: the runs of benchmarks/replanning.py.

Bursts are rare, so the windows are not in a row: every one is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.traces import Pair, arrivals
from migrator.core.catalogue import board
from migrator.core.comparison import SIDE_BY_SIDE
from migrator.core.profiles import Service, profile
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.reproduce.sources import offset
from migrator.simulation.compare import SimulationJob
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import drifts
from migrator.workload.workloads import GPU, SLO_MS, WINDOW_S

MODELS = ("resnet-50", "vit-b-16")
DATASET = "nc-cifar-10"
LOAD = 0.8
"""Share of the board that inference alone uses, over the whole length of the traces."""


def pair_name(pair: Pair) -> str:
    """Both kinds, for display."""
    return " + ".join(pair)


@dataclass(frozen=True)
class SpreadWindow:
    """Window `number` of `of` windows that are spread evenly over a pair of traces."""

    pair: Pair
    number: int
    of: int
    data: Path | None = None
    """Folder with real traces; missing traces are generated, all of them if it is None."""
    load: float = LOAD
    retrain: bool = False

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"{pair_name(self.pair)}, window {self.number + 1} of {self.of}"

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario; several windows start at this one."""
        count = windows or 1
        tenants = tuple(
            self._tenant(model, kind, count, seed or 0)
            for model, kind in zip(MODELS, self.pair, strict=True)
        )
        shape = (board(GPU), float(WINDOW_S), 1.0, count, tenants)
        return Scenario(self.name, *shape, "migrator", "last-mean", seed or 0, prepared=True)

    def _tenant(self, model: str, kind: str, windows: int, seed: int) -> ServedTenant:
        measured_profile = profile(model, GPU)
        service = Service(model, measured_profile, SLO_MS / 1e3, 1)
        trace = arrivals(kind, self.data, seed)
        mean_rps = self.load / len(MODELS) * highest_rps(service, board(GPU))
        offset_s = offset(trace, self.number, self.of, windows)
        drift = self._drifts(drifts(DATASET, measured_profile)) if self.retrain else ()
        return ServedTenant(service, trace.scaled(mean_rps / trace.mean_rps), offset_s, drift)

    def _drifts(self, drifts: Sequence[Drift]) -> tuple[Drift, ...]:
        """The data set's windows, rotated so that the runs cover all of them."""
        first = self.number % len(drifts)
        return (*drifts[first:], *drifts[:first])


def spread_jobs(
    sources: Iterable[SpreadWindow],
    seeds: Iterable[int] = (0,),
    policies: Sequence[str] = SIDE_BY_SIDE,
) -> tuple[SimulationJob, ...]:
    """Jobs for every window and seed under each policy: window plan, replanned and oracle."""
    several = tuple(seeds)
    return tuple(
        SimulationJob(source, policy, seed=seed, windows=1)
        for source in sources
        for policy in policies
        for seed in several
    )
