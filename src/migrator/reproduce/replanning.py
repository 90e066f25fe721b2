"""Beyond the paper: what planning again inside the window brings, between plan and oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.core.comparison import LEAST_LEAD, ORACLE, REPLANNED, WINDOW_PLAN, Lead
from migrator.core.outcome import RunOutcome
from migrator.report.page import Axis, Bars, Note, Section, Series, Table, paint_of
from migrator.reproduce.experiment import Figures, Outcomes, Setting
from migrator.reproduce.windows_apart import (
    LOAD,
    Pair,
    WindowApart,
    generated_kinds,
    jobs_apart,
    lead_of,
    pair_name,
)
from migrator.reproduce.words import DIFFERS, PAPER, listed
from migrator.simulate.compare import Job

PAIRS: dict[Pair, int] = {
    ("twitter", "alibaba-steady"): 3,
    ("alibaba", "azure"): 1,
    ("twitter", "azure-bursty"): 1,
    ("batch", "azure"): 1,
}
"""Pairs of traces, and how many windows of each are run: few, as all experiments have ten minutes.

benchmarks/replanning.py runs more.
"""
NAMES = ("window plan", "replanned", "oracle")


@dataclass(frozen=True)
class Measured:
    """A pair's windows together, and how many of them replanning made better or worse."""

    lead: Lead
    windows: int
    received: int
    better: int
    worse: int


@dataclass(frozen=True)
class Replanning:
    """Pairs of traces planned once per window, replanned inside it, and foreseen."""

    name: str = "replanning"
    place: int = 9
    title: str = "Beyond the paper: planning again inside the window"

    def jobs(self, setting: Setting) -> tuple[Job, ...]:
        """A run per pair, window, policy and seed."""
        return tuple(job for pair in PAIRS for job in _jobs(setting, pair))

    def section(self, setting: Setting, outcomes: Outcomes) -> Section:
        """The three side by side, and what replanning regains of the oracle's lead."""
        found = _found(setting, outcomes)
        blocks = (
            _shares(found),
            _above(found),
            _table(found),
            Note(PAPER, _reported()),
            Note(DIFFERS, _differs(found)),
        )
        return Section(self.title, self.name, _paragraphs(setting), blocks)

    def figures(self, setting: Setting, outcomes: Outcomes) -> Figures:
        """Goodput shares, change and part regained by pair."""
        return {
            "load": LOAD,
            "generated": list(generated_kinds(PAIRS, setting.data)),
            "pairs": {each.lead.scenario: _figures(each) for each in _found(setting, outcomes)},
        }


def _jobs(setting: Setting, pair: Pair) -> tuple[Job, ...]:
    of = setting.windows(PAIRS[pair])
    sources = [WindowApart(pair, number, of, setting.data) for number in range(of)]
    return jobs_apart(sources, setting.seeds)


def _found(setting: Setting, outcomes: Outcomes) -> list[Measured]:
    return [_measured(pair, setting, outcomes) for pair in PAIRS]


def _measured(pair: Pair, setting: Setting, outcomes: Outcomes) -> Measured:
    jobs = _jobs(setting, pair)
    by_window: dict[object, list[RunOutcome]] = {}
    for job in jobs:
        by_window.setdefault(job.source, []).append(outcomes[job])
    leads = [lead_of(pair_name(pair), runs) for runs in by_window.values()]
    changes = [each.replanned - each.window_plan for each in leads]
    return Measured(
        lead_of(pair_name(pair), (outcomes[job] for job in jobs)),
        len(leads),
        sum(outcomes[job].tally.received for job in jobs if job.policy == WINDOW_PLAN),
        sum(each >= LEAST_LEAD for each in changes),
        sum(each <= -LEAST_LEAD for each in changes),
    )


def _figures(found: Measured) -> Figures:
    lead = found.lead
    return {
        "windows": found.windows,
        "received": found.received,
        WINDOW_PLAN: lead.window_plan,
        REPLANNED: lead.replanned,
        ORACLE: lead.oracle,
        "change": lead.change,
        "regained": lead.regained,
        "windows_better": found.better,
        "windows_worse": found.worse,
    }


