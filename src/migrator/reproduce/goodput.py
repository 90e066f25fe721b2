"""The paper's main result: goodput of the 16 workloads under every policy."""

from __future__ import annotations

from migrator.report.page import Table
from migrator.report.terminal import percent
from migrator.reproduce.evaluation import (
    AUTO,
    LABELS,
    MEASURES,
    PAPERS_PEERS,
    STATIC_PARIS,
    Evaluation,
    PolicyResults,
    grouped_bars,
    shares_table,
)
from migrator.reproduce.experiment import (
    Experiment,
    Figures,
    Findings,
    Outcomes,
    Setting,
    cell,
    interval,
    listed,
    signed,
    table,
)
from migrator.reproduce.gains import (
    BOUND,
    OURS,
    REPORTED,
    gains_sentence,
    gains_table,
    goodput_figures,
    lost_workloads,
)

FIGURE = (OURS, *PAPERS_PEERS, BOUND)
"""Policies in the figure; the table has all policies."""
POLICIES = (
    *FIGURE,
    *("migrator-paper", STATIC_PARIS, "gpulet", "infless", "miso"),
    *("equal-mig", "equal-mps", "unpartitioned"),
)
_RETRAINS = {
    **dict.fromkeys((OURS, BOUND), "where it pays"),
    "migrator-paper": "every tenant, every window",
}
"""Which retrainings a planner starts."""
EVALUATION = Evaluation(POLICIES, forecaster=AUTO)


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    measured = EVALUATION.measured(setting, outcomes)
    gains = listed(f"{100 * part:.0f}% over {peer}" for peer, part in REPORTED.items())
    return Findings(
        paragraphs=(
            "How many of the requests received are answered in time and correctly? Two tenants "
            "each, batch 1, an objective of 100 ms, windows of 200 s, slots of 1 s; every policy "
            "gets the same requests. Each tenant's mean rate is 0.3 of what the whole board could "
            "answer for it, so that inference alone would keep 0.6 of the board busy.",
            "`migrator` plans on a forecast (`auto`: the best of several simple forecasters and a "
            "ridge regression over the tenant's last windows) and retrains where that pays, "
            "`migrator-paper` is the paper's own formulation on the same forecast, `oracle` is "
            "migrator's planner with the arrivals that will come. `paris-reconfiguring` is "
            "PARIS as the paper runs it: it partitions the GPU again when retrainings start and "
            "end; `paris` keeps its partition.",
        ),
        blocks=(
            grouped_bars("Goodput over received", measured, FIGURE, "goodput"),
            gains_table(measured, REPORTED, (*PAPERS_PEERS, STATIC_PARIS)),
            _ranking(measured),
            shares_table(
                "Goodput over received (%) of every workload, the best but the oracle set apart",
                measured,
                POLICIES,
                "goodput",
                bound=BOUND,
            ),
        ),
        reported=(
            f"On average MIGRator's goodput is higher by {gains}, and it is higher on every "
            "workload. Measured on an A100 (40 GB).",
        ),
        differs=_differs(measured),
    )


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    measured = EVALUATION.measured(setting, outcomes)
    return {
        **goodput_figures(measured, POLICIES),
        "measures": {
            name: {policy: measured.average(name, policy) for policy in POLICIES}
            for name in MEASURES
        },
        "forecaster": AUTO,
        "paper_gains": REPORTED,
        "share_of_oracle": measured.goodput(OURS) / measured.goodput(BOUND),
    }


def _ranking(measured: PolicyResults) -> Table:
    """Every policy's averages, highest goodput first."""
    ordered = sorted(POLICIES, key=lambda policy: -measured.goodput(policy))
    rows = []
    for policy, row in ((name, measured.mean(name)) for name in ordered):
        rows.append(
            (
                LABELS.get(policy, policy),
                cell(row.goodput_share),
                cell(row.slo_attainment),
                cell(row.accuracy),
                cell(row.correct_share),
                _RETRAINS.get(policy, ""),
                "" if policy == OURS else interval(measured.lead(OURS, policy)),
                f"{row.reconfigurations.mean:,.0f}",
                f"{row.plan_s.mean:.2f}",
            )
        )
    return table(
        "Averages over the workloads, highest goodput first",
        (
            *("policy", "goodput (%)", "SLO (%)", "accuracy (%)"),
            *("accuracy over received (%)", "retrains"),
            *("migrator's gain", "reconfigurations", "planning (s)"),
        ),
        rows,
        [(ordered.index(OURS), 0)],
    )


def _differs(measured: PolicyResults) -> tuple[str, ...]:
    behind = {name for peer in PAPERS_PEERS for name in lost_workloads(measured, peer)}
    lost = [workload for workload in measured.workloads if workload in behind]
    won = (
        f"On {listed(lost)} one of the paper's peers is ahead."
        if lost
        else "It is ahead of all three on every workload."
    )
    share = measured.goodput(OURS) / measured.goodput(BOUND)
    return (
        f"Ours: {gains_sentence(measured)}. {won} The oracle's plan, with the true arrivals, is no "
        f"more than {signed(1 / share - 1)} above: migrator reaches {percent(share)} of it.",
        "Not looked into: how the peers were run for the paper (one process per share or "
        "several, with or without waiting workers), and how an A100's slices and bandwidth "
        "would change all this.",
    )


GOODPUT = Experiment(
    "goodput",
    "Goodput of the 16 workloads",
    EVALUATION.jobs,
    _findings,
    _figures,
)
