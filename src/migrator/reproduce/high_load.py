"""Goodput at a load and with gains of retraining at which planning has something to gain.

The paper states neither of its own; both are as near to it as measurements allow.
"""

from __future__ import annotations

from migrator.advise.ceiling import ceiling
from migrator.report.terminal import percent
from migrator.reproduce.evaluation import (
    AUTO,
    LABELS,
    PAPERS_PEERS,
    STATIC_PARIS,
    Evaluation,
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
    table,
)
from migrator.reproduce.gains import OURS, REPORTED, gains_sentence, goodput_figures

LOAD = 0.8
"""The load of the experiment `high-load`."""
POLICIES = (OURS, "migrator-paper", *PAPERS_PEERS, STATIC_PARIS)
EVALUATION = Evaluation(POLICIES, forecaster=AUTO, load=LOAD, published=True)


def _findings(setting: Setting, outcomes: Outcomes) -> Findings:
    measured = EVALUATION.measured(setting, outcomes)
    most = ceiling_share(setting)
    rows = [
        (
            LABELS.get(policy, policy),
            cell(measured.mean(policy).goodput_share),
            "" if policy == OURS else interval(measured.lead(OURS, policy)),
            f"{100 * REPORTED[policy]:+.0f}%" if policy in REPORTED else "",
            f"{100 * (most / measured.goodput(policy) - 1):+.0f}%",
        )
        for policy in POLICIES
    ]
    return Findings(
        paragraphs=(
            f"The 16 workloads again, at a load of {LOAD:g} and with the accuracies that were "
            "measured of published weights (EfficientNet-Lite0 and Lite2 on NC-CIFAR-10) in place "
            "of those from random weights. A retraining then gains 17 to 46 points, where the "
            "paper reports about 30 for two of its models.",
            "The ceiling is the goodput with every request in time and every retraining finished "
            "at once: no planner can pass it.",
        ),
        blocks=(
            grouped_bars(
                f"Goodput over received at load {LOAD:g}", measured, POLICIES[:-1], "goodput"
            ),
            table(
                "Averages over the workloads, gains with 95% confidence intervals",
                ("policy", "goodput (%)", "migrator's gain", "paper", "the ceiling's gain"),
                rows,
            ),
            shares_table(
                "Goodput over received (%) of every workload, the best set apart",
                measured,
                POLICIES,
                "goodput",
            ),
        ),
        reported=(
            "MIGRator's goodput is higher by "
            f"{listed(f'{100 * gain:.0f}% over {peer}' for peer, gain in REPORTED.items())} on "
            "average. Neither its load nor most of its accuracies are stated.",
        ),
        differs=(
            f"Ours: {gains_sentence(measured)}. No planner could reach more than {percent(most)}, "
            f"and migrator reaches {percent(measured.goodput(OURS))}.",
        ),
    )


def ceiling_share(setting: Setting) -> float:
    """Mean over the workloads and seeds of the share of requests that no planner can pass."""
    shares = []
    for job in EVALUATION.jobs(setting):
        if job.policy == OURS:
            scenario = job.scenario()
            run_s = int(scenario.windows * scenario.window_s)
            received = sum(
                int(tenant.trace.counts[tenant.offset_s : tenant.offset_s + run_s].sum())
                for tenant in scenario.tenants
            )
            shares.append(sum(ceiling(scenario)) / max(1, received))
    return sum(shares) / len(shares)


def _figures(setting: Setting, outcomes: Outcomes) -> Figures:
    measured = EVALUATION.measured(setting, outcomes)
    return {
        "load": LOAD,
        **goodput_figures(measured, POLICIES),
        "paper_gains": REPORTED,
        "ceiling": ceiling_share(setting),
    }


HIGH_LOAD = Experiment(
    "high-load",
    "Goodput at a higher load, with gains of published weights",
    EVALUATION.jobs,
    _findings,
    _figures,
)
