"""The paper's third motivation: two retrainings share the GPCs that inference leaves."""

from __future__ import annotations

from functools import cache

from migrator.advise.static_layouts import fits
from migrator.core.catalogue import board
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    listed,
    mean,
    points,
    serving_and_training,
)
from migrator.reproduce.sources import AZURE, INCEPTION, RESNET, MotivationSource, TracedModel
from migrator.reproduce.split_grids import (
    MEASURES,
    Grid,
    best_per_window,
    grid_heat_map,
    grid_table,
    mean_values,
    outcomes_by_window,
)
from migrator.simulation.compare import SimulationJob
from migrator.workload.datasets import datasets
from migrator.workload.workloads import GPU

MODELS_LOAD = 0.1
"""Load as a share of the whole board: 0.7 of the one GPC that each model serves on."""
SERVING_GPCS, TRAINING_GPCS = 1, 5
READINGS = {"the same requests": INCEPTION, "the same load": None}
"""Reading of "one trace for both" -> the model whose capability sets ResNet-50's rate."""


@cache
def model_splits() -> dict[str, tuple[int, int]]:
    """Split -> GPCs for retraining Inception-v3 and ResNet-50, if a legal layout exists."""
    pairs = [(first, TRAINING_GPCS - first) for first in range(1, TRAINING_GPCS)]
    served = (SERVING_GPCS, SERVING_GPCS)
    return {f"{a}-{b}": (a, b) for a, b in pairs if fits(board(GPU), (*served, a, b))}


def _models_jobs(setting: Setting, like: str | None, split: str) -> list[SimulationJob]:
    first, second = model_splits()[split]
    tenants = (
        TracedModel(INCEPTION, AZURE, MODELS_LOAD),
        TracedModel(RESNET, AZURE, MODELS_LOAD, like),
    )
    source = MotivationSource("two retrainings", tenants, setting.data)
    layout = serving_and_training(
        {INCEPTION: SERVING_GPCS, RESNET: SERVING_GPCS}, {INCEPTION: first, RESNET: second}
    )
    return [
        SimulationJob(source, layout, seed=seed, windows=setting.windows(4))
        for seed in setting.seeds
    ]


def _models_grid(setting: Setting, outcomes: Outcomes, like: str | None) -> Grid:
    return {
        split: mean_values(
            outcomes_by_window(outcomes, _models_jobs(setting, like, split)), MEASURES["accuracy"]
        )
        for split in model_splits()
    }


def _models_findings(setting: Setting, outcomes: Outcomes) -> Findings:
    grids = {name: _models_grid(setting, outcomes, like) for name, like in READINGS.items()}
    return Findings(
        paragraphs=(
            "How should two retrainings share the 5 GPCs that two inference tasks on 1 GPC each "
            "leave? Inception-v3 and ResNet-50 are asked by the same Azure trace; every split is "
            "held through all windows of NC-CIFAR-10.",
            "One trace for both can mean two things. The same requests: both get as many, "
            f"{MODELS_LOAD:g} of what the board could answer for Inception-v3. The same load: the "
            "same pattern, at that part of each model's own capability, so ResNet-50 gets "
            "about twice as many. Accuracy is that of both models' requests together.",
        ),
        blocks=(
            grid_heat_map(
                "Accuracy of both models by split and window, the same requests",
                grids["the same requests"],
                "retraining GPCs",
                "accuracy",
            ),
            *(
                grid_table(
                    f"Accuracy (%) by retraining split, Inception-v3 first, {reading}; best set "
                    "apart",
                    grid,
                    means=True,
                )
                for reading, grid in grids.items()
            ),
        ),
        reported=(
            "No single split has the highest accuracy in every window, because the accuracy that "
            "retraining gains varies between the models and from window to window.",
        ),
        differs=_models_differs(setting, outcomes, grids),
    )


def _reading_summary(reading: str, grid: Grid) -> str:
    best = best_per_window(grid)
    if len(set(best)) > 1:
        return f"With {reading} the best split changes: {listed(best)} in turn."
    others = {split: mean(values) for split, values in grid.items() if split != best[0]}
    second = max(others, key=lambda split: others[split])
    return (
        f"With {reading} {best[0]} is best in every window, on average "
        f"{points(mean(grid[best[0]]) - others[second])} points before {second}."
    )


def _models_differs(
    setting: Setting, outcomes: Outcomes, grids: dict[str, Grid]
) -> tuple[str, ...]:
    jobs = _models_jobs(setting, INCEPTION, next(iter(model_splits())))
    first = outcomes_by_window(outcomes, jobs)[0][0]
    inception = next(tenant for tenant in first.tenants if tenant.tenant == INCEPTION)
    late = (
        " On 1 GPC Inception-v3's retraining outlasts the window, so that the old model serves "
        "through the first one."
        if inception.retrained_s is None
        else ""
    )
    return (
        " ".join(_reading_summary(reading, grid) for reading, grid in grids.items()),
        f"The accuracies per window are measured, from random weights: {_gains_by_window()}. Where "
        "both models gain alike, what decides is how long each retraining takes and how many "
        f"requests profit, which hardly changes between windows.{late}",
    )


def _gains_by_window() -> str:
    """What retraining gains in points, per model."""
    accuracies = datasets()["nc-cifar-10"].measured
    gains = {
        model: ", ".join(
            f"{100 * (post - pre):.0f}"
            for pre, post in zip(accuracies[model].pre, accuracies[model].post, strict=True)
        )
        for model in (INCEPTION, RESNET)
    }
    return listed(f"{model} gains {gain} points in turn" for model, gain in gains.items())


def _models_figures(setting: Setting, outcomes: Outcomes) -> Figures:
    grids = {name: _models_grid(setting, outcomes, like) for name, like in READINGS.items()}
    return {
        reading.replace(" ", "_"): {"accuracy": grid, "best": best_per_window(grid)}
        for reading, grid in grids.items()
    }


RETRAINING_SPLIT = Experiment(
    "retraining-split",
    "Two models: one retraining against the other",
    lambda setting: tuple(
        job
        for like in READINGS.values()
        for split in model_splits()
        for job in _models_jobs(setting, like, split)
    ),
    _models_findings,
    _models_figures,
)
