"""Two traces on one board in windows far apart: scenarios of one window, spread over the traces.

Bursts are rare, so a few windows in a row show luck. What replanning brings is measured on these,
by the experiment `replanning` and by benchmarks/replanning.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.comparison import SIDE_BY_SIDE, Lead
from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome, Tally
from migrator.core.profiles import profile
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.core.service import Service
from migrator.core.trace import Trace
from migrator.simulate.compare import Job
from migrator.workload.arrivals import HISTORY_S
from migrator.workload.drifts import drifts
from migrator.workload.load import highest_rps
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import generate
from migrator.workload.traces.kinds import KINDS
from migrator.workload.traces.real import real_file
from migrator.workload.workloads import GPU, SLO_MS, WINDOW_S

MODELS = ("resnet-50", "vit-b-16")
DATASET = "nc-cifar-10"
LOAD = 0.8
"""The part of the board that inference alone keeps busy, over the whole length of the traces."""

Pair = tuple[str, str]
"""Kinds of arrivals: of the first model and of the second."""


def pair_name(pair: Pair) -> str:
    """Both kinds, as people read them."""
    return " + ".join(pair)


@dataclass(frozen=True)
class WindowApart:
    """Window `number` of `of` that are spread evenly over a pair of traces."""

    pair: Pair
    number: int
    of: int
    data: Path | None = None
    """A folder with real traces; what it lacks, or everything without it, is generated."""
    load: float = LOAD
    retrain: bool = False

    @property
    def name(self) -> str:
        """What the scenario is called."""
        return f"{pair_name(self.pair)}, window {self.number + 1} of {self.of}"

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """The scenario; more than one window begin there."""
        count = windows or 1
        tenants = tuple(
            self._tenant(model, kind, count, seed or 0)
            for model, kind in zip(MODELS, self.pair, strict=True)
        )
        shape = (board(GPU), float(WINDOW_S), 1.0, count, tenants)
        return Scenario(self.name, *shape, "migrator", "last-mean", seed or 0, prepared=True)

    def _tenant(self, model: str, kind: str, windows: int, seed: int) -> ServedTenant:
        known = profile(model, GPU)
        service = Service(model, known, SLO_MS / 1e3, 1)
        trace = arrivals(kind, self.data, seed)
        mean_rps = self.load / len(MODELS) * highest_rps(service, board(GPU))
        offset_s = offset(trace, self.number, self.of, windows)
        drift = self._drifts(drifts(DATASET, known)) if self.retrain else ()
        return ServedTenant(service, trace.scaled(mean_rps / trace.mean_rps), offset_s, drift)

    def _drifts(self, known: Sequence[Drift]) -> tuple[Drift, ...]:
        """The data set's windows in turn, so that each is met."""
        first = self.number % len(known)
        return (*known[first:], *known[:first])


def offset(trace: Trace, number: int, of: int, windows: int = 1) -> int:
    """Where window `number` begins: the first after some history, the last at the trace's end."""
    last = trace.seconds - windows * WINDOW_S
    if last < HISTORY_S:
        raise InputError(
            f"{trace.name}: its {trace.seconds} s have no room for {windows} windows of "
            f"{WINDOW_S} s after {HISTORY_S} s of history; give a longer trace"
        )
    return HISTORY_S + number * (last - HISTORY_S) // max(1, of - 1)


@lru_cache(maxsize=8)
def arrivals(kind: str, data: Path | None, seed: int) -> Trace:
    """The real trace where `data` has it, else a generated one as long, at their own rates."""
    found = None if data is None else real_file(kind, data)
    if found is None:
        measured = KINDS[kind].measured
        return generate(kind, mean_rps=measured.mean_rps, seconds=measured.seconds, seed=seed)
    return load_trace(found)


def generated_kinds(pairs: Iterable[Pair], data: Path | None) -> tuple[str, ...]:
    """Kinds of these pairs that are generated because `data` does not have them."""
    kinds = dict.fromkeys(kind for pair in pairs for kind in pair)
    return tuple(each for each in kinds if data is None or real_file(each, data) is None)


def jobs_apart(sources: Iterable[WindowApart], seeds: Iterable[int] = (0,)) -> tuple[Job, ...]:
    """Every window under window plan, replanned and oracle, and every seed."""
    given = tuple(seeds)
    return tuple(
        Job(source, policy, seed=seed, windows=1)
        for source in sources
        for policy in SIDE_BY_SIDE
        for seed in given
    )


def lead_of(name: str, outcomes: Iterable[RunOutcome]) -> Lead:
    """The three side by side over all windows: sums, so that busy windows count more."""
    sums = dict.fromkeys(SIDE_BY_SIDE, Tally())
    for run in outcomes:
        sums[run.policy] += run.tally
    return Lead(name, *(sums[policy].goodput_share for policy in SIDE_BY_SIDE))
