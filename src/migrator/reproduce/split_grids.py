"""Values of fixed splits of the GPCs by window: computed, as heat map and as table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from migrator.core.outcome import Tally
from migrator.records.outcome import WindowOutcome
from migrator.report.page import Axis, HeatMap, Table
from migrator.reproduce.experiment import Outcomes, mean, table
from migrator.simulation.compare import SimulationJob

Grid = dict[str, list[float]]
"""Split -> a value per window, the mean over seeds."""
MEASURES: Mapping[str, Callable[[Tally], float]] = {
    "SLO attainment": lambda tally: tally.slo_attainment,
    "accuracy": lambda tally: tally.accuracy,
    "goodput": lambda tally: tally.goodput_share,
}


def outcomes_by_window(
    outcomes: Outcomes, jobs: Iterable[SimulationJob]
) -> list[tuple[WindowOutcome, ...]]:
    """The outcomes of every window, over the seeds."""
    return list(zip(*(outcomes[job].windows for job in jobs), strict=True))


def mean_values(
    windows: Iterable[Sequence[WindowOutcome]], measure: Callable[[Tally], float]
) -> list[float]:
    """Per window the mean of a measure over the seeds."""
    return [mean([measure(outcome.tally) for outcome in same]) for same in windows]


def best_per_window(grid: Grid) -> list[str]:
    """The split with the highest value, per window."""
    windows = range(len(next(iter(grid.values()))))
    return [max(grid, key=lambda split: grid[split][window]) for window in windows]


def grid_heat_map(title: str, grid: Grid, splits: str, measure: str) -> HeatMap:
    """The grid as a heat map."""
    return HeatMap(
        title=title,
        columns=tuple(str(n) for n in range(1, len(best_per_window(grid)) + 1)),
        rows=tuple(grid),
        values=tuple(tuple(values) for values in grid.values()),
        x=Axis("window"),
        y=Axis(splits),
        z=Axis(measure, share=True),
    )


def grid_table(caption: str, grid: Grid, *, means: bool) -> Table:
    """The grid as a table, the best split of every window highlighted."""
    best, order = best_per_window(grid), list(grid)
    headers = ("split", *(f"window {n}" for n in range(1, len(best) + 1)))
    rows = [
        (split, *(f"{100 * value:.1f}" for value in (*values, *((mean(values),) if means else ()))))
        for split, values in grid.items()
    ]
    highlights = [(order.index(split), column) for column, split in enumerate(best, start=1)]
    return table(caption, (*headers, *(("mean",) if means else ())), rows, highlights)
