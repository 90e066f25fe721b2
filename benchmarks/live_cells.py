"""The grid of live settings: tenants, traces, loads and lengths of retrainings, as scenarios.

`benchmarks/live_grid.py` simulates the cells and runs them live. All of this was fixed before any
cell was run; docs/results/live-grid.md describes it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from migrator.core.catalogue import board as board_named
from migrator.core.profiles import profile as packaged_profile
from migrator.workload.datasets import drifts
from migrator.workload.profile_file import read_profile

PROFILE = Path(__file__).parent.parent / "docs" / "results" / "h200-live-comparison-profile.json"
"""Measured on the H200 of the live comparison."""
BOARD = "H200-141GB-MPS"
WINDOW_S = 60
WINDOWS = 4
HISTORY_S = 2400
"""40 windows, which `auto` needs to choose a forecaster."""
TENANTS = {
    "two": (1.0, 1.0),
    "uneven": (0.9 / 0.8, 0.3 / 0.8),
    "three": (1.0,) * 3,
    "five": (1.0,) * 5,
}
"""Each tenant's load over the cell's: at 0.8 the uneven ones have 0.9 and 0.3 of their parts."""
TRACES = {
    "steady": ("alibaba",),
    "bursty": ("azure-bursty",),
    "mixed": ("alibaba", "azure-bursty", "azure", "twitter", "batch"),
}
"""Generators, given to the tenants in turn."""
LOADS = (0.5, 0.8, 1.1)
"""Rate in seconds with requests over what the tenant's even part of the board answers."""
RETRAININGS = (15, 30, 60)
"""Percent of a window that a retraining takes on a third of the board."""
ORDER = 34
"""Seed of the order in which cells are run, so that any number of them is a random part."""


@dataclass(frozen=True)
class Model:
    """A model with its data, as one tenant in two has it."""

    name: str
    model: str
    packaged: str
    """The model whose measured accuracies are simulated."""
    benchmark: str
    input_pixels: int
    replay: int
    epochs: tuple[int, ...]
    """For each of RETRAININGS: in the mean of four windows a live retraining takes that long by the
    parts of retrainings that were measured with 8 epochs (h200-live-comparison.json)."""


PICTURES = Model(
    name="pictures",
    model="benchmarks.gpu.live_models:ManyViewsLite2",
    packaged="efficientnet-lite2",
    benchmark="nc-cifar-10",
    input_pixels=32,
    replay=100,
    epochs=(2, 5, 11),
)
OBJECTS = Model(
    name="objects",
    model="benchmarks.gpu.live_models:ManyViewsLite1",
    packaged="efficientnet-lite1",
    benchmark="nc-core50",
    input_pixels=64,
    replay=50,
    epochs=(4, 9, 20),
)


@dataclass(frozen=True)
class Cell:
    """One setting of the grid."""

    tenants: str
    traces: str
    load: float
    retraining: int

    @property
    def name(self) -> str:
        """Of its scenario, and of its rows."""
        return f"{self.tenants}-{self.traces}-{self.load:g}-{self.retraining}"


def cells() -> list[Cell]:
    """All cells, in the order in which they are run."""
    every = [Cell(*values) for values in product(TENANTS, TRACES, LOADS, RETRAININGS)]
    random.Random(ORDER).shuffle(every)
    return every


def cell_document(cell: Cell) -> dict[str, Any]:
    """The cell as a scenario for `benchmarks/gpu/live.py`, with loads in place of rates."""
    loads = [cell.load * relative for relative in TENANTS[cell.tenants]]
    part = RETRAININGS.index(cell.retraining)
    models = [(PICTURES, OBJECTS)[number % 2] for number in range(len(loads))]
    epochs = [model.epochs[part] for model in models]
    tenants = _tenants(models, TRACES[cell.traces], loads, epochs, cell.retraining / 100)
    return _document(cell.name, WINDOWS, list(tenants))


def configurations(epochs: int) -> list[dict[str, Any]]:
    """Ways to retrain: all epochs, about half and a quarter of them, and half of them for the head
    alone; of a short retraining only those that differ."""
    half = max(1, epochs // 2)
    lengths = {"all": epochs, "half": half, "quarter": max(1, epochs // 4)}
    ways: list[dict[str, Any]] = []
    for name, length in lengths.items():
        if length not in [way["epochs"] for way in ways]:
            ways.append({"name": name, "epochs": length})
    return [*ways, {"name": "head", "epochs": half, "layers": "head"}]


def long_document() -> dict[str, Any]:
    """Three tenants for ten windows. CORe50 brings new classes in nine windows, CIFAR-10 in four;
    retrainings grow with the classes, hence fewer epochs."""
    things = replace(PICTURES, name="things", benchmark="nc-core50", input_pixels=64, replay=50)
    models = (things, OBJECTS, things)
    tenants = _tenants(models, TRACES["mixed"], (0.8,) * 3, (4,) * 3, 0.3)
    return _document("three-ten-windows", 10, list(tenants))


def documents() -> dict[str, dict[str, Any]]:
    """Every scenario by name: the cells in their order, then the long one."""
    found = [*map(cell_document, cells()), long_document()]
    return {document["name"]: document for document in found}


def _document(name: str, windows: int, tenants: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": 1,
        "name": name,
        "gpu": BOARD,
        "window_s": WINDOW_S,
        "slot_s": 1,
        "windows": windows,
        "forecaster": "auto",
        "live": {"host": "127.0.0.1", "port": 0, "queue_limit": 512},
        "tenants": tenants,
    }


def _tenants(
    models: Sequence[Model],
    traces: Sequence[str],
    loads: Sequence[float],
    epochs: Sequence[int],
    part: float,
) -> Iterator[dict[str, Any]]:
    """`part`: of a window, for a retraining on a third of the board in simulations."""
    for number, (model, load) in enumerate(zip(models, loads, strict=True)):
        yield {
            "name": f"{model.name}-{number}",
            "model": model.model,
            "slo_ms": 200,
            "batch": 4,
            "arrivals": {
                "generator": traces[number % len(traces)],
                "load": round(load, 4),
                "offset_s": HISTORY_S,
            },
            "retraining": {"windows": list(_drifts(model, part))},
            "live": {
                "benchmark": model.benchmark,
                "input_pixels": model.input_pixels,
                "seed": number,
                "epochs": epochs[number],
                "replay": model.replay,
                "held_out": 0.2,
            },
        }


def _drifts(model: Model, part: float) -> Iterator[dict[str, Any]]:
    """Measured accuracies, and the length of the cell on the model's measured training curve."""
    board = board_named(BOARD)
    curve = read_profile(PROFILE, model.model).training_s(1)
    scale = part * WINDOW_S / curve.at(board.sms / 3)
    seconds = {gpcs: round(scale * curve.at(board.sms_of(gpcs)), 2) for gpcs in board.sizes}
    for drift in drifts(model.benchmark, packaged_profile(model.packaged, BOARD)):
        yield {
            "accuracy_pre": drift.accuracy_pre,
            "accuracy_post": drift.accuracy_post,
            "accuracy_estimated": drift.accuracy_expected,
            "seconds": seconds,
        }
