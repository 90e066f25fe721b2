"""Beyond the paper: the gain from replanning inside the window, compared with the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from migrator.core.catalogue import board
from migrator.core.comparison import LEAST_LEAD, ORACLE, REPLANNED, SIDE_BY_SIDE, WINDOW_PLAN, Lead
from migrator.core.errors import InputError
from migrator.core.outcome import RunOutcome, Tally
from migrator.core.profiles import Service, profile
from migrator.core.scenario import Drift, Scenario, ServedTenant, Trace
from migrator.report.page import Axis, paint_of
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    listed,
    points,
    table,
)
from migrator.simulate.compare import Job
from migrator.workload.arrivals import HISTORY_S, highest_rps
from migrator.workload.measured import drifts
from migrator.workload.traces.formats import load_trace
from migrator.workload.traces.generator import KINDS, generate, real_file
from migrator.workload.workloads import GPU, SLO_MS, WINDOW_S

MODELS = ("resnet-50", "vit-b-16")
DATASET = "nc-cifar-10"
LOAD = 0.8
"""Share of the board that inference alone uses, over the whole length of the traces."""

Pair = tuple[str, str]
"""Kinds of arrivals of the first and the second model."""


def pair_name(pair: Pair) -> str:
    """Both kinds, for display."""
    return " + ".join(pair)


@dataclass(frozen=True)
class WindowApart:
    """Window `number` of `of` windows that are spread evenly over a pair of traces."""

    pair: Pair
    number: int
    of: int
    data: Path | None = None
    """Folder with real traces; missing traces are generated, all of them if it is None."""
    load: float = LOAD
    retrain: bool = False

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"{pair_name(self.pair)}, window {self.number + 1} of {self.of}"

    def __call__(self, seed: int | None, windows: int | None) -> Scenario:
        """Build the scenario; several windows start at this one."""
        count = windows or 1
        tenants = tuple(
            self._tenant(model, kind, count, seed or 0)
            for model, kind in zip(MODELS, self.pair, strict=True)
        )
        shape = (board(GPU), float(WINDOW_S), 1.0, count, tenants)
        return Scenario(self.name, *shape, "migrator", "last-mean", seed or 0, prepared=True)

    def _tenant(self, model: str, kind: str, windows: int, seed: int) -> ServedTenant:
        known = profile(model, GPU)
        service = Service(model, known, SLO_MS / 1e3, 1)
        trace = arrivals(kind, self.data, seed)
        mean_rps = self.load / len(MODELS) * highest_rps(service, board(GPU))
        offset_s = offset(trace, self.number, self.of, windows)
        drift = self._drifts(drifts(DATASET, known)) if self.retrain else ()
        return ServedTenant(service, trace.scaled(mean_rps / trace.mean_rps), offset_s, drift)

    def _drifts(self, known: Sequence[Drift]) -> tuple[Drift, ...]:
        """The data set's windows, rotated so that the runs cover all of them."""
        first = self.number % len(known)
        return (*known[first:], *known[:first])


def offset(trace: Trace, number: int, of: int, windows: int = 1) -> int:
    """Start of window `number`: the first after some history, the last at the trace's end."""
    last = trace.seconds - windows * WINDOW_S
    if last < HISTORY_S:
        raise InputError(
            f"{trace.name}: its {trace.seconds} s have no room for {windows} windows of "
            f"{WINDOW_S} s after {HISTORY_S} s of history; give a longer trace"
        )
    return HISTORY_S + number * (last - HISTORY_S) // max(1, of - 1)


@lru_cache(maxsize=8)
def arrivals(kind: str, data: Path | None, seed: int) -> Trace:
    """The real trace if `data` has it, else a generated one of the same length and mean rate."""
    found = None if data is None else real_file(kind, data)
    if found is None:
        measured = KINDS[kind].measured
        return generate(kind, mean_rps=measured.mean_rps, seconds=measured.seconds, seed=seed)
    return load_trace(found)


def generated_kinds(pairs: Iterable[Pair], data: Path | None) -> tuple[str, ...]:
    """Kinds of these pairs that are generated because `data` does not have them."""
    kinds = dict.fromkeys(kind for pair in pairs for kind in pair)
    return tuple(each for each in kinds if data is None or real_file(each, data) is None)


def jobs_apart(
    sources: Iterable[WindowApart],
    seeds: Iterable[int] = (0,),
    policies: Sequence[str] = SIDE_BY_SIDE,
) -> tuple[Job, ...]:
    """Jobs for every window and seed under each policy: window plan, replanned and oracle."""
    given = tuple(seeds)
    return tuple(
        Job(source, policy, seed=seed, windows=1)
        for source in sources
        for policy in policies
        for seed in given
    )


def lead_of(name: str, outcomes: Iterable[RunOutcome]) -> Lead:
    """Compare the three policies over all windows: sums, so that busy windows count more."""
    sums = dict.fromkeys(SIDE_BY_SIDE, Tally())
    for run in outcomes:
        sums[run.policy] += run.tally
    return Lead(name, *(sums[policy].goodput_share for policy in SIDE_BY_SIDE))


