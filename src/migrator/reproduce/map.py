"""Where MIGRator pays: its lead over every peer as load, gain, traces and more are varied.

Every run is one trial (`advise/`) of all policies on the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.advise.leads import OURS, RIVALS, Leads, Sample, measure_leads
from migrator.advise.trial import Trial, TrialResult, run_trial
from migrator.io.task_pool import TaskWorkers
from migrator.reproduce.map_cells import (
    LOADS,
    QUICK_LOADS,
    TRACES,
    Cell,
    CellSource,
    VariedCondition,
    axes,
    grid,
)
from migrator.reproduce.results_file import Key, ResultsFile, code_digest, traces_digest
from migrator.reproduce.traces import generated_kinds

NAME, TITLE = "map", "Where MIGRator pays: its lead as conditions vary"
QUICK = "migrator-once"
"""Policy of a quick map: one plan per window, in a third of the time."""
FEWEST_RUNS, FULL_RUNS = 5, 8


@dataclass(frozen=True)
class MapSetting:
    """The cells of a map and how each is run."""

    data: Path | None = None
    quick: bool = False
    runs: int = FULL_RUNS

    @property
    def windows(self) -> int:
        """Windows of a run."""
        return 1 if self.quick else 2

    @property
    def ours(self) -> str:
        """The policy that stands for migrator."""
        return QUICK if self.quick else OURS

    @property
    def loads(self) -> tuple[float, ...]:
        """Loads of the grid."""
        return QUICK_LOADS if self.quick else LOADS

    @property
    def grid(self) -> tuple[tuple[Cell, ...], ...]:
        """Cells by gain and load."""
        return grid(self.loads)

    @property
    def axes(self) -> tuple[VariedCondition, ...]:
        """Conditions varied one at a time; a quick map has none."""
        return () if self.quick else axes()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell once."""
        single = (cell for axis in self.axes for cell in axis.cells.values())
        return tuple(dict.fromkeys((*(cell for row in self.grid for cell in row), *single)))

    @property
    def generated(self) -> tuple[str, ...]:
        """Kinds of arrivals that are generated because the folder lacks their traces."""
        used = dict.fromkeys(cell.traces for cell in self.cells)
        kinds = [kind for traces in used for kind in TRACES[traces]]
        return generated_kinds([(kind, kind) for kind in kinds], self.data)

    def trials(self) -> dict[Key, Trial]:
        """Every run of every cell; runs of all cells come before the next run of any.

        Numbers are ordered so that the first few runs are spread over the traces.
        """
        return {
            (cell.key, number): Trial(
                CellSource(cell, number, self.runs, self.data), number, self.windows, self.ours
            )
            for number in sorted(range(self.runs), key=_spread)
            for cell in self.cells
        }

    def finished_runs(self, finished: Mapping[Key, TrialResult]) -> tuple[int, ...]:
        """Numbers of the runs that every cell has."""
        return tuple(
            number
            for number in range(self.runs)
            if all((cell.key, number) in finished for cell in self.cells)
        )

    def as_json(self) -> dict[str, Any]:
        """What results depend on."""
        return {
            "quick": self.quick,
            "runs": self.runs,
            "windows": self.windows,
            "policies": [self.ours, *RIVALS],
            "generated": list(self.generated),
            "traces": traces_digest(self.data),
            "code": code_digest(),
        }


def _spread(number: int) -> int:
    """The bits of the number in reverse: 0, 4, 2, 6, 1 ... of eight."""
    return int(f"{number:08b}"[::-1], 2)


def run_map(
    setting: MapSetting,
    results: ResultsFile[TrialResult],
    workers: TaskWorkers,
    step: Callable[[], None],
) -> None:
    """Run what the file lacks; every finished run is in the file at once."""
    left = {key: trial for key, trial in setting.trials().items() if key not in results.finished}
    keys = list(left)
    for place, result in workers.as_completed(run_trial, list(left.values())):
        results.add(keys[place], result)
        step()


@dataclass(frozen=True)
class MapResults:
    """Leads by cell."""

    setting: MapSetting
    leads: Mapping[Cell, Leads]
    static: Mapping[Cell, tuple[str, ...]]
    """The best static split of every run."""
    numbers: tuple[int, ...]
    """The runs of every cell; fewer than planned if the map is not finished."""


def measured(setting: MapSetting, finished: Mapping[Key, TrialResult]) -> MapResults:
    """The leads of every cell over the runs that all cells have, which is at least one."""
    numbers = setting.finished_runs(finished)
    runs = {cell: [finished[(cell.key, number)] for number in numbers] for cell in setting.cells}
    return MapResults(
        setting,
        {cell: measure_leads([_sample(result) for result in run]) for cell, run in runs.items()},
        {cell: tuple(result.static for result in run) for cell, run in runs.items()},
        numbers,
    )


def _sample(result: TrialResult) -> Sample:
    names = (OURS, *RIVALS)
    # shares: every run counts alike, whatever rate its models can be served at
    received = max(1, result.received)
    return Sample(
        1.0,
        result.ceiling / received,
        {name: result.goodput(name) / received for name in names},
    )
