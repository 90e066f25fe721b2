"""The cells of the map: conditions of a run, and the scenario of each.

Not every combination is run: load and gain make a grid, everything else is varied one at a time
around a base cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.profiles import Service, profile
from migrator.core.scenario import Drift, Scenario, ServedTenant
from migrator.reproduce.traces import arrivals, at_rate, offset
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import datasets, drifts
from migrator.workload.workloads import GPU, SLO_MS, WINDOW_S, workloads

_PUBLISHED_MODELS = ("efficientnet-lite0", "efficientnet-lite2")
_DATASET = "nc-cifar-10"
_LEVEL, _DOWN, _UP = 0.90, 0.325, 0.30
"""Accuracy before the first window, and the changes that the paper reports (of BERT and ViT)."""
TRACES: dict[str, tuple[str, ...]] = {
    "Alibaba + Azure": ("alibaba", "azure"),
    "steady": ("alibaba-steady",),
    "LLM conversations": ("azure",),
    "tweets": ("twitter",),
    "batch tasks": ("batch",),
    "bursty code": ("azure-bursty",),
}
"""Name -> kinds of arrivals; tenants take them in turn, from different places of the trace. The
batch tasks are the Alibaba cluster trace."""
LOADS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
QUICK_LOADS = (0.4, 0.7, 1.0)
LENGTHS = (0.5, 1.0, 2.0, 4.0)
TENANTS = (2, 3, 4)
_PAIRS = tuple(workloads().values())[:8]
_MODELS = tuple(dict.fromkeys(model for pair in _PAIRS for model in pair.models))


class Gain(StrEnum):
    """What retraining gains."""

    PACKAGED = "packaged"
    PUBLISHED = "published weights"
    PAPER = "the paper's"

    @property
    def about(self) -> str:
        """Where the accuracies come from."""
        return _ABOUT[self]


_ABOUT = {
    Gain.PACKAGED: "measured from random weights: 5 to 29 points a retraining",
    Gain.PUBLISHED: "measured from ImageNet's weights (EfficientNet-Lite0 and Lite2, NC-CIFAR-10): "
    "17 to 46 points a retraining",
    Gain.PAPER: "32.5 points down in every window and 30 up by its retraining, from an assumed "
    "level of 90%",
}


@dataclass(frozen=True)
class Cell:
    """Conditions of a run; the defaults are the base cell."""

    load: float = 0.8
    """Part of the board that inference alone would keep busy, over the run."""
    gain: Gain = Gain.PUBLISHED
    length: float = 1.0
    """Factor on the duration of every retraining."""
    traces: str = "Alibaba + Azure"
    tenants: int = 2
    prepared: bool = True

    @property
    def key(self) -> str:
        """A name that no other cell has."""
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))


BASE = Cell()


@dataclass(frozen=True)
class VariedCondition:
    """One condition varied, all others as in the base cell."""

    name: str
    cells: dict[str, Cell]
    """Value in words -> its cell."""


def grid(loads: Sequence[float]) -> tuple[tuple[Cell, ...], ...]:
    """Cells by gain and load."""
    return tuple(tuple(replace(BASE, gain=gain, load=load) for load in loads) for gain in Gain)


def axes() -> tuple[VariedCondition, ...]:
    """The conditions that are varied one at a time."""
    return (
        VariedCondition(
            "length of retraining",
            {f"retraining x {length:g}": replace(BASE, length=length) for length in LENGTHS},
        ),
        VariedCondition("traces", {trace: replace(BASE, traces=trace) for trace in TRACES}),
        VariedCondition(
            "tenants", {f"{tenant} tenants": replace(BASE, tenants=tenant) for tenant in TENANTS}
        ),
        VariedCondition(
            "workers", {"prepared workers": BASE, "cold workers": replace(BASE, prepared=False)}
        ),
    )


@dataclass(frozen=True)
class CellSource:
    """Run `number` of `of` of a cell: one of the paper's pairs of models at one place of the
    traces."""

    cell: Cell
    number: int
    of: int
    data: Path | None = None
    """Folder with real traces; missing traces are generated, all of them if it is None."""
    spread_s: int | None = None
    """How late the copies of a trace are that are added up for the load; None: multiplied."""

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario."""
        count = windows or 1
        tenants = tuple(self._tenants(count))
        shape = (board(GPU), float(WINDOW_S), 1.0, count, tenants)
        name = f"{self.cell.key}, run {self.number + 1} of {self.of}"
        return Scenario(
            name, *shape, "migrator", "last-mean", seed or 0, prepared=self.cell.prepared
        )

    def _tenants(self, windows: int) -> Iterator[ServedTenant]:
        cell, kinds = self.cell, TRACES[self.cell.traces]
        for place, model in enumerate(self._models()):
            measured_profile = profile(model, GPU)
            service = Service(model, measured_profile, SLO_MS / 1e3, 1)
            trace = arrivals(kinds[place % len(kinds)], self.data, 0)
            # tenants with the same trace begin at different places of it
            number = (self.number + place * max(1, self.of // cell.tenants)) % self.of
            begin = offset(trace, number, self.of, windows)
            wanted_rps = cell.load / cell.tenants * highest_rps(service, board(GPU))
            yield ServedTenant(
                service,
                at_rate(trace, wanted_rps, begin, windows, self.spread_s, place),
                begin,
                self._drifts(_drifts(cell, model, place)),
            )

    def _models(self) -> tuple[str, ...]:
        """The pair's models; further tenants have the models that follow."""
        pair = _PAIRS[self.number % len(_PAIRS)].models
        at = _MODELS.index(pair[-1])
        others = [model for model in (*_MODELS[at:], *_MODELS[:at]) if model not in pair]
        return (*pair, *others)[: self.cell.tenants]

    def _drifts(self, windows: Sequence[Drift]) -> tuple[Drift, ...]:
        """The windows of the data set, from another one on in every run."""
        first = self.number % len(windows)
        return (*windows[first:], *windows[:first])


def _drifts(cell: Cell, model: str, place: int) -> tuple[Drift, ...]:
    """The model's windows with the cell's gain and length."""
    dataset = "nc-20-newsgroups" if model == "bert-base" else _DATASET
    packaged = drifts(dataset, profile(model, GPU))
    return tuple(
        replace(drift, seconds=drift.seconds.scaled(cell.length)) if drift.seconds else drift
        for drift in with_gain(packaged, cell.gain, place)
    )


def with_gain(packaged: Sequence[Drift], gain: Gain, place: int) -> Iterator[Drift]:
    """The same retrainings of the tenant at a place, with another gain.

    Only as many windows as the gain is known for.
    """
    if gain is Gain.PACKAGED:
        yield from packaged
        return
    if gain is Gain.PAPER:
        for window, drift in enumerate(packaged[:4]):
            before = _LEVEL - window * (_DOWN - _UP)
            yield replace(
                drift,
                accuracy_pre=before - _DOWN,
                accuracy_post=before - _DOWN + _UP,
                accuracy_estimated=None,
            )
        return
    accuracies = datasets()[_DATASET].measured[_PUBLISHED_MODELS[place % len(_PUBLISHED_MODELS)]]
    windows = zip(packaged, accuracies.pre, accuracies.post, accuracies.estimated, strict=False)
    for drift, pre, post, estimated in windows:
        yield Drift(pre, post, drift.seconds, estimated)