def _paragraphs(setting: Setting) -> tuple[str, ...]:
    generated = generated_kinds(PAIRS, setting.data)
    missing = (
        f" {listed(generated)} are generated: the folder does not have them."
        if generated and setting.data is not None
        else ""
    )
    return (
        "This goes beyond the paper, which plans once per window. How much of what a plan on a "
        "forecast loses to one on the true arrivals does planning again regain? `migrator` plans "
        "at the window's start, `migrator-replanned` plans the inference again every few seconds "
        "on what came just now, `oracle` knows the arrivals of the whole window.",
        "ResNet-50 and ViT-B/16 serve without retraining, batch 1, an objective of 100 ms, workers "
        f"waiting ready. Inference alone keeps {LOAD:g} of the board busy over the whole length of "
        "each trace. Bursts are rare, so the windows are not in a row: every one is a run of "
        "its own, and they are spread evenly over the traces. Requests are summed over "
        f"them.{missing}",
        "Few windows are run here, so that all experiments together take ten minutes, and so few "
        "may well miss every burst: docs/results/replanning.md has twenty of each pair "
        "(benchmarks/replanning.py).",
    )


def _shares(found: Sequence[Measured]) -> Bars:
    shares = zip(
        *((e.lead.window_plan, e.lead.replanned, e.lead.oracle) for e in found), strict=True
    )
    return Bars(
        title="Goodput over received by pair of traces",
        categories=tuple(each.lead.scenario for each in found),
        series=tuple(
            Series(name, tuple(values), paint=paint_of(at))
            for at, (name, values) in enumerate(zip(NAMES, shares, strict=True))
        ),
        x=Axis("traces"),
        y=Axis("goodput", share=True),
    )


def _above(found: Sequence[Measured]) -> Bars:
    """The small differences, which the shares hide."""
    leads = [each.lead for each in found]
    above = {
        "replanned": tuple(100 * (each.replanned - each.window_plan) for each in leads),
        "oracle": tuple(100 * (each.oracle - each.window_plan) for each in leads),
    }
    return Bars(
        title="Goodput above the window plan's",
        categories=tuple(each.scenario for each in leads),
        series=tuple(
            Series(name, values, paint=paint_of(at))
            for at, (name, values) in enumerate(above.items(), start=1)
        ),
        x=Axis("traces"),
        y=Axis("points of goodput"),
    )


def _table(found: Sequence[Measured]) -> Table:
    headers = (
        *("traces", "windows", "received", *(f"{each} (%)" for each in NAMES)),
        *("change (points)", "of the oracle's lead", "windows better", "windows worse"),
    )
    return Table(
        caption="Goodput over received, all windows of a pair together; a window is better or "
        f"worse from {100 * LEAST_LEAD:g} points on",
        headers=headers,
        rows=tuple(_row(each) for each in found),
        numeric=frozenset(range(1, len(headers))),
    )


def _row(found: Measured) -> tuple[str, ...]:
    lead = found.lead
    return (
        lead.scenario,
        str(found.windows),
        f"{found.received:,}",
        *(f"{100 * each:.2f}" for each in (lead.window_plan, lead.replanned, lead.oracle)),
        _points(lead.replanned - lead.window_plan),
        "-" if lead.regained is None else f"{lead.regained:.0%}",
        str(found.better),
        str(found.worse),
    )


def _reported() -> tuple[str, ...]:
    return (
        "Nothing about this: it forecasts every second of a window at the window's start and "
        "holds to the plan made then.",
    )


def _differs(found: Sequence[Measured]) -> tuple[str, ...]:
    told = [_told(each.lead) for each in found]
    fewest = min(each.windows for each in found)
    return (
        f"There is nothing to differ from. Ours: {'; '.join(told)}.",
        f"With as few as {fewest} windows of a pair one burst decides; "
        "`python benchmarks/replanning.py` runs more of them, and other loads.",
    )


def _told(lead: Lead) -> str:
    change = f"on {lead.scenario} {_points(lead.replanned - lead.window_plan)} points"
    if lead.regained is None:
        return f"{change}, where the oracle has no lead to regain"
    ahead = f"the oracle's {_points(lead.oracle - lead.window_plan)}"
    part = "none" if lead.regained < 0 else f"{lead.regained:.0%}"
    return f"{change}, {part} of {ahead}"


def _points(part: float) -> str:
    """To the hundredth, because leads are counted from half a tenth on."""
    return f"{round(100 * part, 2) + 0.0:+.2f}".replace("-", "\u2212")


EXPERIMENTS = (Replanning(),)