PAIRS: dict[Pair, int] = {
    ("twitter", "alibaba-steady"): 3,
    ("alibaba", "azure"): 1,
    ("twitter", "azure-bursty"): 1,
    ("batch", "azure"): 1,
}
"""Pairs of traces, and the number of windows run for each: few, because all experiments together
take ten minutes.

benchmarks/replanning.py runs more.
"""
NAMES = ("window plan", "replanned", "oracle")


@dataclass(frozen=True)
class ReplanningResults:
    """Goodput over a pair's windows, and numbers of windows better or worse by replanning."""

    lead: Lead
    windows: int
    received: int
    better: int
    worse: int


def _jobs(setting: Setting, pair: Pair) -> tuple[Job, ...]:
    of = setting.windows(PAIRS[pair])
    sources = [WindowApart(pair, number, of, setting.data) for number in range(of)]
    return jobs_apart(sources, setting.seeds)


def _measured(pair: Pair, setting: Setting, outcomes: Outcomes) -> ReplanningResults:
    jobs = _jobs(setting, pair)
    by_window: dict[object, list[RunOutcome]] = {}
    for job in jobs:
        by_window.setdefault(job.source, []).append(outcomes[job])
    leads = [lead_of(pair_name(pair), runs) for runs in by_window.values()]
    changes = [each.replanned - each.window_plan for each in leads]
    return ReplanningResults(
        lead_of(pair_name(pair), (outcomes[job] for job in jobs)),
        len(leads),
        sum(outcomes[job].tally.received for job in jobs if job.policy == WINDOW_PLAN),
        sum(each >= LEAST_LEAD for each in changes),
        sum(each <= -LEAST_LEAD for each in changes),
    )


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
        "may well miss every burst: docs/results/replanning.md has ten of each pair "
        "(benchmarks/replanning.py).",
    )


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    found = [_measured(pair, setting, outcomes) for pair in PAIRS]
    leads = [each.lead for each in found]
    names = [each.scenario for each in leads]
    shares = list(zip(*((e.window_plan, e.replanned, e.oracle) for e in leads), strict=True))
    above = bars(
        "Goodput above the window plan's",
        names,
        {
            name: [100 * (each - plan) for each, plan in zip(values, shares[0], strict=True)]
            for name, values in zip(NAMES[1:], shares[1:], strict=True)
        },
        Axis("traces"),
        Axis("points of goodput"),
    )
    painted = tuple(replace(e, paint=paint_of(at)) for at, e in enumerate(above.series, start=1))
    return Findings(
        paragraphs=_paragraphs(setting),
        blocks=(
            bars(
                "Goodput over received by pair of traces",
                names,
                dict(zip(NAMES, shares, strict=True)),
                Axis("traces"),
                Axis("goodput", share=True),
            ),
            replace(above, series=painted),
            table(
                "Goodput over received, all windows of a pair together; a window is better or "
                f"worse from {100 * LEAST_LEAD:g} points on",
                (
                    *("traces", "windows", "received", *(f"{each} (%)" for each in NAMES)),
                    *("change (points)", "of the oracle's lead"),
                    *("windows better", "windows worse"),
                ),
                map(_row, found),
            ),
        ),
        reported=(
            "Nothing about this: it forecasts every second of a window at the window's start and "
            "holds to the plan made then.",
        ),
        differs=(
            f"There is nothing to differ from. Ours: {'; '.join(map(_summary, leads))}.",
            f"With as few as {min(each.windows for each in found)} windows of a pair one burst "
            "decides; `python benchmarks/replanning.py` runs more of them, and other loads.",
        ),
    )


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Goodput shares, change and regained part of the lead, by pair."""
    pairs = {}
    for found in (_measured(pair, setting, outcomes) for pair in PAIRS):
        lead = found.lead
        pairs[lead.scenario] = {
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
    generated = list(generated_kinds(PAIRS, setting.data))
    return {"load": LOAD, "generated": generated, "pairs": pairs}


def _row(found: ReplanningResults) -> tuple[str, ...]:
    lead = found.lead
    return (
        lead.scenario,
        str(found.windows),
        f"{found.received:,}",
        *(f"{100 * each:.2f}" for each in (lead.window_plan, lead.replanned, lead.oracle)),
        points(lead.replanned - lead.window_plan, 2),
        "-" if lead.regained is None else f"{lead.regained:.0%}",
        str(found.better),
        str(found.worse),
    )


def _summary(lead: Lead) -> str:
    change = f"on {lead.scenario} {points(lead.replanned - lead.window_plan, 2)} points"
    if lead.regained is None:
        return f"{change}, where the oracle has no lead to regain"
    ahead = f"the oracle's {points(lead.oracle - lead.window_plan, 2)}"
    part = "none" if lead.regained < 0 else f"{lead.regained:.0%}"
    return f"{change}, {part} of {ahead}"


REPLANNING = Experiment(
    "replanning",
    "Beyond the paper: planning again inside the window",
    lambda setting: tuple(job for pair in PAIRS for job in _jobs(setting, pair)),
    _findings,
    _figures,
)
