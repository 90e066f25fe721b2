"""Slots of 0.5 to 10 s: what it brings to change the allocation more often."""

from __future__ import annotations

from migrator.report.page import Axis, Bars, Table
from migrator.report.terminal import percent
from migrator.reproduce.evaluation import SHORT, Evaluation, PolicyResults
from migrator.reproduce.experiment import (
    PAPER_WITH_TRUTH,
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    bars,
    mean,
    points,
    table,
)

LENGTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
FORECAST, TRUTH = "migrator-paper", PAPER_WITH_TRUTH.name
SIGHTS = {FORECAST: "on the forecast", TRUTH: "on true arrivals"}


def _slot_findings(setting: Setting, outcomes: Outcomes) -> Findings:
    by_slot_length = _slot_results(setting, outcomes)
    return Findings(
        paragraphs=(
            "What does it bring to change the allocation more often? The workloads on "
            "NC-CIFAR-10 (W1 to W8) with slots of 0.5 to 10 s, planned in the paper's way "
            "(`migrator-paper`), whose planner is fast enough for all of them.",
            "Once on the forecast that a run has, once with the true arrivals: the second shows "
            "what granularity brings when every second is known.",
        ),
        blocks=(
            bars(
                "Goodput against slots of 1 s, average of the workloads",
                [f"{length:g} s" for length in by_slot_length],
                {
                    name: [
                        100 * (results.goodput(policy) - by_slot_length[1.0].goodput(policy))
                        for results in by_slot_length.values()
                    ]
                    for policy, name in SIGHTS.items()
                },
                Axis("slot length"),
                Axis("points of goodput"),
            ),
            _by_workload(by_slot_length, TRUTH),
            _by_workload(by_slot_length, FORECAST),
            _table(by_slot_length),
        ),
        reported=(
            "0.5 s has the highest goodput on every workload, 1 s comes close at a fraction of the "
            "solver's time, 10 s is clearly worse: finer slots follow the arrivals better.",
        ),
        differs=_differs(by_slot_length),
    )


def _slot_figures(setting: Setting, outcomes: Outcomes) -> Figures:
    """Goodput and planning seconds per window, by policy and length."""
    jobs = _evaluation(1.0).jobs(setting)
    windows = mean([job.windows or 0 for job in jobs])
    return {
        policy: {
            f"{length:g}": {
                "goodput": measured.goodput(policy),
                "plan_s_per_window": measured.mean(policy).plan_s.mean / windows,
                "workloads": measured.goodputs(policy),
            }
            for length, measured in _slot_results(setting, outcomes).items()
        }
        for policy in SIGHTS
    }


def _evaluation(length_s: float) -> Evaluation:
    return Evaluation((FORECAST, PAPER_WITH_TRUTH), SHORT, slot_s=length_s)


def _slot_results(setting: Setting, outcomes: Outcomes) -> dict[float, PolicyResults]:
    return {length_s: _evaluation(length_s).measured(setting, outcomes) for length_s in LENGTHS_S}


def _by_workload(by_slot_length: dict[float, PolicyResults], policy: str) -> Bars:
    return bars(
        f"Goodput over received by workload and slot length, {SIGHTS[policy]}",
        by_slot_length[1.0].workloads,
        {
            f"{length_s:g} s": [*results.goodputs(policy).values()]
            for length_s, results in by_slot_length.items()
        },
        Axis("workload"),
        Axis("goodput", share=True),
    )


def _table(by_slot_length: dict[float, PolicyResults]) -> Table:
    rows = []
    for length, results in by_slot_length.items():
        sight_rows = results.mean(FORECAST), results.mean(TRUTH)
        rows.append(
            (
                f"{length:g} s",
                *(f"{100 * row.goodput_share.mean:.2f}" for row in sight_rows),
                *(f"{row.plan_s.mean:.2f}" for row in sight_rows),
                *(f"{row.reconfigurations.mean:,.0f}" for row in sight_rows),
            )
        )
    return table(
        "Averages over the workloads; planning and reconfigurations are of a whole run",
        (
            *("slot", "goodput, forecast (%)", "goodput, truth (%)"),
            *("planning, forecast (s)", "planning, truth (s)"),
            *("reconfigurations, forecast", "reconfigurations, truth"),
        ),
        rows,
        [
            (max(range(len(rows)), key=lambda at: float(rows[at][column])), column)
            for column in (1, 2)
        ],
    )


def _differs(by_slot_length: dict[float, PolicyResults]) -> tuple[str, ...]:
    summaries = []
    for name, sight in SIGHTS.items():
        by_length = {length: results.goodput(name) for length, results in by_slot_length.items()}
        best = max(by_length, key=lambda length: by_length[length])
        summaries.append(
            f"{sight[0].upper()}{sight[1:]}, {best:g} s is best ({percent(by_length[best])}); "
            f"against 1 s, 0.5 s has {points(by_length[0.5] - by_length[1.0])} points and 10 s "
            f"{points(by_length[10.0] - by_length[1.0])}."
        )
    return (
        " ".join(summaries),
        "A forecast made at the window's start hardly knows single seconds: the default "
        "forecaster gives one level with a spread for the whole window. Finer slots then have "
        "little to follow. What long slots lose even so has not been looked into.",
    )


SLOT_LENGTH = Experiment(
    "slot-length",
    "Slots of 0.5 to 10 s",
    lambda setting: tuple(
        job for length_s in LENGTHS_S for job in _evaluation(length_s).jobs(setting)
    ),
    _slot_findings,
    _slot_figures,
)
