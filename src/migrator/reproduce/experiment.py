"""The interface of an experiment: the runs it needs, and its part of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from migrator.core.comparison import SeedMean
from migrator.core.outcome import RunOutcome
from migrator.core.registry import found_in, pick
from migrator.report.page import Section
from migrator.simulate.compare import Job
from migrator.workload.workloads import workloads

Outcomes = Mapping[Job, RunOutcome]
Figures = dict[str, Any]
"""An experiment's numbers, ready for JSON."""


@dataclass(frozen=True)
class Setting:
    """Traces, seeds, workloads and length of the runs."""

    data: Path | None = None
    """Folder with the real traces; None: traces are generated."""
    seeds: tuple[int, ...] = (0,)
    workloads: tuple[str, ...] = tuple(workloads())
    most_windows: int | None = None
    """Maximum number of windows of a run; None: as long as the data drifts."""

    def windows(self, drifting: int) -> int:
        """Number of windows of a run whose data drifts in `drifting` windows."""
        return min(drifting, self.most_windows or drifting)


class Experiment(Protocol):
    """One experiment of the paper."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def place(self) -> int:
        """Position on the page, in the paper's order."""
        ...

    @property
    def title(self) -> str:
        """Title of its section."""
        ...

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """The runs it needs; experiments share equal runs."""
        ...

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """Its section of the page."""
        ...

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Its numbers, for JSON."""
        ...


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by name, in the paper's order."""
    found: dict[str, Experiment] = found_in("migrator.reproduce", "EXPERIMENTS")
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def experiment(name: str) -> Experiment:
    """The experiment of that name; the error for an unknown name lists the closest ones."""
    return pick("experiment", name, experiments())


PAPER, DIFFERS = "What the paper reports", "Why ours differs"
"""Titles of the notes beside every experiment's figures."""


def percent(part: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * part:.1f}%"


def signed(part: float) -> str:
    """Format a relative change as a signed percentage."""
    return f"{points(part)}%"


def points(part: float) -> str:
    """Format a difference of two shares in percentage points."""
    rounded = round(100 * part, 1) + 0.0  # no minus before a zero
    return f"{rounded:+.1f}".replace("-", "\u2212")


def cell(estimate: SeedMean) -> str:
    """Format a share in percent, with its confidence interval if there is one."""
    width = "" if estimate.half_width is None else f"\u00a0±\u00a0{100 * estimate.half_width:.1f}"
    return f"{100 * estimate.mean:.1f}{width}"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Join names for a sentence; "none" if there are none."""
    *most, final = list(names) or ["none"]
    return f"{', '.join(most)} {last} {final}" if most else final


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)
