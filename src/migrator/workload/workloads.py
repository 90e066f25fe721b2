"""The paper's 16 workloads from one table: two tenants each, by model, data set and trace.

Beside them, workloads of models with published weights, which regain more by a retraining.

The paper does not state the scale of its traces. Here each tenant's mean rate is half of `load`
times the capacity of the whole board for it. Inference alone then keeps the fraction `load` of the
board busy on average, and retraining competes for the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.errors import InputError
from migrator.core.profiles import Service, profile
from migrator.core.registry import pick
from migrator.core.scenario import Scenario
from migrator.workload.arrivals import HISTORY_S, cached_trace
from migrator.workload.capacity import highest_rps
from migrator.workload.datasets import datasets
from migrator.workload.entries import VERSION
from migrator.workload.file import parse_scenario
from migrator.workload.traces.generator import KINDS, real_file

GPU = "H200-141GB"
WINDOW_S = 200
SLO_MS = 100
LOAD = 0.6
TRACES = ("alibaba", "azure")
"""Kinds of the generator for the first and the second tenant, each with its real trace."""

_BERT, _VIT, _CONVNEXT = "bert-base", "vit-b-16", "convnext-b"
_INCEPTION, _RESNET, _MOBILENET = "inception-v3", "resnet-50", "mobilenet-v2"
_CIFAR, _CORE50 = "nc-cifar-10", "nc-core50"

_PAIRS = (
    (_BERT, _VIT),
    (_BERT, _CONVNEXT),
    (_VIT, _CONVNEXT),
    (_BERT, _INCEPTION),
    (_VIT, _RESNET),
    (_CONVNEXT, _MOBILENET),
    (_INCEPTION, _RESNET),
    (_RESNET, _MOBILENET),
)
"""Models of W1 to W8, and of W9 to W16 with the other vision data set."""
_LITE0, _LITE1, _LITE2 = (f"efficientnet-lite{number}" for number in range(3))
_PUBLISHED = (
    ((_LITE0, _LITE2), (_CIFAR, _CIFAR)),
    ((_LITE0, _LITE1), (_CORE50, _CORE50)),
    ((_LITE1, _LITE2), (_CIFAR, _CORE50)),
    ((_LITE2, _LITE1), (_CORE50, _CORE50)),
)
"""Models and data sets of P1 to P4, with ImageNet's weights."""


@dataclass(frozen=True)
class Workload:
    """A row of a table."""

    name: str
    models: tuple[str, str]
    datasets: tuple[str, str]

    @property
    def windows(self) -> int:
        """The number of windows in which the data of both tenants drifts."""
        return min(datasets()[dataset].windows for dataset in self.datasets)

    @property
    def file_name(self) -> str:
        return f"{self.name[0].lower()}{int(self.name[1:]):02}.yaml"


def workloads() -> dict[str, Workload]:
    """W1 to W16 by name."""
    rows = [(pair, vision) for vision in (_CIFAR, _CORE50) for pair in _PAIRS]
    return {
        name: Workload(name, pair, (_dataset(pair[0], vision), _dataset(pair[1], vision)))
        for name, (pair, vision) in ((f"W{n}", row) for n, row in enumerate(rows, start=1))
    }


def published_workloads() -> dict[str, Workload]:
    """P1 to P4 by name: models with published weights."""
    return {
        f"P{number}": Workload(f"P{number}", *row) for number, row in enumerate(_PUBLISHED, start=1)
    }


def all_workloads() -> dict[str, Workload]:
    """The paper's workloads and those of published weights."""
    return workloads() | published_workloads()


def workload(
    name: str, *, batch: int = 1, data: Path | None = None, load: float = LOAD, seed: int = 0
) -> Scenario:
    """The workload as a scenario, on the real traces in the folder `data` if it is given."""
    row = _known(name)
    means = _means_rps(row, batch, load)
    arrival_entries = [
        {"generator": kind, "mean_rps": mean}
        if data is None
        else _real(kind, mean, data, row.windows)
        for kind, mean in zip(TRACES, means, strict=True)
    ]
    entry = {
        "version": VERSION,
        "gpu": GPU,
        "window_s": WINDOW_S,
        "windows": row.windows,
        "seed": seed,
        "tenants": [
            {
                "model": model,
                "slo_ms": SLO_MS,
                "batch": batch,
                "arrivals": arrivals,
                "retraining": {"dataset": dataset},
            }
            for model, arrivals, dataset in zip(
                row.models, arrival_entries, row.datasets, strict=True
            )
        ],
    }
    return parse_scenario(entry, folder=Path(), name=row.name)


def workload_yaml(name: str) -> str:
    """The workload as a scenario file, with generated arrivals."""
    row = _known(name)
    means = _means_rps(row, 1, LOAD)
    source = "of the paper's evaluation" if row.name in workloads() else "with published weights"
    head = f"""\
# {row.name} {source}: {" and ".join(row.models)}.
# Written by examples/make_workloads.py; a change there is a change for all of them.
# Each tenant's mean rate is {LOAD / 2:g} of what the whole board could answer for it.
version: {VERSION}
name: {row.name}
gpu: {GPU}
window_s: {WINDOW_S}
windows: {row.windows}
tenants:
"""
    return head + "".join(
        f"""\
  - model: {model}
    slo_ms: {SLO_MS}
    batch: 1
    arrivals: {{generator: {kind}, mean_rps: {mean:g}}}
    retraining: {{dataset: {dataset}}}
"""
        for model, kind, mean, dataset in zip(row.models, TRACES, means, row.datasets, strict=True)
    )


def _dataset(model: str, vision: str) -> str:
    return "nc-20-newsgroups" if model == _BERT else vision


def _known(name: str) -> Workload:
    written = re.fullmatch(r"([wWpP])0*([0-9]+)", name)
    return pick(
        "workload", f"{written[1].upper()}{written[2]}" if written else name, all_workloads()
    )


def _means_rps(row: Workload, batch: int, load: float) -> list[float]:
    gpu = board(GPU)
    served = [Service(model, profile(model, GPU), SLO_MS / 1e3, batch) for model in row.models]
    return [round(load / 2 * highest_rps(service, gpu), 1) for service in served]


def _real(kind: str, mean_rps: float, data: Path, windows: int) -> dict[str, object]:
    """The real trace, scaled so that the run has the requested mean."""
    path = _file(kind, data)
    run = cached_trace(path).counts[HISTORY_S : HISTORY_S + windows * WINDOW_S]
    if not run.any():
        raise InputError(f"{path}: nothing comes in {windows} windows; give the whole trace")
    return {
        "trace": str(path.absolute()),
        "scale": mean_rps / float(run.mean()),
        "offset_s": HISTORY_S,
    }


def _file(kind: str, data: Path) -> Path:
    path = real_file(kind, data)
    if path is None:
        raise InputError(
            f"{data}: there is no {KINDS[kind].file_name} in it, nor in its traces/; "
            "fetch it or leave the folder out"
        )
    return path
