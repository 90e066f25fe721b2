"""An experiment: the runs it needs, its part of the page, its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.advise.static_layouts import FixedLayout
from migrator.core.comparison import SeedMean, SeedValues
from migrator.core.problem import Charge, Kind, Task
from migrator.policies.migrator import Migrator
from migrator.policies.policy import Decision, Observation, Sight
from migrator.records.outcome import RunOutcome
from migrator.report.page import Axis, Bars, Block, Note, Section, Series, Table
from migrator.report.paint import policy_paints
from migrator.simulation.compare import SimulationJob
from migrator.workload.workloads import workloads

Outcomes = Mapping[SimulationJob, RunOutcome]
Figures = dict[str, Any]
"""An experiment's numbers, ready for JSON."""

PAPER, DIFFERS = "What the paper reports", "Why ours differs"
"""Titles of the notes beside every experiment's figures."""


@dataclass(frozen=True)
class Setting:
    """Traces, seeds, workloads and length of the runs."""

    data: Path | None = None
    """Folder with the real traces; None: traces are generated."""
    seeds: tuple[int, ...] = (0,)
    workloads: tuple[str, ...] = tuple(workloads())
    most_windows: int | None = None
    """Maximum number of windows of a run; None: what each experiment usually has."""

    def windows(self, drifting: int, usual: int | None = None) -> int:
        """Number of windows of a run whose data drifts in `drifting` windows."""
        return min(drifting, self.most_windows or usual or drifting)


@dataclass(frozen=True)
class Findings:
    """The content of an experiment's section."""

    paragraphs: tuple[str, ...]
    """The question, and how it is answered."""
    blocks: tuple[Block, ...]
    reported: tuple[str, ...]
    """What the paper reports."""
    differs: tuple[str, ...]
    """Why the results here differ from it."""


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    name: str
    """Name on the command line."""
    title: str
    jobs: Callable[[Setting], tuple[SimulationJob, ...]]
    """The runs it needs; experiments share equal runs."""
    findings: Callable[[Setting, Outcomes], Findings]
    figures: Callable[[Setting, Outcomes], Figures]
    """Its numbers, for JSON."""

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """Its section of the page."""
        findings = self.findings(setting, outcomes)
        notes = Note(PAPER, findings.reported), Note(DIFFERS, findings.differs)
        return Section(self.title, self.name, findings.paragraphs, (*findings.blocks, *notes))


def signed(part: float) -> str:
    """Format a relative change as a signed percentage."""
    return f"{points(part)}%"


def points(part: float, digits: int = 1) -> str:
    """Format a difference of two shares in percentage points."""
    rounded = round(100 * part, digits) + 0.0  # no minus before a zero
    return f"{rounded:+.{digits}f}".replace("-", "\u2212")


def cell(values: SeedValues) -> str:
    """Format the mean of a share over seeds in percent."""
    return f"{100 * values.mean:.1f}"


def interval(gain: SeedMean) -> str:
    """Format a relative change with its confidence interval if there is one."""
    width = "" if gain.half_width is None else f"\u00a0±\u00a0{100 * gain.half_width:.1f}"
    return f"{points(gain.mean)}{width}%"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Join names for a sentence; "none" if there are none."""
    *most, final = list(names) or ["none"]
    return f"{', '.join(most)} {last} {final}" if most else final


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    highlights: Iterable[tuple[int, int]] = (),
    *,
    folded: bool = False,
) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    numeric = frozenset(range(1, len(headers)))
    cells = tuple(tuple(row) for row in rows)
    return Table(caption, tuple(headers), cells, numeric, frozenset(highlights), folded)


def bars(
    title: str,
    categories: Iterable[str],
    series: Mapping[str, Sequence[float]],
    x: Axis,
    y: Axis,
    policies: Sequence[str] | None = None,
) -> Bars:
    """Bars side by side: a value per series and category. `policies`: those of the series, whose
    colours they have."""
    paints = (None,) * len(series) if policies is None else policy_paints(policies)
    rows = tuple(
        Series(name, tuple(values), paint=paint)
        for (name, values), paint in zip(series.items(), paints, strict=True)
    )
    return Bars(title, tuple(categories), rows, x, y)


def serving_and_training(served: dict[str, int], trained: dict[str, int]) -> FixedLayout:
    """One instance for every model's inference and one for its retraining; values are GPCs."""
    tasks = [(Task(model, Kind.INFERENCE), gpcs) for model, gpcs in served.items()]
    tasks += [(Task(model, Kind.RETRAINING), gpcs) for model, gpcs in trained.items()]
    return FixedLayout("held-" + "-".join(str(gpcs) for gpcs in trained.values()), tuple(tasks))


class WithoutPass(Migrator):
    """The paper's plan without pre-initialization."""

    def decide(self, observation: Observation) -> Decision:
        """Plan the rest of the window."""
        decision = super().decide(observation)
        if decision.plan is None:
            return decision
        slots = (slot.instances for slot in decision.plan.slots)
        used = (tuple(instance for instance in slot if instance.task is not None) for slot in slots)
        return replace(decision, slots=tuple(used))


PAPER_WITHOUT_PASS = WithoutPass(
    "migrator-paper-no-pass",
    "the paper's plan without pre-initialization",
    Sight.FORECAST,
    Charge.PAPER,
)
PAPER_WITH_TRUTH = Migrator(
    "migrator-paper-truth",
    "the paper's plan and pass on the arrivals that will come",
    Sight.TRUTH,
    Charge.PAPER,
)
