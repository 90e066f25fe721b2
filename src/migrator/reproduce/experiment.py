"""What an experiment of the paper is: the runs it asks for, and what it says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from migrator.core.outcome import RunOutcome
from migrator.report.page import Section
from migrator.simulate.compare import Job
from migrator.workload.workloads import workloads

Outcomes = Mapping[Job, RunOutcome]
Figures = dict[str, Any]
"""An experiment's numbers, ready for JSON."""


@dataclass(frozen=True)
class Setting:
    """How much is run, and on which traces."""

    data: Path | None = None
    """A folder with the real traces; None: generated ones."""
    seeds: tuple[int, ...] = (0,)
    workloads: tuple[str, ...] = tuple(workloads())
    most_windows: int | None = None
    """Runs are cut to so many windows; None: as long as the data drifts."""

    def windows(self, drifting: int) -> int:
        """Windows of a run whose data drifts in `drifting` of them."""
        return min(drifting, self.most_windows or drifting)


class Experiment(Protocol):
    """One experiment of the paper."""

    @property
    def name(self) -> str:
        """What people type."""
        ...

    @property
    def place(self) -> int:
        """Its turn on the page: as in the paper."""
        ...

    @property
    def title(self) -> str:
        """What it is about."""
        ...

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """The runs it needs; equal ones are shared with other experiments."""
        ...

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """Its part of the page."""
        ...

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Its numbers."""
        ...
