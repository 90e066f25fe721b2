"""The paper's third motivation: how two retrainings best share the GPCs that inference leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from migrator.core.catalogue import board
from migrator.core.outcome import WindowOutcome
from migrator.report.page import Axis, HeatMap, Note, Section, Table
from migrator.reproduce.evaluation import AZURE, INCEPTION, RESNET, Arriving, MotivationSource
from migrator.reproduce.experiment import (
    DIFFERS,
    PAPER,
    Figures,
    Outcomes,
    Setting,
    listed,
    mean,
    points,
)
from migrator.reproduce.variants import fits, serving_and_training
from migrator.simulate.compare import Job
from migrator.workload.workloads import GPU

LOAD = 0.1
"""Load as a share of the whole board: 0.7 of the one GPC that each model serves on."""
SERVING_GPCS, TRAINING_GPCS = 1, 5
READINGS = {
    "the same requests": INCEPTION,
    "the same load": None,
}
"""Reading of "one trace for both" -> the model whose capability sets ResNet-50's rate."""

_Grid = dict[str, list[float]]
"""Split -> accuracy per window."""


@cache
def splits() -> dict[str, tuple[int, int]]:
    """Split -> GPCs for retraining Inception-v3 and ResNet-50, if a legal layout exists."""
    pairs = [(first, TRAINING_GPCS - first) for first in range(1, TRAINING_GPCS)]
    served = (SERVING_GPCS, SERVING_GPCS)
    return {f"{a}-{b}": (a, b) for a, b in pairs if fits(board(GPU), (*served, a, b))}


@dataclass(frozen=True)
class RetrainingSplit:
    """Inception-v3 and ResNet-50 retrain side by side on fixed instances."""

    name: str = "retraining-split"
    place: int = 3
    title: str = "Two models: one retraining against the other"

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per reading, split and seed."""
        return tuple(
            job for like in READINGS.values() for s in splits() for job in _jobs(setting, like, s)
        )

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """Accuracy by split and window, the best highlighted, in both readings."""
        grids = {r: _grid(setting, outcomes, like) for r, like in READINGS.items()}
        paragraphs = (
            "How should two retrainings share the 5 GPCs that two inference tasks on 1 GPC each "
            "leave? Inception-v3 and ResNet-50 are asked by the same Azure trace; every split is "
            "held through all windows of NC-CIFAR-10.",
            "One trace for both can mean two things. The same requests: both get as many, "
            f"{LOAD:g} of what the board could answer for Inception-v3. The same load: the same "
            "pattern, at that part of each model's own capability, so ResNet-50 gets "
            "about twice as many. Accuracy is that of both models' requests together.",
        )
        return Section(
            self.title,
            self.name,
            paragraphs,
            (
                _heat_map(grids["the same requests"]),
                *(_table(reading, grid) for reading, grid in grids.items()),
                Note(PAPER, _reported()),
                Note(DIFFERS, _differs(setting, outcomes, grids)),
            ),
        )

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Accuracy by reading, split and window."""
        return {
            reading.replace(" ", "_"): {
                "accuracy": (grid := _grid(setting, outcomes, like)),
                "best": _best(grid),
            }
            for reading, like in READINGS.items()
        }


def _jobs(setting: Setting, like: str | None, split: str) -> list[Job]:
    first, second = splits()[split]
    source = MotivationSource(
        "two retrainings",
        (Arriving(INCEPTION, AZURE, LOAD), Arriving(RESNET, AZURE, LOAD, like)),
        setting.data,
    )
    held = serving_and_training(
        {INCEPTION: SERVING_GPCS, RESNET: SERVING_GPCS}, {INCEPTION: first, RESNET: second}
    )
    return [Job(source, held, seed=seed, windows=setting.windows(4)) for seed in setting.seeds]


def _windows(
    setting: Setting, outcomes: Outcomes, like: str | None, split: str
) -> list[tuple[WindowOutcome, ...]]:
    """The outcomes of every window, over the seeds."""
    runs = [outcomes[job].windows for job in _jobs(setting, like, split)]
    return list(zip(*runs, strict=True))


def _grid(setting: Setting, outcomes: Outcomes, like: str | None) -> _Grid:
    return {
        split: [
            mean([each.tally.accuracy for each in same])
            for same in _windows(setting, outcomes, like, split)
        ]
        for split in splits()
    }


def _best(grid: _Grid) -> list[str]:
    windows = range(len(next(iter(grid.values()))))
    return [max(grid, key=lambda split: grid[split][window]) for window in windows]


def _columns(grid: _Grid) -> tuple[str, ...]:
    return tuple(f"window {n}" for n in range(1, len(next(iter(grid.values()))) + 1))


def _heat_map(grid: _Grid) -> HeatMap:
    return HeatMap(
        title="Accuracy of both models by split and window, the same requests",
        columns=tuple(str(n) for n in range(1, len(_best(grid)) + 1)),
        rows=tuple(grid),
        values=tuple(tuple(each) for each in grid.values()),
        x=Axis("window"),
        y=Axis("retraining GPCs"),
        z=Axis("accuracy", share=True),
    )


def _table(reading: str, grid: _Grid) -> Table:
    columns, order = _columns(grid), list(grid)
    return Table(
        caption=f"Accuracy (%) by retraining split, Inception-v3 first, {reading}; best set apart",
        headers=("split", *columns, "mean"),
        rows=tuple(
            (split, *(f"{100 * each:.1f}" for each in (*values, mean(values))))
            for split, values in grid.items()
        ),
        numeric=frozenset(range(1, len(columns) + 2)),
        highlights=frozenset(
            (order.index(split), column) for column, split in enumerate(_best(grid), start=1)
        ),
    )


def _reported() -> tuple[str, ...]:
    return (
        "No single split has the highest accuracy in every window, because the accuracy that "
        "retraining gains varies between the models and from window to window.",
    )


def _told(reading: str, grid: _Grid) -> str:
    best = _best(grid)
    if len(set(best)) > 1:
        return f"With {reading} the best split changes: {listed(best)} in turn."
    others = {split: mean(values) for split, values in grid.items() if split != best[0]}
    second = max(others, key=lambda split: others[split])
    return (
        f"With {reading} {best[0]} is best in every window, on average "
        f"{points(mean(grid[best[0]]) - others[second])} points before {second}."
    )


def _differs(setting: Setting, outcomes: Outcomes, grids: dict[str, _Grid]) -> tuple[str, ...]:
    told = " ".join(_told(reading, grid) for reading, grid in grids.items())
    first = _windows(setting, outcomes, INCEPTION, next(iter(splits())))[0][0]
    inception = next(each for each in first.tenants if each.tenant == INCEPTION)
    late = (
        " On 1 GPC Inception-v3's retraining outlasts the window, so that the old model serves "
        "through the first one."
        if inception.retrained_s is None
        else ""
    )
    return (
        told,
        "The accuracies per window are assumed ones, in which both models gain almost equally "
        "much by each retraining; so what decides here is how long each takes and how many "
        f"requests profit, which hardly changes between windows.{late} Whether measured "
        "accuracies bring the paper's variety back is not yet known.",
    )


EXPERIMENTS = (RetrainingSplit(),)
